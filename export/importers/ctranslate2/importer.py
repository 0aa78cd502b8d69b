"""`convoy convert ctranslate2`: a folder that CTranslate2's converters wrote to a bundle.

What is refused and where the search differs: docs/import.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.bundle.bundle import Bundle, Description
from engine.bundle.config import ModelConfig
from engine.bundle.shortlist import SHORTLIST
from engine.bundle.weights import QuantizedWeight
from engine.errors import BundleError, CheckpointError, ConfigError
from engine.text.fairseq import read_bpe
from engine.text.pieces import read_processor
from engine.text.symbols import Settings as TextSettings
from export.importers.ctranslate2_file import NAME, Variables, read_variables
from export.importers.ctranslate2_map import read_map
from export.importers.ctranslate2_vocabulary import Vocabularies, read_vocabularies
from export.importers.ctranslate2_weights import (
    POSITIONS,
    Array,
    ReadSide,
    read_side,
    rows_of,
    scale_weight,
    unsupported_parts,
)
from export.importers.imported import IMPOSSIBLE, ImportedModel, check_folders, misfitting, write
from export.importers.json_object import read_object

CONFIG: Final = "config.json"
SPECIFICATIONS: Final = ("", "TransformerBase", "TransformerBig", "TransformerSpec")
LONGEST: Final = 256  # targets that CTranslate2 makes unless it is asked for longer ones
PIECES: Final = ("sentencepiece.model", "*.spm", "*.model")
CODES: Final = ("bpe.model", "bpe.codes", "bpecodes", "codes")
# CTranslate2's own defaults
GENERATION: Final[dict[str, Any]] = {"beam_size": 2, "length_penalty": 1.0, "max_length_b": LONGEST}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a folder does not say. None: find out from it, or refuse.

    source, target: language codes.
    pieces: SentencePiece models, one for both sides or the source's and the target's.
    codes: of subword-nmt.
    moses: text is normalised and escaped by its rules before codes are applied, as Argos does.
    prefix: a symbol that every target begins with and that is not shown.
    replace_unknown: unknown symbols become the source's.
    generation: defaults of DecodeOptions.
    notes: lines of the card.
    command: how the card calls this import.
    """

    source: str
    target: str
    name: str | None = None
    pieces: tuple[Path, ...] = ()
    codes: Path | None = None
    moses: bool = False
    prefix: str | None = None
    replace_unknown: bool = False
    generation: Mapping[str, Any] = field(default_factory=lambda: GENERATION)
    notes: tuple[str, ...] = ()
    command: str = "ctranslate2"


def convert(folder: Path, out: Path, settings: Settings, *, overwrite: bool = False) -> Bundle:
    """Import the model of `folder` as the bundle `out`; int8 weights stay int8.

    Raises CheckpointError that names what is missing, unsupported or does not fit; BundleError when `out`
    exists. Nothing is written before everything was checked.
    """
    folder = Path(folder)
    check_folders(folder, out, overwrite=overwrite)
    path = folder / NAME
    variables = read_variables(path)
    _check_specification(path, variables)
    try:
        options = _read_options(folder, variables)
        vocabularies = read_vocabularies(folder, options)
        config, weights = _model(variables, options, vocabularies)
        problems = _problems(variables, config, weights)
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{path}: can't be imported: {error}") from error
    if problems:
        raise CheckpointError(f"{path}: its variables do not fit: " + "; ".join(problems))
    if settings.prefix is not None and settings.prefix not in vocabularies.target:
        raise CheckpointError(f"{folder}: the target vocabulary lacks the prefix {settings.prefix!r}")
    text, files = _text(folder, settings, vocabularies)
    shortlist = read_map(folder, vocabularies)
    if shortlist is not None:
        files[SHORTLIST] = shortlist.dump()
    description = Description(
        name=settings.name or out.resolve().name,
        task="translate",
        source=settings.source,
        target=settings.target,
        config=config,
        text={"kind": "symbols", **asdict(text)},
        generation=dict(settings.generation),
    )
    half = all(a.dtype == np.float16 for a in variables.arrays.values() if a.ndim > 1)
    origin = f"`convoy convert {settings.command}` (binary version {variables.version})"
    notes = (*settings.notes, f"Weights of CTranslate2 in {_precision(variables)}")
    imported = ImportedModel(origin, description, weights, files, half, notes)
    return write(imported, out, overwrite=overwrite)


def _check_specification(path: Path, variables: Variables) -> None:
    if variables.specification not in SPECIFICATIONS:
        raise CheckpointError(
            f"{path}: is a model of the kind {variables.specification!r}; only encoder-decoders "
            "(TransformerSpec) are supported"
        )
    if variables.revision < 2:
        raise CheckpointError(
            f"{path}: revision {variables.revision} of its layers is too old; convert it again"
        )


