"""Read models in Marian's own layout, by Marian's transformer.h (marian-dev 1.9 to 1.12)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.bundle.config import SIDES, ModelConfig
from engine.bundle.stacks import StackConfig
from engine.errors import CheckpointError, ConfigError
from engine.text.tokenizers.marian import END, UNKNOWN
from engine.text.tokenizers.marian import MarianSettings as TextSettings
from engine.text.tokenizers.pieces import load_processor, read_processor
from export.importers.importing import ImportedModel, ProblemList
from export.importers.marian.compressed import contents, plain_name
from export.importers.marian.files import Arrays, options_of, parse_yaml, read_arrays, read_symbols
from export.importers.marian.model import MarianModel, to_imported_model
from export.importers.marian.options import (
    DECODERS,
    MARIAN_ACTIVATIONS,
    MARIAN_ARCHITECTURES,
    SELF,
    check_options,
    norm_order,
)
from export.importers.marian.weights import convert_weights, quantization_of
from export.importers.settings import MarianImport
from export.importers.weights import IMPOSSIBLE

DECODER: Final = "decoder.yml"
MAX_SINUSOID_POSITIONS: Final = 512  # Marian's sinusoidal positions have no limit
NORM_EPS: Final = 1e-6
VOCABULARY_SUFFIXES: Final = (".yml", ".yaml", ".json", ".spm")


def models(folder: Path) -> list[Path]:
    """Return the files that may hold a model."""
    return sorted([*folder.glob("*.npz"), *folder.glob("*.bin")])


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a model and of its source and target vocabulary, and settings of the search."""

    model: Path
    vocabularies: tuple[Path, Path]
    decoding: Mapping[str, Any]


def read(folder: Path, settings: MarianImport, problems: ProblemList) -> ImportedModel:
    """Read the model of a folder in Marian's own layout.

    folder: folder of model, vocabularies and optionally decoder.yml.
    settings: settings of the user.
    problems: receives the problems of the weights.

    Raises CheckpointError that names all unsupported options, or a missing or damaged file.
    """
    if not models(folder):
        raise CheckpointError(
            f"{folder}: holds neither config.json (Hugging Face) nor *.npz or *.bin (Marian's own); name the "
            "folder with the model's files"
        )
    decoding = _read_decoding(folder)
    paths = problems.attempt(lambda: _model_file(folder, settings, decoding))
    vocabularies = problems.attempt(lambda: _vocabulary_files(folder, decoding))
    problems.stop()
    # for mypy: `problems.stop` has raised if one is missing
    assert paths is not None
    assert vocabularies is not None
    return to_imported_model(read_files(Files(paths, vocabularies, decoding)), folder, settings, problems)


def read_files(from_files: Files, *, alphas: bool = True) -> MarianModel:
    """Read a model; with `alphas` int8 weights keep the file's scales of activations.

    Raises CheckpointError that names all unsupported options, or a damaged file.
    """
    path, decoding = from_files.model, from_files.decoding
    arrays = read_arrays(path)
    options = options_of(path, arrays)
    check_options(path, options)
    _check_tables(path, options, arrays)
    text, files, sides, specials = _read_vocabularies(from_files.vocabularies)
    config = _config(path, options, arrays, specials, quantization_of(arrays, alphas=alphas))
    for name, ids, size in zip(("source", "target"), sides, options["dim-vocabs"], strict=True):
        if max(ids.values()) >= size:
            raise CheckpointError(
                f"{path}: the {name} vocabulary has the id {max(ids.values())}, the model only {size} tokens"
            )
    weights = convert_weights(
        arrays, config, target_vocab=options["dim-vocabs"][1], biased=not options.get("output-omit-bias")
    )
    weights.problems += [f"{name} is not part of the model" for name in weights.unused_names()]
    generation, leftovers = _generation({**options, **decoding}, config)
    return MarianModel(
        layout="Marian's own layout",
        path=path,
        config=config,
        weights=weights.arrays,
        problems=weights.problems,
        text=text,
        vocabulary=sides[0],
        target_vocabulary=sides[1],
        files=files,
        generation=generation,
        unsupported=leftovers,
        languages=(None, None),
        half=all(
            getattr(a, "dtype", None) == np.float16 for name, a in arrays.items() if name in weights.used
        ),
    )


def _read_decoding(folder: Path) -> dict[str, Any]:
    path = folder / DECODER
    return parse_yaml(path, path.read_bytes()) if path.is_file() else {}


