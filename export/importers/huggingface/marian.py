"""Marian models in the layout of Hugging Face, as `transformers` computes them (MarianMTModel)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.bundle.tables import sinusoids
from engine.errors import CheckpointError
from engine.text.marian import END, UNKNOWN, read_vocabulary
from engine.text.marian import Settings as TextSettings
from engine.text.pieces import read_processor
from export.importers.hf_bart import NAMES, SIZES, Variant, stack
from export.importers.hf_files import CONFIG, WEIGHTS, open_folder, read_weights, size_problems
from export.importers.hf_model import ACTIVATIONS, SIDES, generation, share, token_problems, transformer
from export.importers.imported import IMPOSSIBLE
from export.importers.maps import rename, tied_embeddings
from export.importers.marian_model import MarianModel, Settings

SOURCE, TARGET = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
VARIANT: Final = Variant(pre_norm=False, embedding_norm=False, learned=False, first=0, paper=True)
# what MarianMTModel does not compute, whatever a file says
FOREIGN: Final = ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits")
TABLE_TOLERANCE: Final = 2e-3  # of a stored table of positions, which may have been rounded to fp16


def read(folder: Path, settings: Settings) -> MarianModel:
    """Read the model of a folder.

    Raises CheckpointError that names all missing files, or all wrong options.
    """
    opened = open_folder(folder)
    options, rules, tokenizer = opened.config, opened.rules, opened.tokenizer
    _check_kind(folder / CONFIG, options)
    separate = bool(tokenizer.get("separate_vocabs", False))
    path = _weights_file(folder, settings, separate)
    texts = TextSettings(SOURCE, TARGET, VOCABULARY, TARGET_VOCABULARY if separate else VOCABULARY)
    files = {name: folder / name for name in (SOURCE, TARGET, VOCABULARY)}
    if separate:
        files[TARGET_VOCABULARY] = folder / TARGET_VOCABULARY
    for name in (SOURCE, TARGET):
        read_processor(folder / name)
    vocabulary = read_vocabulary(folder / VOCABULARY)
    written = read_vocabulary(folder / str(texts.target_vocabulary))
    tensors, problems = rename(read_weights(path), NAMES)
    tied, bias = _expand_shared(tensors, options, problems), _bias(tensors, rules, problems)
    learned = _positions(tensors, options)
    config = _config(
        folder / CONFIG, options, written[UNKNOWN], output_bias=bias is not None, learned=learned
    )
    tied.pop("decoder.output_bias", None)
    if bias is not None:
        tied["decoder.output_bias"] = bias
    _check_vocabularies(folder, config, vocabulary, written)
    for copy, original in tied_embeddings(config):
        if copy in tied and original in tied and not torch.equal(tied[copy], tied[original]):
            problems.append(f"{copy} differs from {original}, although the options say they are shared")
        if original in tied:
            tied.pop(copy, None)
    _lengthen(tied, config)
    problems += [f"{n} holds {w.dtype}, no floats" for n, w in tied.items() if not w.is_floating_point()]
    defaults, leftovers = _generation(rules, config)
    return MarianModel(
        layout="Hugging Face's layout",
        path=path,
        config=config,
        weights={name: weight.to(torch.float32).numpy() for name, weight in tied.items()},
        problems=problems,
        text=texts,
        vocabulary={} if separate else vocabulary,
        files=dict(files),
        generation=defaults,
        left=leftovers,
        spoken=(tokenizer.get("source_lang"), tokenizer.get("target_lang")),
        half=all(w.dtype == torch.float16 for w in tensors.values() if w.is_floating_point()),
    )


def _check_kind(path: Path, options: Mapping[str, Any]) -> None:
    kind, built = options.get("model_type"), options.get("architectures") or ["MarianMTModel"]
    if kind != "marian" or built != ["MarianMTModel"]:
        raise CheckpointError(
            f"{path}: is a model of the type {kind!r} ({built}); this reads Marian's (MarianMTModel) only"
        )
    problems = [f"{name} = {options[name]!r} is not supported" for name in FOREIGN if options.get(name)]
    problems += size_problems(options, SIZES)
    if options.get("activation_function") not in ACTIVATIONS:
        names = ", ".join(ACTIVATIONS)
        problems.append(f"activation_function {options.get('activation_function')!r} is none of {names}")
    problems += token_problems(options)
    if options.get("static_position_embeddings", True) is not True:
        problems.append("static_position_embeddings = False is not supported")
    if problems:
        raise CheckpointError(f"{path}: can't be imported: " + "; ".join(problems))


def _weights_file(folder: Path, settings: Settings, separate: bool) -> Path:
    """The file of the weights, and one error for all that the folder lacks."""
    text_names = [SOURCE, TARGET, VOCABULARY, *([TARGET_VOCABULARY] if separate else [])]
    lacking = [name for name in text_names if not (folder / name).is_file()]
    names = [settings.weights] if settings.weights else WEIGHTS
    candidates = [name for name in names if (folder / name).is_file()]
    if not candidates:
        lacking.append(" or ".join(names))
    if lacking:
        raise CheckpointError(f"{folder}: lacks {', '.join(lacking)}; download the whole folder")
    return folder / candidates[0]


def _config(
    path: Path, options: Mapping[str, Any], unk: int, *, output_bias: bool, learned: Mapping[str, bool]
) -> ModelConfig:
    shared, pad = bool(options.get("share_encoder_decoder_embeddings", True)), options["pad_token_id"]
    start = options.get("decoder_start_token_id")

    def own() -> dict[str, Any]:
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
            "start": pad if start is None else start,
            "max_source": options["max_position_embeddings"],
            "max_target": options["max_position_embeddings"],
            "unk": unk,
        }

    return transformer(path, options, own)


def _expand_shared(
    tensors: Mapping[str, Tensor], options: Mapping[str, Any], problems: list[str]
) -> dict[str, Tensor]:
    """The weights with `shared.weight` in the place of the two tables that it stands for."""
    weights = dict(tensors)
    if "shared.weight" in weights:
        if not options.get("share_encoder_decoder_embeddings", True):
            problems.append("shared.weight is there, although share_encoder_decoder_embeddings is false")
        share(weights, problems)
    return weights


def _bias(tensors: dict[str, Tensor], rules: Mapping[str, Any], problems: list[str]) -> Tensor | None:
    """The bias of the logits with what makes banned tokens impossible; None where it would do nothing.

    With `renormalize_logits` the other tokens share the probability of a banned one, and it counts as never
    there; without, ours bans the padding just as `transformers` does.
    """
    size = int(rules.get("decoder_vocab_size") or rules["vocab_size"])
    stored = tensors.get("decoder.output_bias")
    bias = torch.zeros(size) if stored is None else stored.float().reshape(-1).clone()
    renormalized = bool(rules.get("renormalize_logits", False))
    for token in _banned_tokens(rules):
        if not 0 <= token < size:
            problems.append(f"bad_words_ids names {token}, which is no token")
        elif token < len(bias) and (token != rules["pad_token_id"] or renormalized):
            bias[token] = IMPOSSIBLE
    return bias if bool(bias.any()) or len(bias) != size else None


def _banned_tokens(rules: Mapping[str, Any]) -> list[int]:
    """Banned single tokens."""
    words = rules.get("bad_words_ids") or []
    return [w[0] for w in words if isinstance(w, list) and len(w) == 1 and type(w[0]) is int]


def _positions(tensors: dict[str, Tensor], options: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each side's table of positions is another than the usual, which is left out of the weights."""
    learned = {}
    for side in SIDES:
        name = f"{side}.embed_positions.weight"
        stored = tensors.get(name)
        usual = torch.from_numpy(
            sinusoids(options["max_position_embeddings"], options["d_model"], None, True)
        )
        same = stored is None or (
            stored.shape == usual.shape and torch.allclose(stored.float(), usual, atol=TABLE_TOLERANCE)
        )
        learned[side] = not same
    return learned


