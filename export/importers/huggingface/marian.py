"""Read Marian models in Hugging Face's layout (MarianMTModel)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.bundle.config import SIDES, ModelConfig
from engine.errors import CheckpointError
from engine.text.tokenizers.marian import END, UNKNOWN, read_vocabulary
from engine.text.tokenizers.marian import MarianSettings as TextSettings
from engine.text.tokenizers.pieces import read_processor
from export.importers.huggingface.adapters import merge_adapter
from export.importers.huggingface.bart import BART_NAMES, BART_SIZES, Variant, own_positions, stack
from export.importers.huggingface.family import (
    HF_ACTIVATIONS,
    Ids,
    share,
    token_problems,
    transformer,
)
from export.importers.huggingface.files import (
    CONFIG_FILE,
    WEIGHTS_FILES,
    ModelFolder,
    added_tokens,
    open_folder,
    read_weights,
    size_problems,
)
from export.importers.huggingface.generation import check_generation, generation
from export.importers.huggingface.text_parts import spelled_tokens
from export.importers.importing import ImportedModel, ProblemList
from export.importers.marian.model import MarianModel, to_imported_model
from export.importers.settings import MarianImport
from export.importers.weights import (
    IMPOSSIBLE,
    Tensor,
    all_half,
    rename,
    tied_embeddings,
    type_problems,
    untie,
)

SOURCE, TARGET = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
VARIANT: Final = Variant(pre_norm=False, embedding_norm=False, learned=False, first=0, paper=True)
# settings that MarianMTModel ignores
FOREIGN: Final = ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits")
TABLE_TOLERANCE: Final = 2e-3  # stored positions may have been rounded to fp16


def read(folder: Path, settings: MarianImport, problems: ProblemList) -> ImportedModel:
    """Read the model of a folder.

    folder: folder in Hugging Face's layout.
    settings: settings of the user.
    problems: receives all missing files, unsupported settings and weights that don't fit.
    """
    opened = open_folder(folder)
    problems.attempt(lambda: _check_options(folder / CONFIG_FILE, opened.config))
    problems.attempt(lambda: check_generation(opened))
    separate = bool(opened.tokenizer.get("separate_vocabs", False))
    path = problems.attempt(lambda: _weights_file(folder, settings, separate))
    problems.stop()
    assert path is not None
    text = problems.attempt(lambda: _read_text_side(opened, separate))
    tensors = problems.attempt(lambda: merge_adapter(read_weights(path), settings.adapter))
    problems.stop()
    assert text is not None
    assert tensors is not None
    return to_imported_model(_model(opened, path, tensors, text), folder, settings, problems)


@dataclass(frozen=True, slots=True)
class MarianText:
    """Settings and files of the text side, and the vocabularies (symbol to id) of source and target."""

    settings: TextSettings
    files: Mapping[str, Path]
    source: Mapping[str, int]
    target: Mapping[str, int]


def _read_text_side(opened: ModelFolder, separate: bool) -> MarianText:
    """Read the vocabularies and SentencePiece models of a folder. Raises CheckpointError."""
    folder = opened.path
    names = [SOURCE, TARGET, VOCABULARY, *([TARGET_VOCABULARY] if separate else [])]
    for name in (SOURCE, TARGET):
        read_processor(folder / name)
    source, target = (read_vocabulary(folder / name) for name in (VOCABULARY, names[-1]))
    further = {symbol: token for symbol, token in added_tokens(opened).items() if symbol not in source}
    added = spelled_tokens(opened, further, source[UNKNOWN])
    settings = TextSettings(SOURCE, TARGET, VOCABULARY, names[-1], added=added)
    return MarianText(settings, {name: folder / name for name in names}, source, target)


def _model(folder: ModelFolder, path: Path, tensors: Mapping[str, Tensor], text: MarianText) -> MarianModel:
    """Convert options and weights of a folder to ours."""
    options, rules = folder.config, folder.rules
    named, problems = rename(tensors, BART_NAMES)
    tied, bias = _expand_shared(named, options, problems), _bias(named, rules, problems)
    learned = own_positions(tied, options, TABLE_TOLERANCE)
    config = _config(
        folder.path / CONFIG_FILE,
        options,
        text.target[UNKNOWN],
        output_bias=bias is not None,
        learned=learned,
    )
    tied.pop("decoder.output_bias", None)
    if bias is not None:
        tied["decoder.output_bias"] = bias
    _check_vocabularies(folder.path, config, text.source, text.target)
    problems += untie(tied, tied_embeddings(config))
    _extend_to_padding(tied, config)
    problems += type_problems(tied)
    defaults, leftovers = _generation(rules, config, folder.generation)
    tokenizer = folder.tokenizer
    return MarianModel(
        layout="Hugging Face's layout",
        path=path,
        config=config,
        weights={name: np.asarray(weight, np.float32) for name, weight in tied.items()},
        problems=problems,
        text=text.settings,
        vocabulary={} if TARGET_VOCABULARY in text.files else text.source,
        files=dict(text.files),
        generation=defaults,
        unsupported=leftovers,
        languages=(tokenizer.get("source_lang"), tokenizer.get("target_lang")),
        half=all_half(named),
    )


def _check_options(path: Path, options: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless config.json describes a supported model of Marian."""
    kind, architectures = options.get("model_type"), options.get("architectures") or ["MarianMTModel"]
    if kind != "marian" or architectures != ["MarianMTModel"]:
        raise CheckpointError(
            f"{path}: is a model of the type {kind!r} ({architectures}), not Marian's (MarianMTModel)"
        )
    problems = [f"{name} = {options[name]!r} is not supported" for name in FOREIGN if options.get(name)]
    problems += size_problems(options, BART_SIZES)
    if options.get("activation_function") not in HF_ACTIVATIONS:
        names = ", ".join(HF_ACTIVATIONS)
        problems.append(f"activation_function {options.get('activation_function')!r} is none of {names}")
    problems += token_problems(options)
    if options.get("static_position_embeddings", True) is not True:
        problems.append("static_position_embeddings = False is not supported")
    if problems:
        raise CheckpointError(f"{path}: can't be imported: " + "; ".join(problems))


