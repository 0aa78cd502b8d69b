"""`convoy convert fairseq`: a folder with fairseq checkpoints, dictionaries and BPE codes to a bundle."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.bundle.bundle import Content
from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError
from engine.text.tokenizers.dictionary import read_dictionary
from engine.text.tokenizers.fairseq import FairseqSettings as TextSettings
from export.importers.checkpoint import Checkpoint, average, read_checkpoint
from export.importers.fairseq import archive, language_model
from export.importers.fairseq.byte_text import BYTES, FILLER, byte_text
from export.importers.fairseq.fconv import FCONV
from export.importers.fairseq.lightconv import LIGHTCONV
from export.importers.fairseq.lightconv_lm import LIGHTCONV_LM
from export.importers.fairseq.options import Family
from export.importers.fairseq.transformer import TRANSFORMER
from export.importers.importing import ImportedModel, ProblemList
from export.importers.settings import FairseqImport
from export.importers.weights import Weights, all_half

# by the name of the architecture
FAMILIES: Final[dict[str, Family]] = {
    architecture: family
    for family in (FCONV, LIGHTCONV, LIGHTCONV_LM, TRANSFORMER)
    for architecture in family.table.architectures
}
LICENCE: Final = "Licence and training data: those of the checkpoint, which does not record them"


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """A checkpoint and the path that it was read from."""

    path: Path
    checkpoint: Checkpoint

    @property
    def arguments(self) -> dict[str, Any]:
        return self.checkpoint.arguments

    @property
    def family(self) -> Family:
        return FAMILIES[self.arguments["arch"]]


def read(folder: Path, settings: FairseqImport, problems: ProblemList) -> ImportedModel:
    """Read one checkpoint of a folder as a model, or several as an ensemble.

    folder: folder of checkpoints, dictionaries and BPE codes.
    settings: settings of the user.
    problems: receives every unsupported option, missing file and weight that does not fit.
    """
    paths = archive.find_checkpoints(folder, settings.checkpoints)
    sources = [ReadCheckpoint(path, read_checkpoint(path)) for path in paths]
    for source in sources:
        problems.add_under(f"{source.path}: can't be imported", _option_problems(source))
    text_files = problems.attempt(lambda: _text_files(folder, sources, settings))
    problems.stop()
    assert text_files is not None
    if settings.average:
        sources = [_average_sources(sources)]
    problems.attempt(lambda: _check_companions(sources, text_files))
    config, weights = _ensemble(_read_members(sources, text_files, problems))
    notes = [LICENCE]
    if settings.language_model is not None:
        lm_bundle = language_model.read(settings.language_model, text_files.target)
        config, weights = language_model.add_language_model((config, weights), lm_bundle)
        notes.append(f"Language model for the option `lm_weight`: `{lm_bundle.name}`")
    modelling = archive.is_language_model(sources[0].arguments)
    architectures = "` + `".join(source.arguments["arch"] for source in sources)
    text = _text(text_files, settings, sources[0].arguments.get("bpe"))
    side, files = _text_side(folder, text_files, text, sources[0].arguments)
    return ImportedModel(
        origin=f"`convoy convert fairseq` (architecture `{architectures}`)",
        config=config,
        weights=weights,
        text=side,
        files=files,
        task=settings.task or ("language-model" if modelling else "translate"),
        source=text.source_language,
        target=text.target_language,
        half=all(all_half(source.checkpoint.state) for source in sources),
        generation={"lm_weight": settings.lm_weight} if settings.lm_weight else {},
        notes=tuple(notes),
    )


def _text_files(
    folder: Path, sources: Sequence[ReadCheckpoint], settings: FairseqImport
) -> archive.TextFiles:
    """Return the dictionaries and segmentation files of the first checkpoint."""
    dictionaries = archive.find_dictionaries(folder, settings.dictionaries)
    arguments = sources[0].arguments
    pair = archive.languages(dictionaries, arguments, settings.source, settings.target)
    modelling = archive.is_language_model(arguments)
    text_files = archive.read_text(folder, dictionaries, pair, language_model=modelling)
    if not settings.pretokenized:
        archive.check_segmentation(folder, arguments, text_files)
    if settings.unk_dictionary is not None:
        text_files = archive.with_unknown(text_files, settings.unk_dictionary)
    return text_files


def _option_problems(source: ReadCheckpoint) -> list[str]:
    arch = source.arguments.get("arch")
    if not isinstance(arch, str) or arch not in FAMILIES:
        return [f"architecture {arch!r} is not supported; supported are {', '.join(FAMILIES)}"]
    return source.family.options(source.arguments)[1]


def _average_sources(sources: Sequence[ReadCheckpoint]) -> ReadCheckpoint:
    """Return one checkpoint with the mean of the weights, like fairseq's average_checkpoints.py."""
    if len(sources) < 2:
        raise CheckpointError(f"{sources[0].path}: an average needs several checkpoints; name them all")
    first = sources[0]
    for other in sources[1:]:
        ours, theirs = (s.family.options(s.arguments)[0] for s in (first, other))
        differ = sorted(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
        if differ:
            raise CheckpointError(
                f"{other.path}: can't be averaged with {first.path}: their options {differ} differ"
            )
    mean = average([(source.path, source.checkpoint) for source in sources])
    return ReadCheckpoint(first.path, mean)


def _check_companions(sources: Sequence[ReadCheckpoint], text_files: archive.TextFiles) -> None:
    """Raise CheckpointError if a checkpoint of another folder has other dictionaries or another direction."""
    settings = text_files.settings
    names = (settings.source_dictionary, text_files.source), (settings.target_dictionary, text_files.target)
    dictionaries = text_files.files[settings.source_dictionary].parent
    for source in sources[1:]:
        own = source.path.parent
        for name, dictionary in names:
            if own.resolve() == dictionaries.resolve() or not (own / name).is_file():
                continue
            if read_dictionary(own / name).symbols != dictionary.symbols:
                raise CheckpointError(f"{own / name}: differs from {dictionaries / name}; one bundle has one")
        for key in ("source_lang", "target_lang"):
            ours, theirs = sources[0].arguments.get(key), source.arguments.get(key)
            if ours and theirs and ours != theirs:
                raise CheckpointError(f"{source.path}: its {key} is {theirs!r}, not {ours!r}")


def _read_members(
    sources: Sequence[ReadCheckpoint], text_files: archive.TextFiles, problems: ProblemList
) -> list[tuple[ModelConfig, Weights]]:
    """Return the model of each checkpoint. Raises CheckpointError if two are the same."""
    members = [_read_member(source, text_files, problems) for source in sources]
    problems.stop()
    complete = [member for member in members if member is not None]
    _check_different(sources, complete)
    return complete


def _read_member(
    source: ReadCheckpoint, text_files: archive.TextFiles, problems: ProblemList
) -> tuple[ModelConfig, Weights] | None:
    """Return the configuration and weights of one checkpoint, or None if its options make no model."""
    sizes = len(text_files.source.symbols), len(text_files.target.symbols)
    config, findings = source.family.model_config(source.arguments, *sizes)
    if config is not None:
        findings = [*findings, *_vocabulary_problems(source.checkpoint, config, text_files)]
    problems.add_under(f"{source.path}: can't be imported", findings)
    if config is None or findings:
        return None
    weights, findings = source.family.model_weights(source.checkpoint.state, config)
    problems.add_under(f"{source.path}: its weights do not fit its options", findings)
    return config, weights


def _vocabulary_problems(
    checkpoint: Checkpoint, config: ModelConfig, text_files: archive.TextFiles
) -> list[str]:
    """Return a problem for each embedding table that does not fit its dictionary."""
    problems = []
    sides = (("encoder", config.encoder, text_files.source), ("decoder", config.decoder, text_files.target))
    for side, stack, dictionary in sides:
        table = checkpoint.state.get(f"{side}.embed_tokens.weight")
        if stack is None or table is None:
            continue
        shape = len(dictionary.symbols), stack.token_dim
        if tuple(table.shape) != shape:
            problems.append(
                f"{side}.embed_tokens.weight has shape {tuple(table.shape)}, but its dictionary (and the 4 "
                f"special symbols) and its options say {shape}"
            )
    if config.share_embeddings and text_files.source.symbols != text_files.target.symbols:
        problems.append("share_all_embeddings needs two equal dictionaries, but they differ")
    return problems


def _check_different(
    sources: Sequence[ReadCheckpoint], members: Sequence[tuple[ModelConfig, Weights]]
) -> None:
    """Raise CheckpointError if two members are equal: the second would only outweigh the others."""
    for (i, (config, weights)), (j, (other, same)) in itertools.combinations(enumerate(members), 2):
        if config == other and all(np.array_equal(weights[name], same[name]) for name in weights):
            raise CheckpointError(
                f"{sources[j].path}: holds the same weights as {sources[i].path}; name each model once"
            )


def _ensemble(members: Sequence[tuple[ModelConfig, Weights]]) -> tuple[ModelConfig, Weights]:
    """Return the only member, or an ensemble with the smallest length limits of its members."""
    if len(members) == 1:
        return members[0]
    configs = tuple(config for config, _ in members)
    config = ModelConfig(
        architecture="ensemble",
        source_vocab=configs[0].source_vocab,
        target_vocab=configs[0].target_vocab,
        encoder=None,
        decoder=None,
        max_source=min(c.max_source for c in configs),
        max_target=min(c.max_target for c in configs),
        members=configs,
    )
    weights = {f"members.{i}.{name}": w for i, (_, own) in enumerate(members) for name, w in own.items()}
    return config, weights


def _text_side(
    folder: Path, text_files: archive.TextFiles, text: TextSettings, arguments: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Content]]:
    """Return the settings of a tokenizer of fairseq's dictionaries, or of bytes, with their files."""
    files = text_files.byte_level
    if text.characters and not text.pretokenized:
        _check_characters(folder, text_files.source.symbols)
    if text.pretokenized or (files is None and arguments.get("bpe") != BYTES):
        return {"kind": "fairseq", **asdict(text)}, text_files.files
    spaced = arguments.get("bpe_add_prefix_space") is True
    return byte_text(folder, (text_files.source, text_files.target), files, spaced)


