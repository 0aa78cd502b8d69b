"""`convoy convert ctranslate2`: read a folder that CTranslate2's converters wrote.

docs/import.md lists unsupported models and differences of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.bundle.config import SIDES, ModelConfig
from engine.bundle.shortlist import SHORTLIST
from engine.bundle.weights import QuantizedWeight
from engine.errors import CheckpointError
from export.importers.ctranslate2.families import choose_family
from export.importers.ctranslate2.sides import (
    MAX_POSITIONS,
    ReadSide,
    read_side,
    rows_of,
    scale_weight,
    unsupported_parts,
)
from export.importers.ctranslate2.texts import (
    TextRules,
    TextSide,
    TextSources,
    family_text,
    find_sources,
    symbols_text,
)
from export.importers.ctranslate2.variables import MODEL_FILE, Variables, read_variables
from export.importers.ctranslate2.vocabularies import FileVocabularies, read_vocabularies
from export.importers.ctranslate2.vocabulary_map import read_map
from export.importers.huggingface.word_text import END
from export.importers.importing import ImportedModel, ProblemList, StoppedError
from export.importers.json_object import read_object
from export.importers.settings import CTranslate2Import
from export.importers.weights import IMPOSSIBLE, Array, weight_problems

CONFIG_FILE: Final = "config.json"
SPECIFICATIONS: Final = ("", "TransformerBase", "TransformerBig", "TransformerSpec")
LONGEST_TARGET_TOKENS: Final = 256  # CTranslate2's default of max_decoding_length
USUAL_SYMBOLS: Final = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
# CTranslate2's own defaults
CT2_DEFAULTS: Final[dict[str, Any]] = {
    "beam_size": 2,
    "length_penalty": 1.0,
    "max_length_b": LONGEST_TARGET_TOKENS,
}


def read(folder: Path, settings: CTranslate2Import, problems: ProblemList) -> ImportedModel:
    """Read the model of a folder; int8 weights stay int8.

    folder: folder of model.bin, vocabularies and segmentation models.
    settings: settings of the user, which must include the languages.
    problems: receives whatever is missing, unsupported or does not fit.
    """
    return read_for_library(folder, settings, TextRules(), problems)


def read_for_library(
    folder: Path, settings: CTranslate2Import, rules: TextRules, problems: ProblemList
) -> ImportedModel:
    """Read the model of a folder like `read`, for a library with its own text processing.

    folder: folder of the model.
    settings: settings of the user, which must include the languages.
    rules: text processing of the library.
    problems: receives whatever is missing, unsupported or does not fit.
    """
    path = folder / MODEL_FILE
    text_sources = problems.attempt(lambda: find_sources(folder, settings))
    options = problems.attempt(lambda: _read_options_of_file(folder))
    variables = problems.attempt(lambda: read_variables(path))
    if variables is None or options is None:
        raise StoppedError
    _check_specification(path, variables, problems)
    problems.require(f"{path}: can't be imported", lambda: _fill_options(options, variables))
    findings = list(_option_problems(options))
    problems.add_under(f"{path}: can't be imported", [*findings, *unsupported_parts(variables)])
    vocabularies = None if findings else problems.attempt(lambda: read_vocabularies(folder, options))
    shortlist = problems.attempt(lambda: None if vocabularies is None else read_map(folder, vocabularies))
    side = None
    if vocabularies is not None and text_sources is not None:
        side = problems.attempt(
            lambda: _text_side(folder, text_sources, settings, rules, (vocabularies, options, variables))
        )
    problems.stop()
    assert vocabularies is not None
    assert side is not None
    config, weights = problems.require(
        f"{path}: can't be imported", lambda: _config_and_weights(variables, options, vocabularies)
    )
    config = config if side.start is None else replace(config, start=side.start)
    findings = [f"{name} is not part of the model" for name in variables.unused_names()]
    problems.add_under(f"{path}: its variables do not fit", weight_problems(weights, config) + findings)
    more = {} if shortlist is None else {SHORTLIST: shortlist.dump()}
    return ImportedModel(
        origin=f"`convoy convert ctranslate2` (binary version {variables.version})",
        config=config,
        weights=weights,
        text=side.settings,
        files={**side.files, **more},
        task=side.task,
        source=side.source,
        target=side.target,
        half=all(a.dtype == np.float16 for a in variables.arrays.values() if a.ndim > 1),
        generation=CT2_DEFAULTS,
        notes=(f"Weights of CTranslate2 in {_precision(variables)}",),
    )


def _text_side(
    folder: Path,
    sources: TextSources,
    settings: CTranslate2Import,
    rules: TextRules,
    model: tuple[FileVocabularies, dict[str, Any], Variables],
) -> TextSide:
    """Return the text side; the options of a family of `transformers` get the end of a source.

    folder: folder of the model.
    sources: segmentation files.
    settings: settings of the user.
    rules: text processing of the library that runs the model.
    model: vocabularies, options and variables of the model.

    Raises CheckpointError if files or languages are missing.
    """
    vocabularies, options, variables = model
    if rules.families:
        family = choose_family(folder, settings.family, vocabularies.source, options, variables)
        if family is not None:
            side = family_text(folder, family, sources, settings, vocabularies)
            options["add_source_eos"] = side.source_end
            return side
    if options["decoder_start_token"] is None:
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: names no decoder_start_token, and the vocabulary is of no family that "
            "determines it: name the first symbol of targets there"
        )
    if settings.task not in (None, "translate") or settings.prompt:
        raise CheckpointError(f"{folder}: --task and --prompt need a model of a family; give --family")
    if settings.source is None or settings.target is None:
        raise CheckpointError(f"{folder}: does not name its languages: give --source and --target")
    if settings.prefix not in (None, *vocabularies.target):
        raise CheckpointError(f"{folder}: the target vocabulary lacks the prefix {settings.prefix!r}")
    return symbols_text(sources, settings, rules, vocabularies)


def _check_specification(path: Path, variables: Variables, problems: ProblemList) -> None:
    """Add a problem for an unsupported kind and raise StoppedError."""
    if variables.specification not in SPECIFICATIONS:
        problems.add(
            f"{path}: is a model of the kind {variables.specification!r}; only encoder-decoders "
            "(TransformerSpec) are supported"
        )
        raise StoppedError


def _read_options_of_file(folder: Path) -> dict[str, Any]:
    return read_object(folder / CONFIG_FILE) if (folder / CONFIG_FILE).is_file() else {}


def _fill_options(options: dict[str, Any], variables: Variables) -> None:
    """Add options that config.json lacks; files before version 6 store them as variables."""
    for name in ("unk_token", "bos_token", "eos_token"):
        if name in variables and name not in options:
            options[name] = variables.array(name).tobytes().decode("utf-8", "replace")
    if variables.number("user_decoder_start_tokens", 0):
        options.setdefault("decoder_start_token", None)
    for ours, theirs in (("add_source_bos", "with_source_bos"), ("add_source_eos", "with_source_eos")):
        options.setdefault(ours, bool(variables.number(theirs, 0)))
    if "decoder_start_token" not in options:
        bos, eos = options.get("bos_token", "<s>"), options.get("eos_token", "</s>")
        options["decoder_start_token"] = bos if variables.number("with_target_bos", 1) else eos
    for name, usual in USUAL_SYMBOLS.items():
        options.setdefault(name, usual)
    if options["eos_token"] is None:  # BERT's tokenizer has none
        options["eos_token"] = END
    if options["bos_token"] is None:  # mBART-50 has none
        options["bos_token"] = USUAL_SYMBOLS["bos_token"]


def _option_problems(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the options in config.json."""
    for name in USUAL_SYMBOLS:
        if not isinstance(options[name], str):
            yield f"{CONFIG_FILE}: {name} = {options[name]!r} is not a symbol"
    if not isinstance(options["decoder_start_token"], str | None):
        yield f"{CONFIG_FILE}: decoder_start_token = {options['decoder_start_token']!r} is not a symbol"
    epsilon = options.get("layer_norm_epsilon")
    if epsilon is not None and (not isinstance(epsilon, (int, float)) or not 0 < epsilon < 1):
        yield f"{CONFIG_FILE}: layer_norm_epsilon = {epsilon!r} is not a number between 0 and 1"
    if options.get("multi_query_attention"):
        yield "multi-query attention is not supported"


