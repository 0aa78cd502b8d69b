"""Convert Marian's weights to ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.bundle.weights import QuantizedWeight
from export.importers.marian.files import Arrays
from export.importers.weights import IMPOSSIBLE, Array

# suffix of a matrix's alpha: the factor that quantizes its activations to int8
ALPHA: Final = "_QuantMultA"
ANY_ALPHA: Final = f"none{ALPHA}"  # alpha of the embeddings in older files


@dataclass(slots=True)
class MarianWeights:
    """Converts Marian's arrays to weights by our names.

    alphas: whether int8 weights keep their alphas; then every matrix must have one.
    used: names of converted items.
    """

    stored: Arrays
    alphas: bool = False
    arrays: dict[str, Array] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def matrix(self, ours: str, theirs: str) -> None:
        """Add a matrix that is stored as [in, out]."""
        self._add(ours, theirs, lambda a: a.T)

    def table(self, ours: str, theirs: str, *, projects: bool = True) -> None:
        """Add a table, which is stored like ours.

        ours: our name.
        theirs: Marian's name.
        projects: whether the table is also the matrix of the output projection.
        """
        self._add(ours, theirs, lambda a: a, projects=projects)

    def vector(self, ours: str, theirs: str) -> None:
        self._add(ours, theirs, lambda a: a.reshape(-1))

    def linear(self, ours: str, theirs: str, suffix: str) -> None:
        self.matrix(f"{ours}.weight", f"{theirs}_W{suffix}")
        self.vector(f"{ours}.bias", f"{theirs}_b{suffix}")

    def attention(self, ours: str, theirs: str) -> None:
        for letter, name in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
            self.linear(f"{ours}.{name}", theirs, letter)

    def norm(self, ours: str, theirs: str, *, pre: bool) -> None:
        end = "_pre" if pre else ""
        self.vector(f"{ours}.weight", f"{theirs}_ln_scale{end}")
        self.vector(f"{ours}.bias", f"{theirs}_ln_bias{end}")

    def unused_names(self) -> list[str]:
        spare = set(self.stored) - self.used
        return sorted(n for n in spare if not n.startswith("special:") and not n.endswith(ALPHA))

    def _add(self, ours: str, theirs: str, to_ours: Callable[[Any], Any], *, projects: bool = True) -> None:
        """Convert a stored item by `to_ours`, and add it or a problem."""
        item = self.stored.get(theirs)
        if item is None:
            self.problems.append(f"{theirs} is missing")
            return
        self.used.add(theirs)
        if isinstance(item, QuantizedWeight):
            alpha = self._alpha(theirs) if self.alphas and projects else None
            self.arrays[ours] = replace(to_ours(item), alpha=alpha)
            return
        if self.alphas and projects and item.ndim == 2 and min(item.shape) > 1:
            self.problems.append(f"{theirs} is not quantised, although others are")
        values = np.ascontiguousarray(to_ours(item))
        if values.dtype not in (np.float16, np.float32):
            self.problems.append(f"{theirs} holds {values.dtype}, not fp16 or fp32")
            values = values.astype(np.float32)
        self.arrays[ours] = values.astype(np.float32)

    def _alpha(self, theirs: str) -> Any:
        """Return the alpha of a matrix, float [1], or add a problem and return None."""
        names = [f"{theirs}{ALPHA}", *([ANY_ALPHA] if theirs.endswith("Wemb") else [])]
        item = next((self.stored[name] for name in names if name in self.stored), None)
        if item is None:
            self.problems.append(f"{names[0]} is missing")
            return None
        value = (item.wide if isinstance(item, QuantizedWeight) else np.asarray(item, np.float32)).ravel()[:1]
        if not (value.size and 0 < value[0] < np.inf):
            self.problems.append(f"{names[0]} is not a positive number")
            return None
        return value.copy()


def quantization_of(arrays: Arrays, *, alphas: bool) -> str:
    """Return the kind of quantization of a file (`engine.bundle.config.QUANTIZATIONS`)."""
    if not any(isinstance(item, QuantizedWeight) for item in arrays.values()):
        return "none"
    return "alphas" if alphas and any(name.endswith(ALPHA) for name in arrays) else "rows"


def convert_weights(arrays: Arrays, config: ModelConfig, *, target_vocab: int, biased: bool) -> MarianWeights:
    """Convert every weight of the model.

    arrays: items of the file.
    config: configuration of the model.
    target_vocab: number of target tokens in the file.
    biased: whether the output projection has a bias.
    """
    weights = MarianWeights(arrays, config.quantization == "alphas")
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        assert isinstance(stack, StackConfig)  # for mypy: the importer makes no other stacks
        decoder = side == "decoder"
        if not (decoder and config.share_embeddings):
            table = "Wemb" if config.share_embeddings else f"{side}_Wemb"
            projects = config.share_output and (decoder or config.share_embeddings)
            weights.table(f"{side}.embed_tokens.weight", table, projects=projects)
        if stack.learned_positions:
            weights.table(f"{side}.embed_positions.weight", "Wpos", projects=False)
        if stack.embedding_norm:
            weights.norm(f"{side}.layernorm_embedding", f"{side}_emb", pre=True)
        if stack.normalize_before:
            weights.norm(f"{side}.layer_norm", f"{side}_top", pre=False)
        for i in range(stack.layers):
            _layer(weights, stack, f"{side}.layers.{i}", f"{side}_l{i + 1}")
    if not config.share_output:
        plain = "decoder_ff_logit_out_W" in weights.stored
        name = "decoder.output_projection.weight"
        if plain:
            weights.matrix(name, "decoder_ff_logit_out_W")
        else:
            weights.table(name, "decoder_ff_logit_out_Wt")
    if biased:
        weights.vector("decoder.output_bias", "decoder_ff_logit_out_b")
    _extend(weights.arrays, config, target_vocab)
    return weights


def _layer(weights: MarianWeights, stack: StackConfig, ours: str, theirs: str) -> None:
    """Add the weights of a layer; `ours` and `theirs` are the prefixes of their names."""
    pre, decoder = stack.normalize_before, ours.startswith("decoder")
    first, last = ("conv_layer_norm", "final_layer_norm") if decoder else ("layer_norm1", "layer_norm2")
    if stack.mixer == "average":
        _average(weights, stack, ours, f"{theirs}_aan")
        weights.norm(f"{ours}.{first}", f"{theirs}_aan_ffn", pre=pre)
    elif stack.mixer == "ssru":
        weights.matrix(f"{ours}.candidate.weight", f"{theirs}_rnn_W")
        weights.linear(f"{ours}.forget_gate", f"{theirs}_rnn", "f")
        weights.norm(f"{ours}.{first}", f"{theirs}_rnn_ffn", pre=pre)
    else:
        weights.attention(f"{ours}.self_attn", f"{theirs}_self")
        weights.norm(f"{ours}.{first}", f"{theirs}_self_Wo", pre=pre)
    if decoder:
        weights.attention(f"{ours}.encoder_attn", f"{theirs}_context")
        weights.norm(f"{ours}.encoder_attn_layer_norm", f"{theirs}_context_Wo", pre=pre)
    weights.linear(f"{ours}.fc1", f"{theirs}_ffn", "1")
    weights.linear(f"{ours}.fc2", f"{theirs}_ffn", "2")
    weights.norm(f"{ours}.{last}", f"{theirs}_ffn_ffn", pre=pre)


def _average(weights: MarianWeights, stack: StackConfig, ours: str, theirs: str) -> None:
    """Add the feed-forward network and the gates of averaged attention."""
    if stack.average_ffn:
        for i in range(stack.average_depth):
            weights.linear(f"{ours}.average_hidden.{i}", theirs, str(i + 1))
        if stack.average_projection:
            weights.linear(f"{ours}.average_out", theirs, str(stack.average_depth + 1))
    if stack.gate == "separate":
        weights.linear(f"{ours}.input_gate", theirs, "i")
        weights.linear(f"{ours}.forget_gate", theirs, "f")


def _extend(arrays: dict[str, Array], config: ModelConfig, target_vocab: int) -> None:
    """Add rows for ids that Marian lacks, such as padding; their bias keeps the search from choosing them."""
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        _grow(arrays, name, config.target_vocab, 0.0)
    _grow(arrays, "decoder.output_projection.weight", config.target_vocab, 0.0)
    arrays.setdefault("decoder.output_bias", np.zeros(target_vocab, np.float32))
    _grow(arrays, "decoder.output_bias", config.target_vocab, IMPOSSIBLE)


def _grow(arrays: dict[str, Array], name: str, rows: int, value: float) -> None:
    """Extend a table or bias to a number of rows, filled with a value."""
    table = arrays.get(name)
    if table is None or table.shape[0] >= rows:
        return
    if isinstance(table, QuantizedWeight):
        empty = np.zeros((rows - table.shape[0], table.shape[1]), np.int8)
        arrays[name] = replace(table, values=np.concatenate([table.values, empty]))
    else:
        more = np.full((rows - table.shape[0], *table.shape[1:]), value, np.float32)
        arrays[name] = np.concatenate([table, more])
