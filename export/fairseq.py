"""`convoy convert fairseq`: a folder with a fairseq checkpoint, dictionaries and BPE codes to a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import torch

from engine.bundle import Bundle, Description, write_bundle
from engine.errors import BundleError, CheckpointError
from engine.text import fairseq as text
from export import lightconv
from export.checkpoint import Checkpoint, read_checkpoint

PREFERRED: Final = ("model.pt", "checkpoint_best.pt", "checkpoint.pt")
CODES: Final = ("bpecodes", "code", "codes", "bpe.codes")
ESCAPES: Final = ("&apos;", "&quot;", "&amp;", "&#124;", "&#91;", "&#93;", "&lt;", "&gt;")

CARD: Final = """# {said.name}

{said.task} {said.source} -> {said.target}. Imported by `convoy convert fairseq` (architecture `{arch}`).

- Parameters: {parameters:,}, stored as {precision}
- Vocabulary: {model.source_vocab:,} source and {model.target_vocab:,} target symbols
- Licence and training data: those of the checkpoint, which does not record them
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a checkpoint does not say. None: find out from the folder, or refuse.

    checkpoint: file name. source, target: languages of the dictionaries dict.LANGUAGE.txt. normalize: the
    language of the punctuation rules, or "" for none. aggressive (dash splitting), escape, lowercase: Moses
    options, by default as the source dictionary shows. pretokenized: by default when there are no BPE codes.
    half: store fp16, by default as the checkpoint does.
    """

    name: str | None = None
    task: str = "translate"
    checkpoint: str | None = None
    source: str | None = None
    target: str | None = None
    normalize: str = "en"
    aggressive: bool | None = None
    escape: bool | None = None
    lowercase: bool | None = None
    pretokenized: bool | None = None
    half: bool | None = None


def convert(folder: Path, out: Path, settings: Settings | None = None, *, overwrite: bool = False) -> Bundle:
    """Import the LightConv or DynamicConv encoder-decoder of `folder` as the bundle `out`.

    Raises CheckpointError that lists every unsupported option, or every weight that does not fit; BundleError
    when `out` exists. Nothing is written before everything was checked.
    """
    folder, chosen = Path(folder), settings or Settings()
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is no such folder")
    if out.exists() and not overwrite:
        raise BundleError(f"{out}: already exists; choose another name or ask to overwrite it")
    path = _find_checkpoint(folder, chosen.checkpoint)
    checkpoint = read_checkpoint(path)
    _, problems = lightconv.options(checkpoint.arguments)
    if problems:
        raise CheckpointError(f"{path}: can't be imported: " + "; ".join(problems))
    found = _text(folder, checkpoint, chosen)
    source, target = _dictionaries(folder, found)
    sizes = len(source.symbols), len(target.symbols)
    config, problems = lightconv.model_config(checkpoint.arguments, *sizes)
    problems += _vocabulary_problems(checkpoint, source, target)
    if config is None or problems:
        raise CheckpointError(f"{path}: can't be imported: " + "; ".join(problems))
    weights, problems = lightconv.model_weights(checkpoint.state, config)
    if problems:
        raise CheckpointError(f"{path}: its weights do not fit its options: " + "; ".join(problems))
    half = _stored_half(checkpoint) if chosen.half is None else chosen.half
    description = Description(
        name=chosen.name or folder.resolve().name,
        task=chosen.task,
        source=found.source_language,
        target=found.target_language,
        config=config,
        text={"kind": "fairseq", **asdict(_shown(found, chosen, source.symbols))},
    )
    names = {found.source_dictionary, found.target_dictionary, *([found.bpe] if found.bpe else [])}
    files: dict[str, bytes | Path] = {name: folder / name for name in names}
    parameters = sum(weight.size for weight in weights.values())
    files["README.md"] = _card(description, str(checkpoint.arguments["arch"]), parameters, half=half)
    return write_bundle(out, description, weights, files, half=half, overwrite=overwrite)


def _find_checkpoint(folder: Path, name: str | None) -> Path:
    """The one checkpoint of a folder. Several with no usual name among them are not guessed from."""
    if name is not None:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder}: there is no checkpoint {name!r}")
        return folder / name
    for usual in PREFERRED:
        if (folder / usual).is_file():
            return folder / usual
    found = sorted(path.name for path in folder.glob("*.pt"))
    if len(found) == 1:
        return folder / found[0]
    if found:
        raise CheckpointError(
            f"{folder}: holds several checkpoints {found}; name one (ensembles are not supported)"
        )
    raise CheckpointError(f"{folder}: holds no checkpoint, neither model.pt nor any other *.pt")


def _find_codes(folder: Path) -> str | None:
    found = [name for name in CODES if (folder / name).is_file()]
    if len(found) > 1:
        raise CheckpointError(f"{folder}: holds several files of BPE codes {found}: keep this model's")
    if not found and list(folder.glob("*.model")):
        raise CheckpointError(
            f"{folder}: holds a SentencePiece model; only Moses with BPE codes is supported"
        )
    return found[0] if found else None


def _text(folder: Path, checkpoint: Checkpoint, chosen: Settings) -> text.Settings:
    """Files and languages of the text. Languages by the settings, else by the checkpoint: the dictionaries
    alone don't tell the direction."""
    source = chosen.source or checkpoint.arguments.get("source_lang")
    target = chosen.target or checkpoint.arguments.get("target_lang")
    known = sorted(path.name.split(".")[1] for path in folder.glob("dict.*.txt"))
    if not source or not target:
        raise CheckpointError(
            f"{folder}: the checkpoint does not name its languages: give source and target of {known}"
        )
    missing = [language for language in (source, target) if language not in known]
    if missing:
        raise CheckpointError(f"{folder}: there is no dict.{missing[0]}.txt; it has dictionaries for {known}")
    return text.Settings(
        source_dictionary=f"dict.{source}.txt",
        target_dictionary=f"dict.{target}.txt",
        bpe=_find_codes(folder),
        source_language=source,
        target_language=target,
    )


