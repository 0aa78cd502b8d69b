"""Marian's weights by Marian's names, turned into ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config import ModelConfig
from engine.stacks import StackConfig
from export.marian import IMPOSSIBLE
from export.marian_files import Arrays


@dataclass(slots=True)
class Weights:
    """Marian's arrays, turned into ours by name; what is never asked for is left over."""

    arrays: Arrays
    tensors: dict[str, Tensor] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def matrix(self, ours: str, theirs: str) -> None:
        """A weight, stored [in, out]."""
        self._put(ours, theirs, lambda a: a.T)

    def table(self, ours: str, theirs: str) -> None:
        """A weight that is stored as we have it."""
        self._put(ours, theirs, lambda a: a)

    def vector(self, ours: str, theirs: str) -> None:
        self._put(ours, theirs, lambda a: a.reshape(-1))

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

    def left_over(self) -> list[str]:
        return sorted(name for name in set(self.arrays) - self.used if not name.startswith("special:"))

    def _put(self, ours: str, theirs: str, turned: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        found = self.arrays.get(theirs)
        if found is None:
            self.problems.append(f"{theirs} is missing")
            return
        self.used.add(theirs)
        values = np.ascontiguousarray(turned(found))
        if values.dtype not in (np.float16, np.float32):
            self.problems.append(f"{theirs} holds {values.dtype}, not fp16 or fp32")
            values = values.astype(np.float32)
        self.tensors[ours] = torch.from_numpy(values.copy())


def fill(arrays: Arrays, config: ModelConfig, *, target_vocab: int, biased: bool) -> Weights:
    """Every weight of the model. target_vocab: Marian's own; biased: whether the output has a bias."""
    weights = Weights(arrays)
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        assert isinstance(stack, StackConfig)
        decoder = side == "decoder"
        if not (decoder and config.share_embeddings):
            table = "Wemb" if config.share_embeddings else f"{side}_Wemb"
            weights.table(f"{side}.embed_tokens.weight", table)
        if stack.learned_positions:
            weights.table(f"{side}.embed_positions.weight", "Wpos")
        if stack.embedding_norm:
            weights.norm(f"{side}.layernorm_embedding", f"{side}_emb", pre=True)
        if stack.normalize_before:
            weights.norm(f"{side}.layer_norm", f"{side}_top", pre=False)
        for i in range(stack.layers):
            _layer(weights, stack, f"{side}.layers.{i}", f"{side}_l{i + 1}")
    if not config.share_output:
        plain = "decoder_ff_logit_out_W" in weights.arrays
        name = "decoder.output_projection.weight"
        if plain:
            weights.matrix(name, "decoder_ff_logit_out_W")
        else:
            weights.table(name, "decoder_ff_logit_out_Wt")
    if biased:
        weights.vector("decoder.output_bias", "decoder_ff_logit_out_b")
    _extend(weights.tensors, config, target_vocab)
    return weights


def _layer(weights: Weights, stack: StackConfig, ours: str, theirs: str) -> None:
    pre, decoder = stack.normalize_before, ours.startswith("decoder")
    first, last = ("conv_layer_norm", "final_layer_norm") if decoder else ("layer_norm1", "layer_norm2")
    if stack.mixer == "average":
        _average(weights, stack, ours, f"{theirs}_aan")
        weights.norm(f"{ours}.{first}", f"{theirs}_aan_ffn", pre=pre)
    else:
        weights.attention(f"{ours}.self_attn", f"{theirs}_self")
        weights.norm(f"{ours}.{first}", f"{theirs}_self_Wo", pre=pre)
    if decoder:
        weights.attention(f"{ours}.encoder_attn", f"{theirs}_context")
        weights.norm(f"{ours}.encoder_attn_layer_norm", f"{theirs}_context_Wo", pre=pre)
    weights.linear(f"{ours}.fc1", f"{theirs}_ffn", "1")
    weights.linear(f"{ours}.fc2", f"{theirs}_ffn", "2")
    weights.norm(f"{ours}.{last}", f"{theirs}_ffn_ffn", pre=pre)


def _average(weights: Weights, stack: StackConfig, ours: str, theirs: str) -> None:
    """An averaged attention: its feed-forward and its gates (AAN.md, "Marian")."""
    if stack.average_ffn:
        for i in range(stack.average_depth):
            weights.linear(f"{ours}.average_hidden.{i}", theirs, str(i + 1))
        if stack.average_projection:
            weights.linear(f"{ours}.average_out", theirs, str(stack.average_depth + 1))
    if stack.gate == "separate":
        weights.linear(f"{ours}.input_gate", theirs, "i")
        weights.linear(f"{ours}.forget_gate", theirs, "f")


def _extend(tensors: dict[str, Tensor], config: ModelConfig, target_vocab: int) -> None:
    """Rows for ids that no token has, the padding's among them; the model can never choose them."""
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        _grow(tensors, name, config.target_vocab, 0.0)
    _grow(tensors, "decoder.output_projection.weight", config.target_vocab, 0.0)
    tensors.setdefault("decoder.output_bias", torch.zeros(target_vocab))
    _grow(tensors, "decoder.output_bias", config.target_vocab, IMPOSSIBLE)


def _grow(tensors: dict[str, Tensor], name: str, rows: int, value: float) -> None:
    table = tensors.get(name)
    if table is not None and table.shape[0] < rows:
        more = table.new_full((rows - table.shape[0], *table.shape[1:]), value)
        tensors[name] = torch.cat([table, more])
