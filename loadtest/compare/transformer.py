"""A Transformer for CTranslate2 of the same size as a Convoy bundle, with the bundle's vocabulary.

Its weights are random: it costs what a trained one costs for answers of the same length, and says nothing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import sentencepiece
from ctranslate2.specs import TransformerSpec

POSITIONS: Final = 1024


def write(bundle: Path, out: Path, seed: int = 0) -> int:
    """Writes a model of the bundle's widths, layers and heads; returns its number of parameters."""
    config = json.loads((bundle / "config.json").read_text("utf-8"))["model"]
    wide, inner = config["encoder"]["embed_dim"], config["encoder"]["ffn_dim"]
    layers = len(config["encoder"]["kernel_sizes"]), len(config["decoder"]["kernel_sizes"])
    pieces = sentencepiece.SentencePieceProcessor(str(bundle / "vocabulary.model"))
    tokens = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    spec = TransformerSpec.from_config(layers, config["encoder"]["heads"], pre_norm=False)
    rng = np.random.default_rng(seed)
    _fill(spec, rng, wide, inner, len(tokens))
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    count = sum(int(np.prod(value.shape)) for value in spec.variables().values() if hasattr(value, "shape"))
    spec.optimize(quantization=None)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    spec.save(str(out))
    shutil.copy(bundle / "vocabulary.model", out / "vocabulary.model")
    return count


def _fill(spec: Any, rng: np.random.Generator, wide: int, inner: int, vocabulary: int) -> None:
    def linear(part: Any, outputs: int, inputs: int) -> None:
        part.weight = (rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)
        part.bias = np.zeros(outputs, np.float32)

    def norm(part: Any) -> None:
        part.gamma, part.beta = np.ones(wide, np.float32), np.zeros(wide, np.float32)

    def attention(part: Any, *widths: int) -> None:
        for one, width in zip(part.linear, widths, strict=True):
            linear(one, width, wide)
        norm(part.layer_norm)

    def feed(part: Any) -> None:
        linear(part.linear_0, inner, wide)
        linear(part.linear_1, wide, inner)
        norm(part.layer_norm)

    embeddings = (rng.standard_normal((vocabulary, wide)) * wide**-0.5).astype(np.float32)
    positions = np.zeros((POSITIONS, wide), np.float32)
    encoder, decoder = spec.encoder, spec.decoder
    for part in (encoder, decoder):
        part.scale_embeddings = True
        part.position_encodings.encodings = positions
    own = encoder.embeddings[0] if isinstance(encoder.embeddings, list) else encoder.embeddings
    own.weight = decoder.embeddings.weight = embeddings
    for layer in encoder.layer:
        attention(layer.self_attention, 3 * wide, wide)
        feed(layer.ffn)
    for layer in decoder.layer:
        attention(layer.self_attention, 3 * wide, wide)
        attention(layer.attention, wide, 2 * wide, wide)
        feed(layer.ffn)
    linear(decoder.projection, vocabulary, wide)
