"""Marian models in the layout of Hugging Face, as `transformers` computes them (MarianMTModel)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from engine.config import ModelConfig
from engine.errors import CheckpointError, ConfigError
from engine.stacks import StackConfig
from engine.tables import sinusoids
from engine.text.marian import END, UNKNOWN, read_processor, read_vocabulary
from engine.text.marian import Settings as TextSettings
from export.checkpoint import read_state
from export.maps import DEEPEST, LARGEST, Names, rename, tied_embeddings
from export.marian import IMPOSSIBLE, Found, Settings, read_json

CONFIG: Final = "config.json"
GENERATION: Final = "generation_config.json"
TOKENIZER: Final = "tokenizer_config.json"
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
SOURCE, TARGET = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
ACTIVATIONS: Final = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
SIDES: Final = ("encoder", "decoder")
SIZES: Final = (
    "d_model",
    "vocab_size",
    "max_position_embeddings",
    *(f"{side}_{size}" for side in SIDES for size in ("layers", "attention_heads", "ffn_dim")),
)
# what MarianMTModel does not compute, whatever a file says
FOREIGN: Final = ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits")
# settings of generation with their harmless values; others than these and those below are not of the search
LEFT: Final[dict[str, tuple[Any, ...]]] = {
    "do_sample": (None, False),
    "num_beam_groups": (None, 1),
    "repetition_penalty": (None, 1, 1.0),
    "encoder_no_repeat_ngram_size": (None, 0),
}
TABLE_TOLERANCE: Final = 2e-3  # of a stored table of positions, which may have been rounded to fp16
ENCODER, DECODER = r"^(encoder\.layers\.\d+\.)", r"^(decoder\.layers\.\d+\.)"
NAMES: Final = Names(
    renamed=(
        (re.compile(r"^model\."), ""),
        (re.compile(ENCODER + r"self_attn_layer_norm\."), r"\1layer_norm1."),
        (re.compile(ENCODER + r"final_layer_norm\."), r"\1layer_norm2."),
        (re.compile(DECODER + r"self_attn_layer_norm\."), r"\1conv_layer_norm."),
        (re.compile(r"^lm_head\.weight$"), "decoder.output_projection.weight"),
        (re.compile(r"^final_logits_bias$"), "decoder.output_bias"),
    ),
    dropped=re.compile(r"(?!)"),
)


def read(folder: Path, chosen: Settings) -> Found:
    """The model of a folder. Raises CheckpointError that names all missing files, or all wrong options."""
    given = read_json(folder / CONFIG)
    _check_kind(folder / CONFIG, given)
    tokenizer = read_json(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else {}
    separate = bool(tokenizer.get("separate_vocabs", False))
    path = _weights_file(folder, chosen, separate)
    texts = TextSettings(SOURCE, TARGET, VOCABULARY, TARGET_VOCABULARY if separate else VOCABULARY)
    files = {name: folder / name for name in (SOURCE, TARGET, VOCABULARY)}
    if separate:
        files[TARGET_VOCABULARY] = folder / TARGET_VOCABULARY
    for name in (SOURCE, TARGET):
        read_processor(folder / name)
    vocabulary = read_vocabulary(folder / VOCABULARY)
    written = read_vocabulary(folder / str(texts.target_vocabulary))
    rules = _rules(folder, given)
    tensors, problems = rename(read_weights(path), NAMES)
    tied, bias = _untied(tensors, given, problems), _bias(tensors, rules, problems)
    learned = _positions(tensors, given)
    config = _config(folder / CONFIG, given, written[UNKNOWN], output_bias=bias is not None, learned=learned)
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
    generation, left = _generation(rules, config)
    return Found(
        layout="Hugging Face's layout",
        path=path,
        config=config,
        tensors=tied,
        problems=problems,
        text=texts,
        vocabulary={} if separate else vocabulary,
        files=dict(files),
        generation=generation,
        left=left,
        spoken=(tokenizer.get("source_lang"), tokenizer.get("target_lang")),
        half=all(w.dtype == torch.float16 for w in tensors.values() if w.is_floating_point()),
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file or a pickle (`export.checkpoint`). Raises CheckpointError naming it."""
    if path.suffix != ".safetensors":
        return read_state(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: not a readable safetensors file, damaged or incomplete ({error}); download it again"
        ) from error


