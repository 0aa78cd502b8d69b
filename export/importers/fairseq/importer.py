"""`convoy convert fairseq`: a folder with fairseq checkpoints, dictionaries and BPE codes to a bundle."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from engine.bundle.bundle import Bundle, Description
from engine.bundle.config import ModelConfig
from engine.errors import BundleError, CheckpointError
from engine.text.dictionary import Dictionary, read_dictionary
from engine.text.fairseq import Settings as TextSettings
from export.importers import archive, fconv, language_model, lightconv, lightconv_lm, transformer
from export.importers.checkpoint import Checkpoint, average, read_checkpoint
from export.importers.imported import ImportedModel, check_folders, write
from export.importers.maps import Family, Weights

# fairseq's architecture: the map that reads it
FAMILIES: Final[dict[str, Family]] = {
    architecture: family
    for family in (fconv, lightconv, lightconv_lm, transformer)
    for architecture in family.ARCHITECTURES
}
LICENCE: Final = "Licence and training data: those of the checkpoint, which does not record them"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a checkpoint does not say. None: find out from the folder, or refuse.

    checkpoints: file names, several for an ensemble.
    average: their mean instead.
    dictionaries: their folder.
    source, target: languages of the dictionaries dict.LANGUAGE.txt.
    normalize: the language of punctuation rules, or "" for none.
    aggressive, escape, lowercase: Moses options (the first splits dashes), by default as the source
        dictionary shows.
    pretokenized: by default when there is nothing to segment words with.
    unk_dictionary: words in the place of unknown ones (`engine.text.unknown`).
    half: store fp16, by default as the checkpoints do.
    language_model: a bundle of one for beside the model, and its weight by default.
    """

    name: str | None = None
    task: str | None = None
    checkpoints: tuple[str, ...] = ()
    average: bool = False
    dictionaries: Path | None = None
    source: str | None = None
    target: str | None = None
    normalize: str = "en"
    aggressive: bool | None = None
    escape: bool | None = None
    lowercase: bool | None = None
    pretokenized: bool | None = None
    unk_dictionary: Path | None = None
    half: bool | None = None
    language_model: Path | None = None
    lm_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint as it was read, and where from."""

    path: Path
    checkpoint: Checkpoint

    @property
    def arguments(self) -> dict[str, Any]:
        return self.checkpoint.arguments

    @property
    def family(self) -> Family:
        return FAMILIES[self.arguments["arch"]]


def convert(folder: Path, out: Path, settings: Settings | None = None, *, overwrite: bool = False) -> Bundle:
    """Import the model of `folder`, or several of them as an ensemble, as the bundle `out`.

    Raises CheckpointError that lists every unsupported option, or every weight that does not fit; BundleError
    when `out` exists. Nothing is written before everything was checked.
    """
    folder, choices = Path(folder), settings or Settings()
    check_folders(folder, out, overwrite=overwrite)
    paths = archive.find_checkpoints(folder, choices.checkpoints)
    sources = [Source(path, read_checkpoint(path)) for path in paths]
    _check_options(sources)
    if choices.average:
        sources = [_average_sources(sources)]
    arguments = sources[0].arguments
    dictionaries = archive.find_dictionaries(folder, choices.dictionaries)
    spoken = archive.languages(dictionaries, arguments, choices.source, choices.target)
    modelling = archive.is_language_model(arguments)
    text_files = archive.read_text(folder, dictionaries, spoken, language_model=modelling)
    if choices.unk_dictionary is not None:
        text_files = archive.with_unknown(text_files, choices.unk_dictionary)
    _check_companions(sources, dictionaries, text_files)
    members = [_member(source, text_files) for source in sources]
    _check_different(sources, members)
    config, weights = _ensemble(members)
    notes = [LICENCE]
    if choices.language_model is not None:
        beside = language_model.read(choices.language_model, text_files.target)
        config, weights = language_model.add_language_model((config, weights), beside)
        notes.append(f"Beside it the language model `{beside.name}`, for the option `lm_weight`")
    half = choices.half
    if half is None:
        half = all(_stored_half(source.checkpoint) for source in sources) and _half_holds(weights)
    description = Description(
        name=choices.name or out.resolve().name,
        task=choices.task or ("language-model" if modelling else "translate"),
        source=spoken.source,
        target=spoken.target,
        config=config,
        text={"kind": "fairseq", **asdict(_text(text_files, choices))},
        generation={"lm_weight": choices.lm_weight} if choices.lm_weight else {},
    )
    architectures = "` + `".join(source.arguments["arch"] for source in sources)
    origin = f"`convoy convert fairseq` (architecture `{architectures}`)"
    imported = ImportedModel(origin, description, weights, text_files.files, half, tuple(notes))
    return write(imported, out, overwrite=overwrite)


def _check_options(sources: Sequence[Source]) -> None:
    """Every unsupported option of every checkpoint, in one error."""
    wrong = []
    for source in sources:
        arch = source.arguments.get("arch")
        if not isinstance(arch, str) or arch not in FAMILIES:
            names = ", ".join(FAMILIES)
            problems = [f"architecture {arch!r} is not supported; supported are {names}"]
        else:
            problems = source.family.options(source.arguments)[1]
        if problems:
            wrong.append(f"{source.path}: can't be imported: " + "; ".join(problems))
    if wrong:
        raise CheckpointError(". ".join(wrong))


def _average_sources(sources: Sequence[Source]) -> Source:
    """One checkpoint with the mean of the weights, as fairseq's average_checkpoints.py makes it."""
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
    return Source(first.path, mean)