def _check_characters(folder: Path, symbols: Sequence[str]) -> None:
    """Raise CheckpointError if most symbols of a dictionary are longer than a character."""
    plain = [symbol for symbol in symbols if not symbol.startswith(("<", FILLER))]
    if sum(len(symbol) > 1 for symbol in plain) * 2 > len(plain):
        raise CheckpointError(
            f"{folder}: its texts were cut into characters (bpe = characters), and most symbols of its "
            "dictionary are longer; with --pretokenized, texts are its symbols between spaces"
        )


def _text(text_files: archive.TextFiles, choices: FairseqImport, bpe: Any) -> TextSettings:
    """Return the text pipeline: the user's choices, otherwise those derived from the dictionary's symbols.

    text_files: files of the folder.
    choices: settings of the user.
    bpe: option `bpe` of the checkpoint.
    """
    settings = replace(text_files.settings, characters=bpe == archive.CHARACTERS)
    read = (
        settings.bpe or settings.sentencepiece or text_files.byte_level or bpe in (BYTES, archive.CHARACTERS)
    )
    pretokenized = not read if choices.pretokenized is None else choices.pretokenized
    if settings.sentencepiece or settings.characters:
        no = False
        return replace(
            settings, normalize=None, aggressive=no, escape=no, lowercase=no, pretokenized=pretokenized
        )
    inferred = archive.infer_moses(settings, text_files.source.symbols)
    return replace(
        inferred,
        normalize=choices.normalize or None,
        aggressive=inferred.aggressive if choices.aggressive is None else choices.aggressive,
        escape=inferred.escape if choices.escape is None else choices.escape,
        lowercase=inferred.lowercase if choices.lowercase is None else choices.lowercase,
        pretokenized=pretokenized,
    )