def _check_kind(path: Path, given: Mapping[str, Any]) -> None:
    kind, built = given.get("model_type"), given.get("architectures") or ["MarianMTModel"]
    if kind != "marian" or built != ["MarianMTModel"]:
        raise CheckpointError(
            f"{path}: is a model of the type {kind!r} ({built}); this reads Marian's (MarianMTModel) only"
        )
    problems = [f"{name} = {given[name]!r} is not supported" for name in FOREIGN if given.get(name)]
    problems += [f"{name} = {given.get(name)!r} is no size" for name in SIZES if not _size(name, given)]
    if given.get("activation_function") not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        problems.append(f"activation_function {given.get('activation_function')!r} is none of {known}")
    for name in ("pad_token_id", "eos_token_id"):
        if type(given.get(name)) is not int:
            problems.append(f"{name} = {given.get(name)!r} is no token")
    if given.get("static_position_embeddings", True) is not True:
        problems.append("static_position_embeddings = False is not supported")
    if problems:
        raise CheckpointError(f"{path}: can't be imported: " + "; ".join(problems))


def _size(name: str, given: Mapping[str, Any]) -> bool:
    value, most = given.get(name), DEEPEST if name.endswith("_layers") else LARGEST
    return type(value) is int and 0 < value <= (most if name != "vocab_size" else 1 << 24)


def _weights_file(folder: Path, chosen: Settings, separate: bool) -> Path:
    """The file of the weights, and one error for all that the folder lacks."""
    wanted = [SOURCE, TARGET, VOCABULARY, *([TARGET_VOCABULARY] if separate else [])]
    lacking = [name for name in wanted if not (folder / name).is_file()]
    names = [chosen.weights] if chosen.weights else [SAFE, PICKLED]
    found = [name for name in names if (folder / name).is_file()]
    if not found:
        lacking.append(" or ".join(names))
    if lacking:
        raise CheckpointError(f"{folder}: lacks {', '.join(lacking)}; download the whole folder")
    return folder / found[0]