def _check_companions(sources: Sequence[Source], dictionaries: Path, text_files: archive.TextFiles) -> None:
    """Checkpoints from other folders must come with the same dictionaries and the same direction."""
    settings = text_files.settings
    names = (settings.source_dictionary, text_files.source), (settings.target_dictionary, text_files.target)
    for source in sources[1:]:
        own = source.path.parent
        for name, dictionary in names:
            if own.resolve() == dictionaries.resolve() or not (own / name).is_file():
                continue
            if _read_dictionary(own / name).symbols != dictionary.symbols:
                raise CheckpointError(f"{own / name}: differs from {dictionaries / name}; one bundle has one")
        for key in ("source_lang", "target_lang"):
            ours, theirs = sources[0].arguments.get(key), source.arguments.get(key)
            if ours and theirs and ours != theirs:
                raise CheckpointError(f"{source.path}: its {key} is {theirs!r}, not {ours!r}")


def _read_dictionary(path: Path) -> Dictionary:
    try:
        return read_dictionary(path)
    except BundleError as error:
        raise CheckpointError(str(error)) from error


def _member(source: Source, text_files: archive.TextFiles) -> tuple[ModelConfig, Weights]:
    """The configuration and weights of one checkpoint."""
    sizes = len(text_files.source.symbols), len(text_files.target.symbols)
    config, problems = source.family.model_config(source.arguments, *sizes)
    if config is not None:
        problems = [*problems, *_vocabulary_problems(source.checkpoint, config, text_files)]
    if config is None or problems:
        raise CheckpointError(f"{source.path}: can't be imported: " + "; ".join(problems))
    weights, problems = source.family.model_weights(source.checkpoint.state, config)
    if problems:
        raise CheckpointError(f"{source.path}: its weights do not fit its options: " + "; ".join(problems))
    return config, weights


def _vocabulary_problems(
    checkpoint: Checkpoint, config: ModelConfig, text_files: archive.TextFiles
) -> list[str]:
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


def _check_different(sources: Sequence[Source], members: Sequence[tuple[ModelConfig, Weights]]) -> None:
    """No weights are stored twice: a model that is named again would only make the others count less."""
    for (i, (config, weights)), (j, (other, same)) in itertools.combinations(enumerate(members), 2):
        if config == other and all(np.array_equal(weights[name], same[name]) for name in weights):
            raise CheckpointError(
                f"{sources[j].path}: holds the same weights as {sources[i].path}; name each model once"
            )


def _ensemble(members: Sequence[tuple[ModelConfig, Weights]]) -> tuple[ModelConfig, Weights]:
    """One member as it is; several as an ensemble whose limits all members reach."""
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


def _stored_half(checkpoint: Checkpoint) -> bool:
    return all(w.dtype == torch.float16 for w in checkpoint.state.values() if w.is_floating_point())


def _text(text_files: archive.TextFiles, choices: Settings) -> TextSettings:
    """The text pipeline; where the settings are silent, the one that made the dictionary's own symbols."""
    settings = text_files.settings
    whole = settings.bpe is None and settings.sentencepiece is None
    pretokenized = whole if choices.pretokenized is None else choices.pretokenized
    if settings.sentencepiece:
        no = False
        return replace(
            settings, normalize=None, aggressive=no, escape=no, lowercase=no, pretokenized=pretokenized
        )
    shown = archive.infer_moses(settings, text_files.source.symbols)
    return replace(
        shown,
        normalize=choices.normalize or None,
        aggressive=shown.aggressive if choices.aggressive is None else choices.aggressive,
        escape=shown.escape if choices.escape is None else choices.escape,
        lowercase=shown.lowercase if choices.lowercase is None else choices.lowercase,
        pretokenized=pretokenized,
    )


def _half_holds(weights: Weights) -> bool:
    """Whether fp16 holds every weight as it is; not when an import computes with them, as ConvS2S's does."""
    with np.errstate(over="ignore"):
        return all(np.array_equal(w.astype(np.float16).astype(np.float32), w) for w in weights.values())