def _weights_file(folder: Path, settings: MarianImport, separate: bool) -> Path:
    """Return the file of the weights. Raises CheckpointError with all files that the folder lacks."""
    text_names = [SOURCE, TARGET, VOCABULARY, *([TARGET_VOCABULARY] if separate else [])]
    lacking = [name for name in text_names if not (folder / name).is_file()]
    names = [settings.checkpoint] if settings.checkpoint else WEIGHTS_FILES
    candidates = [name for name in names if (folder / name).is_file()]
    if not candidates:
        lacking.append(" or ".join(names))
    if lacking:
        raise CheckpointError(f"{folder}: lacks {', '.join(lacking)}; download the whole folder")
    return folder / candidates[0]


def _config(
    path: Path, options: Mapping[str, Any], unk: int, *, output_bias: bool, learned: Mapping[str, bool]
) -> ModelConfig:
    """Return the configuration; `learned` states for each side whether positions are learned."""
    shared, pad = bool(options.get("share_encoder_decoder_embeddings", True)), options["pad_token_id"]
    start = options.get("decoder_start_token_id")

    def fields() -> dict[str, Any]:
        target_vocab = options.get("decoder_vocab_size") or options["vocab_size"]
        variants = {side: replace(VARIANT, learned=learned[side]) for side in SIDES}
        return {
            "source_vocab": max(options["vocab_size"], pad + 1),
            "target_vocab": options["vocab_size"] if shared else target_vocab,
            "encoder": stack(options, "encoder", variants["encoder"]),
            "decoder": stack(options, "decoder", variants["decoder"]),
            "share_embeddings": shared,
            "output_bias": output_bias,
            "scale_embeddings": bool(options.get("scale_embedding", False)),
            "first_position": VARIANT.first,
            "paper_sinusoids": VARIANT.paper,
        }

    ids = Ids(pad if start is None else start, unk)
    return transformer(path, options, ids, options["max_position_embeddings"], fields)