def _read_options(folder: Path, variables: Variables) -> dict[str, Any]:
    """config.json; files before version 6 hold its content as variables."""
    options: dict[str, Any] = read_object(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    for name in ("unk_token", "bos_token", "eos_token"):
        if name in variables and name not in options:
            options[name] = variables.array(name).tobytes().decode("utf-8", "replace")
    for ours, theirs in (("add_source_bos", "with_source_bos"), ("add_source_eos", "with_source_eos")):
        options.setdefault(ours, bool(variables.number(theirs, 0)))
    if "decoder_start_token" not in options:
        bos, eos = options.get("bos_token", "<s>"), options.get("eos_token", "</s>")
        options["decoder_start_token"] = bos if variables.number("with_target_bos", 1) else eos
    for name, usual in (("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")):
        if not isinstance(options.setdefault(name, usual), str):
            raise CheckpointError(f"{CONFIG}: {name} = {options[name]!r} is no symbol")
    if not isinstance(options["decoder_start_token"], str):
        raise CheckpointError(f"{CONFIG}: without a decoder_start_token a model is not served")
    epsilon = options.get("layer_norm_epsilon")
    if epsilon is not None and (not isinstance(epsilon, (int, float)) or not 0 < epsilon < 1):
        raise CheckpointError(f"{CONFIG}: layer_norm_epsilon = {epsilon!r} is no small number")
    if options.get("multi_query_attention"):
        raise CheckpointError("multi-query attention is not supported")
    return options


def _model(
    variables: Variables, options: Mapping[str, Any], vocabularies: Vocabularies
) -> tuple[ModelConfig, dict[str, Array]]:
    unsupported = list(unsupported_parts(variables))
    if unsupported:
        raise CheckpointError("; ".join(unsupported[:4]))
    settings = {"epsilon": options.get("layer_norm_epsilon"), "window": LONGEST}
    encoder, decoder = (read_side(variables, side, settings) for side in ("encoder", "decoder"))
    if encoder.computed_positions != decoder.computed_positions or (
        encoder.stack.learned_positions != decoder.stack.learned_positions
    ):
        raise CheckpointError("encoder and decoder have positions of different kinds")
    weights: dict[str, Array] = {}
    for side, part in (("encoder", encoder), ("decoder", decoder)):
        weights |= {f"{side}.{name}": weight for name, weight in part.weights.items()}
    tables = _tables(variables, encoder, decoder, vocabularies)
    weights |= tables.weights
    tables_of_positions = [w for n, w in weights.items() if n.endswith("embed_positions.weight")]
    shortest = min([POSITIONS, *(table.shape[0] for table in tables_of_positions)])
    config = ModelConfig(
        architecture="transformer",
        source_vocab=len(vocabularies.source),
        target_vocab=len(vocabularies.target),
        encoder=encoder.stack,
        decoder=decoder.stack,
        share_embeddings=tables.share_embeddings,
        share_output=tables.share_output,
        output_bias="decoder.output_bias" in weights,
        token_positions=not (encoder.stack.relative_positions or encoder.stack.relative_span),
        scale_embeddings=tables.scale,
        first_position=0 if encoder.stack.learned_positions else 1,
        source_end=bool(options["add_source_eos"]),
        zero_start=bool(variables.number("decoder/start_from_zero_embedding", 0)),
        start=vocabularies.start,
        max_source=shortest,
        max_target=LONGEST if decoder.stack.relative_positions else shortest,
        bos=None,
        pad=vocabularies.pad,
        eos=vocabularies.eos,
        unk=vocabularies.unk,
        quantization="rows" if any(isinstance(w, QuantizedWeight) for w in weights.values()) else "none",
    )
    return config, weights


@dataclass(frozen=True, slots=True)
class Tables:
    """Embeddings and output projection, by our names.

    scale: embeddings times the root of the width.
    """

    weights: dict[str, Array]
    share_embeddings: bool
    share_output: bool
    scale: bool


def _tables(variables: Variables, encoder: ReadSide, decoder: ReadSide, vocabularies: Vocabularies) -> Tables:
    """Tables are shared where the file shares them and nothing distinguishes the two uses."""
    names = encoder.table, decoder.table, "decoder/projection/weight"
    factor = variables.number("decoder/scale_outputs", 1.0)
    sides = encoder, decoder
    roots = [side.scale == side.stack.embed_dim**0.5 for side in sides]
    alike = all(roots) or all(side.scale == 1 for side in sides)
    joint = alike and vocabularies.shared and variables.same(*names[:2])
    tied = alike and factor == 1 and variables.same(*names[1:])
    source, target = (scale_weight(side.embedding, 1.0 if alike else side.scale) for side in sides)
    weights = {"encoder.embed_tokens.weight": _reorder_rows(source, vocabularies, 0)}
    if not joint:
        weights["decoder.embed_tokens.weight"] = _reorder_rows(target, vocabularies, 1)
    output = variables.weight("decoder/projection/weight")
    if not tied:
        weights["decoder.output_projection.weight"] = _reorder_rows(
            scale_weight(output, factor), vocabularies, 1
        )
    bias = "decoder/projection/bias"
    if bias in variables or len(vocabularies.target) > vocabularies.rows[1]:
        own = variables.array(bias).astype(np.float32) if bias in variables else np.zeros(output.shape[0])
        more = np.full(len(vocabularies.target) - len(own), IMPOSSIBLE)  # of our own symbols
        weights["decoder.output_bias"] = np.concatenate([own, more]).astype(np.float32)
    return Tables(weights, joint, tied, all(roots))


def _reorder_rows(weight: Array, vocabularies: Vocabularies, side: int) -> Array:
    """A table with its rows in the order of our vocabulary; zeros for symbols that are ours."""
    order, rows = vocabularies.orders[side], vocabularies.rows[side]
    if weight.shape[0] != rows:
        raise CheckpointError(f"a table has {weight.shape[0]} rows, its vocabulary {rows} symbols")
    more = len(order) - rows
    if isinstance(weight, QuantizedWeight):
        values = np.concatenate([weight.values, np.zeros((more, weight.shape[1]), np.int8)])
        weight = QuantizedWeight(values, np.concatenate([weight.scale, np.ones(more, np.float32)]))
    else:
        weight = np.concatenate([weight, np.zeros((more, weight.shape[1]), np.float32)])
    return weight if order == list(range(len(order))) else rows_of(weight, order)


def _problems(variables: Variables, config: ModelConfig, weights: Mapping[str, Array]) -> list[str]:
    leftovers = [f"{name} is not part of the model" for name in variables.unused_names()]
    return misfitting(weights, config) + leftovers


def _precision(variables: Variables) -> str:
    kinds = {str(a.dtype) for a in variables.arrays.values() if a.ndim > 1}
    return ", ".join(sorted(kinds))


def _text(
    folder: Path, settings: Settings, vocabularies: Vocabularies
) -> tuple[TextSettings, dict[str, bytes | Path]]:
    """Text settings and files: the chosen SentencePiece models or codes, else those of the folder."""
    names = (
        ["vocab.json"]
        if vocabularies.source == vocabularies.target
        else ["vocab.source.json", "vocab.target.json"]
    )
    files: dict[str, bytes | Path] = {
        name: json.dumps(symbols, ensure_ascii=False, indent=0).encode("utf-8", "replace")
        for name, symbols in zip(names, (vocabularies.source, vocabularies.target), strict=False)
    }
    pieces, codes = list(settings.pieces), settings.codes
    if not pieces and codes is None:
        codes = next((folder / name for name in CODES if (folder / name).is_file()), None)
    if not pieces and codes is None:
        pieces = _pieces(folder)
    cut: dict[str, str] = {}
    try:
        for side, path in zip(("source", "target"), pieces * (3 - len(pieces)), strict=False):
            read_processor(path)
            name = "sentencepiece.model" if len(pieces) == 1 else f"{side}.spm"
            files[name], cut[f"{side}_pieces"] = path, name
        if codes is not None:
            read_bpe(codes)
            files["bpecodes"], cut["bpe"] = codes, "bpecodes"
    except BundleError as error:
        raise CheckpointError(str(error)) from error
    text = TextSettings(
        source_vocabulary=names[0],
        target_vocabulary=names[-1],
        source_language=settings.source,
        target_language=settings.target,
        prefix=settings.prefix,
        normalize=settings.source if settings.moses else None,
        escape=settings.moses,
        replace_unknown=settings.replace_unknown,
        begin=vocabularies.begin,
        unknown=vocabularies.unknown,
        **cut,
    )
    return text, files


def _pieces(folder: Path) -> list[Path]:
    if (folder / "source.spm").is_file() and (folder / "target.spm").is_file():
        return [folder / "source.spm", folder / "target.spm"]
    paths = sorted({path for pattern in PIECES for path in folder.glob(pattern)})
    if len(paths) > 1:
        raise CheckpointError(
            f"{folder}: holds several SentencePiece models {[p.name for p in paths]}; name one for both "
            "sides, or two, with --pieces"
        )
    return paths