def _model_file(folder: Path, settings: MarianImport, decoding: Mapping[str, Any]) -> Path:
    """Return the chosen model file, the one that decoder.yml names, or the only one."""
    named = [settings.checkpoint] if settings.checkpoint else _names(decoding, "models")
    for name in named[:1]:  # runs once, or not at all without names
        if len(named) > 1:
            raise CheckpointError(f"{folder}: {DECODER} names several models {named}: choose by --checkpoint")
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder}: there is no {name}, which holds the weights")
        return folder / name
    paths = models(folder)
    if len(paths) > 1:
        names = [path.name for path in paths]
        raise CheckpointError(f"{folder}: holds several models {names}; name one with --checkpoint")
    return paths[0]


def _names(values: Mapping[str, Any], key: str) -> list[str]:
    """Return the file names of a list of paths, which may belong to another machine."""
    listed = values.get(key) or []
    return [Path(str(name)).name for name in listed] if isinstance(listed, list) else []


def _check_tables(path: Path, options: Mapping[str, Any], arrays: Arrays) -> None:
    """Raise CheckpointError unless the embeddings have as many rows as the options say."""
    tables = [["Wemb", f"{side}_Wemb"] for side in SIDES]
    for names, size in zip(tables, options["dim-vocabs"], strict=True):
        rows = {arrays[name].shape[0] for name in names if name in arrays and len(arrays[name].shape) == 2}
        if rows != {size}:
            raise CheckpointError(f"{path}: its options say {size:,} tokens, {' or '.join(names)} does not")


def _vocabulary_files(folder: Path, decoding: Mapping[str, Any]) -> tuple[Path, Path]:
    """Return both vocabularies: named by decoder.yml, or the only one of the folder."""
    named = _names(decoding, "vocabs")
    if named:
        paths = (folder / named[0], folder / named[-1])
    else:
        candidates = sorted(
            p
            for p in folder.iterdir()
            if p.suffix in VOCABULARY_SUFFIXES and "vocab" in p.name and p.is_file()
        )
        if len(candidates) != 1:
            names = [p.name for p in candidates]
            raise CheckpointError(
                f"{folder}: which vocabularies? {DECODER} names none, the folder holds {names}"
            )
        paths = (candidates[0], candidates[0])
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"{folder}: there is no vocabulary {path.name}")
        if path.suffix not in VOCABULARY_SUFFIXES:
            raise CheckpointError(
                f"{path}: vocabularies of {', '.join(VOCABULARY_SUFFIXES)} are read, not this"
            )
    return paths


def _read_vocabularies(
    paths: tuple[Path, Path],
) -> tuple[TextSettings, dict[str, bytes | Path], list[dict[str, int]], tuple[int, int]]:
    """Return text settings, files, symbols of both sides, and the ids of end-of-sentence and unknown."""
    files: dict[str, bytes | Path] = {}
    file_names: dict[str, str | None] = {}
    sides, specials = [], []
    for side, path in zip(("source", "target"), paths, strict=True):
        folder = path.parent
        if plain_name(path).endswith(".spm"):
            data = contents(path)
            processor = load_processor(data, path)
            symbols = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
            model: str | None = f"{side}.spm"
            vocabulary: str | None = None
            files[f"{side}.spm"] = data
            special = processor.eos_id(), processor.unk_id()
        else:
            symbols = read_symbols(path)
            if END not in symbols or UNKNOWN not in symbols:
                raise CheckpointError(
                    f"{path}: lacks {END} or {UNKNOWN}, so it is not a vocabulary of Marian"
                )
            special, vocabulary = (symbols[END], symbols[UNKNOWN]), f"vocab.{side}.json"
            files[str(vocabulary)] = json.dumps(symbols, ensure_ascii=False, indent=0).encode()
            pieces = folder / f"{side}.spm"
            model = pieces.name if pieces.is_file() else None
            if model:
                read_processor(pieces)
                files[model] = pieces
        file_names |= {f"{side}_model": model, f"{side}_vocabulary": vocabulary}
        sides.append(symbols)
        specials.append(special)
    if specials[0] != specials[1]:
        raise CheckpointError(f"{folder}: {END} and {UNKNOWN} have different ids in the two vocabularies")
    text = TextSettings(
        source_model=file_names["source_model"],
        target_model=file_names["target_model"],
        source_vocabulary=file_names["source_vocabulary"],
        target_vocabulary=file_names["target_vocabulary"],
    )
    return text, files, sides, specials[0]