def _expand_shared(
    tensors: Mapping[str, Tensor], options: Mapping[str, Any], problems: list[str]
) -> dict[str, Tensor]:
    """Return the weights with `shared.weight` replaced by the embeddings of both sides."""
    weights = dict(tensors)
    if "shared.weight" in weights:
        if not options.get("share_encoder_decoder_embeddings", True):
            problems.append("shared.weight is there, although share_encoder_decoder_embeddings is false")
        share(weights, problems)
    return weights


def _bias(tensors: dict[str, Tensor], rules: Mapping[str, Any], problems: list[str]) -> Tensor | None:
    """Return the bias of the logits, in which banned tokens are impossible; None if it has no effect.

    The bias bans padding only with `renormalize_logits`: then the other tokens share its probability.
    Otherwise the search bans padding, like `transformers`.
    """
    size = int(rules.get("decoder_vocab_size") or rules["vocab_size"])
    stored = tensors.get("decoder.output_bias")
    bias = np.zeros(size, np.float32) if stored is None else stored.reshape(-1).astype(np.float32)
    renormalized = bool(rules.get("renormalize_logits", False))
    for token in _banned_tokens(rules):
        if not 0 <= token < size:
            problems.append(f"bad_words_ids names {token}, which is not a token")
        elif token < len(bias) and (token != rules["pad_token_id"] or renormalized):
            bias[token] = IMPOSSIBLE
    return bias if bool(bias.any()) or len(bias) != size else None


def _banned_tokens(rules: Mapping[str, Any]) -> list[int]:
    """Return the banned words of one token."""
    words = rules.get("bad_words_ids") or []
    return [w[0] for w in words if isinstance(w, list) and len(w) == 1 and type(w[0]) is int]


def _extend_to_padding(tensors: dict[str, Tensor], config: ModelConfig) -> None:
    """Extend the source's table to the id of padding if it ends before; no source uses the added rows."""
    name = "encoder.embed_tokens.weight"
    table = tensors.get(name)
    if table is not None and table.ndim == 2 and not config.share_embeddings:
        rows = config.source_vocab - table.shape[0]
        if rows == config.pad + 1 - table.shape[0] > 0:
            tensors[name] = np.concatenate([table, np.zeros((rows, table.shape[1]), table.dtype)])


def _check_vocabularies(
    folder: Path, config: ModelConfig, source: Mapping[str, int], target: Mapping[str, int]
) -> None:
    """Raise CheckpointError unless both vocabularies fit the model."""
    for name, ids, size in (("source", source, config.source_vocab), ("target", target, config.target_vocab)):
        if max(ids.values()) >= size:
            raise CheckpointError(
                f"{folder}: the {name} vocabulary has the id {max(ids.values())}, the model only {size} "
                "tokens; the folder mixes two models"
            )
        if ids[END] != config.eos:
            raise CheckpointError(
                f"{folder}: {END} is {ids[END]} in the {name} vocabulary, but eos_token_id is {config.eos}"
            )
    if source[UNKNOWN] != target[UNKNOWN]:
        raise CheckpointError(f"{folder}: {UNKNOWN} has different ids in the two vocabularies")


def _generation(
    rules: Mapping[str, Any], config: ModelConfig, own: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the decoding defaults, and the settings that have no counterpart."""
    options, others = generation({**rules, "bad_words_ids": None}, config.max_target - 1, own)
    leftovers = [*others]
    words = rules.get("bad_words_ids") or []
    if len(_banned_tokens(rules)) < len(words):
        leftovers.append("bad_words_ids of several tokens")
    if rules.get("forced_bos_token_id") is not None:
        leftovers.append(f"forced_bos_token_id = {rules['forced_bos_token_id']!r}")
    return options, tuple(leftovers)