def _rules(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of generation; older models keep them in config.json."""
    own = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    return {**given, **{name: value for name, value in own.items() if value is not None}}


def _config(
    path: Path, given: Mapping[str, Any], unk: int, *, output_bias: bool, learned: Mapping[str, bool]
) -> ModelConfig:
    shared, pad = bool(given.get("share_encoder_decoder_embeddings", True)), given["pad_token_id"]
    start = given.get("decoder_start_token_id")
    start = pad if start is None else start
    target_vocab = given.get("decoder_vocab_size") or given["vocab_size"]
    try:
        return ModelConfig(
            architecture="transformer",
            source_vocab=max(given["vocab_size"], pad + 1),
            target_vocab=given["vocab_size"] if shared else target_vocab,
            encoder=_stack(given, "encoder", learned["encoder"]),
            decoder=_stack(given, "decoder", learned["decoder"]),
            share_embeddings=shared,
            share_output=bool(given.get("tie_word_embeddings", True)),
            output_bias=output_bias,
            scale_embeddings=bool(given.get("scale_embedding", False)),
            first_position=0,
            paper_sinusoids=True,
            start=None if start == given["eos_token_id"] else start,
            max_source=given["max_position_embeddings"],
            max_target=given["max_position_embeddings"],
            bos=None,
            pad=pad,
            eos=given["eos_token_id"],
            unk=unk,
        )
    except (ConfigError, TypeError) as error:
        raise CheckpointError(f"{path}: can't be imported: {error}") from error


def _stack(given: Mapping[str, Any], side: str, learned: bool) -> StackConfig:
    return StackConfig(
        embed_dim=given["d_model"],
        conv_dim=given["d_model"],
        ffn_dim=given[f"{side}_ffn_dim"],
        heads=given[f"{side}_attention_heads"],
        kernel_sizes=(0,) * given[f"{side}_layers"],
        mixer="attention",
        glu=False,
        learned_positions=learned,
        activation=ACTIVATIONS[given["activation_function"]],
    )


def _untied(
    tensors: Mapping[str, Tensor], given: Mapping[str, Any], problems: list[str]
) -> dict[str, Tensor]:
    """The weights with `shared.weight` in the place of the two tables that it stands for."""
    found = dict(tensors)
    shared = found.pop("shared.weight", None)
    if shared is None:
        return found
    if not given.get("share_encoder_decoder_embeddings", True):
        problems.append("shared.weight is there, although share_encoder_decoder_embeddings is false")
    for side in SIDES:
        table = found.setdefault(f"{side}.embed_tokens.weight", shared)
        if table.shape != shared.shape or not torch.equal(table, shared):
            problems.append(f"{side}.embed_tokens.weight differs from shared.weight")
    return found


def _bias(tensors: dict[str, Tensor], rules: Mapping[str, Any], problems: list[str]) -> Tensor | None:
    """The bias of the logits with what makes banned tokens impossible; None where it would do nothing.

    With `renormalize_logits` the other tokens share the probability of a banned one, and it counts as never
    there; without, ours bans the padding just as `transformers` does.
    """
    size = int(rules.get("decoder_vocab_size") or rules["vocab_size"])
    stored = tensors.get("decoder.output_bias")
    bias = torch.zeros(size) if stored is None else stored.float().reshape(-1).clone()
    renormalized = bool(rules.get("renormalize_logits", False))
    for token in _banned(rules):
        if not 0 <= token < size:
            problems.append(f"bad_words_ids names {token}, which is no token")
        elif token < len(bias) and (token != rules["pad_token_id"] or renormalized):
            bias[token] = IMPOSSIBLE
    return bias if bool(bias.any()) or len(bias) != size else None


def _banned(rules: Mapping[str, Any]) -> list[int]:
    """Banned single tokens."""
    words = rules.get("bad_words_ids") or []
    return [w[0] for w in words if isinstance(w, list) and len(w) == 1 and type(w[0]) is int]


def _positions(tensors: dict[str, Tensor], given: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each side's table of positions is another than the usual, which is left out of the weights."""
    learned = {}
    for side in SIDES:
        name = f"{side}.embed_positions.weight"
        stored = tensors.get(name)
        usual = torch.from_numpy(sinusoids(given["max_position_embeddings"], given["d_model"], None, True))
        same = stored is None or (
            stored.shape == usual.shape and torch.allclose(stored.float(), usual, atol=TABLE_TOLERANCE)
        )
        learned[side] = not same
    return learned


def _lengthen(tensors: dict[str, Tensor], config: ModelConfig) -> None:
    """Rows for the padding's id where the source's own table ends before it; no source holds them."""
    name = "encoder.embed_tokens.weight"
    table = tensors.get(name)
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        assert isinstance(stack, StackConfig)
        if not stack.learned_positions:
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
    longest = config.max_target - 1
    if type(rules.get("max_new_tokens")) is int:
        longest = min(longest, rules["max_new_tokens"] - 1)
    elif type(rules.get("max_length")) is int:
        longest = min(longest, rules["max_length"] - 2)
    found = {
        "beam_size": _number(rules, "num_beams", 1),
        "length_penalty": float(_number(rules, "length_penalty", 1.0)),
        "max_length_b": max(1, longest),
        "min_length": max(0, int(_number(rules, "min_length", 0)) - 1),
        "no_repeat_ngram_size": int(_number(rules, "no_repeat_ngram_size", 0)),
    }
    left = [f"{name} = {rules.get(name)!r}" for name, fine in LEFT.items() if rules.get(name) not in fine]
    if rules.get("early_stopping", False) is not True:  # the rule that ours is: docs/import.md
        left.append(f"early_stopping = {rules.get('early_stopping', False)!r}")
    words = rules.get("bad_words_ids") or []
    if len(_banned(rules)) < len(words):
        left.append("bad_words_ids of several tokens")
    for name in ("forced_bos_token_id", "suppress_tokens", "begin_suppress_tokens"):
        if rules.get(name) is not None:
            left.append(f"{name} = {rules[name]!r}")
    return found, tuple(left)


def _number(rules: Mapping[str, Any], name: str, usual: float) -> Any:
    value = rules.get(name, usual)
    return value if type(value) in (int, float) else usual