def _config(
    path: Path, options: Mapping[str, Any], arrays: Arrays, specials: tuple[int, int], quantization: str
) -> ModelConfig:
    """Return the configuration; `specials` are the ids of end-of-sentence and of unknown words."""
    eos, unk = specials
    autoreg = options.get("transformer-decoder-autoreg", SELF)
    all_tied = bool(options.get("tied-embeddings-all", False))
    learned = "Wpos" in arrays
    pad = max(options["dim-vocabs"])  # Marian has no padding symbol: take an unused id
    positions = MAX_SINUSOID_POSITIONS
    if learned and len(arrays["Wpos"].shape) == 2:
        positions = arrays["Wpos"].shape[0]
    stacks = [_stack(options, side, learned, DECODERS[autoreg]) for side in SIDES]
    try:
        return ModelConfig(
            architecture=MARIAN_ARCHITECTURES[autoreg],
            source_vocab=pad + 1,
            target_vocab=pad + 1,
            encoder=stacks[0],
            decoder=stacks[1],
            share_embeddings=all_tied or bool(options.get("tied-embeddings-src", False)),
            share_output=all_tied or bool(options.get("tied-embeddings", False)),
            output_bias=True,
            scale_embeddings=not learned,
            first_position=0,
            zero_start=True,
            max_source=positions,
            max_target=positions,
            bos=None,
            pad=pad,
            eos=eos,
            unk=unk,
            quantization=quantization,
        )
    except ConfigError as error:
        raise CheckpointError(f"{path}: can't be imported: {error}") from error


def _stack(options: Mapping[str, Any], side: str, learned: bool, mixer: str) -> StackConfig:
    """Return the configuration of a side; `mixer` is the decoder's, the encoder has attention."""
    dim, decoder = options["dim-emb"], side == "decoder"
    averaged: dict[str, Any] = {}
    if mixer == "average" and decoder:
        width, depth = options.get("transformer-dim-aan", 2048), options.get("transformer-aan-depth", 2)
        averaged = {
            "average_ffn": width if depth > 1 else 0,
            "average_depth": max(1, depth - 1),
            "average_projection": width != dim,
            "average_activation": MARIAN_ACTIVATIONS[options.get("transformer-aan-activation", "swish")],
            "gate": "none" if options.get("transformer-aan-nogate", False) else "separate",
        }
    return StackConfig(
        embed_dim=dim,
        conv_dim=dim,
        ffn_dim=(decoder and options.get("transformer-decoder-dim-ffn")) or options["transformer-dim-ffn"],
        heads=options["transformer-heads"],
        kernel_sizes=(0,) * options["dec-depth" if decoder else "enc-depth"],
        mixer=mixer if decoder else "attention",
        glu=False,
        normalize_before=norm_order(options)[0] == "n",
        learned_positions=learned,
        activation=MARIAN_ACTIVATIONS[options.get("transformer-ffn-activation", "swish")],
        norm_eps=NORM_EPS,
        embedding_norm="n" in str(options.get("transformer-postprocess-emb", "d")),
        **averaged,
        **(_alignment_fields(options) if decoder else {}),
    )


def _alignment_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the alignment: one head of a layer; Marian counts layers from 1."""
    layer = str(options.get("transformer-guided-alignment-layer", "last"))
    return {"alignment_heads": 1, "alignment_layer": int(layer) - 1 if layer.isdecimal() else None}


def _generation(rules: Mapping[str, Any], config: ModelConfig) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the decoding defaults, of decoder.yml or Marian's own, and settings without counterpart."""
    alpha = _number(rules, "normalize", 0.0)
    settings = {
        "beam_rule": "marian",
        "beam_size": max(1, int(_number(rules, "beam-size", 12))),
        "normalize_scores": bool(alpha),
        "length_penalty": alpha,
        "word_reward": -_number(rules, "word-penalty", 0.0) or 0.0,  # 0.0, not -0.0
        "max_length_a": _number(rules, "max-length-factor", 3.0),
        "max_length_b": 0,
        "min_length": 0,
        "unk_penalty": 0.0 if rules.get("allow-unk", False) else -IMPOSSIBLE,
    }
    leftovers = [f"{n} = {rules[n]!r}" for n in ("n-best", "output-sampling", "shortlist") if rules.get(n)]
    return settings, tuple(leftovers)


def _number(rules: Mapping[str, Any], name: str, usual: float) -> float:
    """Return a setting that is a number, otherwise `usual`."""
    value = rules.get(name, usual)
    return float(value) if type(value) in (int, float, bool) else usual