def _lengthen(tensors: dict[str, Tensor], config: ModelConfig) -> None:
    """Rows for the padding's id where the source's own table ends before it; no source holds them."""
    name = "encoder.embed_tokens.weight"
    table = tensors.get(name)
    for side, part in (("encoder", config.encoder), ("decoder", config.decoder)):
        assert isinstance(part, StackConfig)
        if not part.learned_positions:
            tensors.pop(f"{side}.embed_positions.weight", None)
    if table is not None and table.dim() == 2 and not config.share_embeddings:
        rows = config.source_vocab - table.shape[0]
        if rows == config.pad + 1 - table.shape[0] > 0:
            tensors[name] = torch.cat([table, table.new_zeros(rows, table.shape[1])])


def _check_vocabularies(
    folder: Path, config: ModelConfig, source: Mapping[str, int], target: Mapping[str, int]
) -> None:
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


def _generation(rules: Mapping[str, Any], config: ModelConfig) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The decoding defaults, and the settings that have no counterpart. Lengths of `transformers` count the
    first token and end-of-sentence; ours count neither."""
    options, others = generation({**rules, "bad_words_ids": None}, config.max_target - 1)
    leftovers = [*others]
    words = rules.get("bad_words_ids") or []
    if len(_banned_tokens(rules)) < len(words):
        leftovers.append("bad_words_ids of several tokens")
    if rules.get("forced_bos_token_id") is not None:
        leftovers.append(f"forced_bos_token_id = {rules['forced_bos_token_id']!r}")
    return options, tuple(leftovers)