def _config_and_weights(
    variables: Variables, options: Mapping[str, Any], vocabularies: FileVocabularies
) -> tuple[ModelConfig, dict[str, Array]]:
    """Return the configuration and the weights by our names. Raises CheckpointError."""
    settings = {"epsilon": options.get("layer_norm_epsilon"), "window": LONGEST_TARGET_TOKENS}
    encoder, decoder = (read_side(variables, side, settings) for side in SIDES)
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
    shortest = min([MAX_POSITIONS, *(table.shape[0] for table in tables_of_positions)])
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
        max_target=LONGEST_TARGET_TOKENS if decoder.stack.relative_positions else shortest,
        bos=None,
        pad=vocabularies.pad,
        eos=vocabularies.eos,
        unk=vocabularies.unk,
        quantization="rows" if any(isinstance(w, QuantizedWeight) for w in weights.values()) else "none",
    )
    return config, weights


@dataclass(frozen=True, slots=True)
class Tables:
    """Embeddings and output projection. `scale` scales embeddings by the square root of their width."""

    weights: dict[str, Array]
    share_embeddings: bool
    share_output: bool
    scale: bool


def _tables(
    variables: Variables, encoder: ReadSide, decoder: ReadSide, vocabularies: FileVocabularies
) -> Tables:
    """Return the tables, shared if the file shares them and both uses have the same scale and order."""
    names = encoder.table, decoder.table, "decoder/projection/weight"
    factor = variables.number("decoder/scale_outputs", 1.0)
    sides = encoder, decoder
    roots = [side.scale == side.stack.embed_dim**0.5 for side in sides]
    same_scale = all(roots) or all(side.scale == 1 for side in sides)
    joint = same_scale and vocabularies.shared and variables.same(*names[:2])
    tied = same_scale and factor == 1 and variables.same(*names[1:])
    source, target = (scale_weight(side.embedding, 1.0 if same_scale else side.scale) for side in sides)
    weights = {"encoder.embed_tokens.weight": _reorder_rows(source, vocabularies, 0)}
    if not joint:
        weights["decoder.embed_tokens.weight"] = _reorder_rows(target, vocabularies, 1)
    output = variables.weight("decoder/projection/weight")
    if not tied:
        weights["decoder.output_projection.weight"] = _reorder_rows(
            scale_weight(output, factor), vocabularies, 1
        )
    bias = "decoder/projection/bias"
    if bias in variables or len(vocabularies.target) > output.shape[0]:
        own = variables.array(bias).astype(np.float32) if bias in variables else np.zeros(output.shape[0])
        more = np.full(len(vocabularies.target) - len(own), IMPOSSIBLE)  # symbols that were added
        weights["decoder.output_bias"] = np.concatenate([own, more]).astype(np.float32)
    return Tables(weights, joint, tied, all(roots))


def _reorder_rows(weight: Array, vocabularies: FileVocabularies, side: int) -> Array:
    """Return a table with rows in the order of our vocabulary; added symbols have zeros."""
    order, rows = vocabularies.orders[side], weight.shape[0]
    if not vocabularies.fewest[side] <= rows <= vocabularies.rows[side]:
        raise CheckpointError(f"a table has {rows} rows, its vocabulary {vocabularies.fewest[side]} symbols")
    more = len(order) - rows
    if isinstance(weight, QuantizedWeight):
        values = np.concatenate([weight.values, np.zeros((more, weight.shape[1]), np.int8)])
        weight = QuantizedWeight(values, np.concatenate([weight.scale, np.ones(more, np.float32)]))
    else:
        weight = np.concatenate([weight, np.zeros((more, weight.shape[1]), np.float32)])
    return weight if order == list(range(len(order))) else rows_of(weight, order)


def _precision(variables: Variables) -> str:
    """Return the types of the matrices, for the model card."""
    kinds = {str(a.dtype) for a in variables.arrays.values() if a.ndim > 1}
    return ", ".join(sorted(kinds))
