"""CTranslate2 Transformers with random weights, for comparisons of speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

LAYERS: Final = 6  # layers of the encoder, and of the decoder
POSITIONS: Final = 1024


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes that both networks of a comparison share."""

    dim: int
    ffn: int
    heads: int
    vocab: int


def random_transformer(size: Size, *, pre_norm: bool) -> Any:
    """Return a specification without vocabularies, whose position embeddings are zeros.

    size: widths of the network.
    pre_norm: norms before the sub-blocks and after the last layer.
    """
    from ctranslate2.specs import transformer_spec

    g = np.random.default_rng(0)
    spec = transformer_spec.TransformerSpec.from_config((LAYERS, LAYERS), size.heads, pre_norm=pre_norm)

    def linear(part: Any, outputs: int, inputs: int) -> None:
        part.weight = (g.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)
        part.bias = np.zeros(outputs, np.float32)

    def norm(part: Any) -> None:
        part.gamma, part.beta = np.ones(size.dim, np.float32), np.zeros(size.dim, np.float32)

    def attention(part: Any, outputs: Sequence[int]) -> None:
        for layer, count in zip(part.linear, outputs, strict=True):
            linear(layer, count * size.dim, size.dim)
        norm(part.layer_norm)

    table = (g.standard_normal((size.vocab, size.dim)) * size.dim**-0.5).astype(np.float32)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = table
        side.position_encodings.encodings = np.zeros((POSITIONS, size.dim), np.float32)
        if pre_norm:
            norm(side.layer_norm)
        for layer in side.layer:
            attention(layer.self_attention, (3, 1))
            if side is spec.decoder:
                attention(layer.attention, (1, 2, 1))
            linear(layer.ffn.linear_0, size.ffn, size.dim)
            linear(layer.ffn.linear_1, size.dim, size.ffn)
            norm(layer.ffn.layer_norm)
    linear(spec.decoder.projection, size.vocab, size.dim)
    return spec


def write_transformer(size: Size, folder: Path) -> None:
    """Write a post-norm Transformer with random weights as a model of CTranslate2.

    Its words are `t3`, `t4`, ...

    size: widths of the network.
    folder: existing folder of the model.
    """
    spec = random_transformer(size, pre_norm=False)
    words = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, size.vocab))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))