def _dictionaries(folder: Path, found: text.Settings) -> tuple[text.Dictionary, text.Dictionary]:
    try:
        if found.bpe:
            text.read_bpe(folder / found.bpe)
        source = text.read_dictionary(folder / found.source_dictionary)
        return source, text.read_dictionary(folder / found.target_dictionary)
    except BundleError as error:
        raise CheckpointError(str(error)) from error


def _vocabulary_problems(
    checkpoint: Checkpoint, source: text.Dictionary, target: text.Dictionary
) -> list[str]:
    values, _ = lightconv.options(checkpoint.arguments)
    sides = (("encoder", source, "encoder_embed_dim"), ("decoder", target, "decoder_input_dim"))
    problems = []
    for side, dictionary, width in sides:
        table = checkpoint.state.get(f"{side}.embed_tokens.weight")
        wanted = len(dictionary.symbols), values.get(width)
        if table is not None and tuple(table.shape) != wanted:
            problems.append(
                f"{side}.embed_tokens.weight has shape {tuple(table.shape)}, but its dictionary (and the 4 "
                f"special symbols) and {width} say {wanted}"
            )
    if values.get("share_all_embeddings") and source.symbols != target.symbols:
        problems.append("share_all_embeddings needs two equal dictionaries, but they differ")
    return problems


def _stored_half(checkpoint: Checkpoint) -> bool:
    return all(w.dtype == torch.float16 for w in checkpoint.state.values() if w.is_floating_point())


def _shown(found: text.Settings, chosen: Settings, symbols: Sequence[str]) -> text.Settings:
    """Moses options; where the settings are silent, those that made the dictionary's own symbols."""
    known = set(symbols[len(text.SPECIALS) :])

    def either(given: bool | None, shown: bool) -> bool:
        return shown if given is None else given

    return replace(
        found,
        normalize=chosen.normalize or None,
        aggressive=either(chosen.aggressive, "@-@" in known),
        escape=either(chosen.escape, not known.isdisjoint(ESCAPES)),
        lowercase=either(chosen.lowercase, all(symbol == symbol.lower() for symbol in known)),
        pretokenized=either(chosen.pretokenized, found.bpe is None),
    )


def _card(description: Description, arch: str, parameters: int, *, half: bool) -> bytes:
    card = CARD.format(
        said=description,
        model=description.config,
        arch=arch,
        parameters=parameters,
        precision="fp16" if half else "fp32",
    )
    return card.encode()
