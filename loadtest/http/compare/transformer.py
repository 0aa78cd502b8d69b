"""Convert a Transformer bundle of Convoy to a CTranslate2 model with the same weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import sentencepiece
from ctranslate2.specs import TransformerSpec
from numpy.typing import NDArray

from engine.api import ConfigError
from engine.bundle.bundle import open_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.bundle.tables import sinusoids

Array = NDArray[np.float32]
SENTENCEPIECE_FILE: Final = "vocabulary.model"


def convert(bundle: Path, out: Path) -> None:
    """Write a CTranslate2 model to `out`, replacing it. Raises ConfigError if the bundle is no plain
    post-norm Transformer."""
    opened = open_bundle(bundle)
    config = opened.config
    encoder, decoder = _sides(config, bundle)
    weights = TransformerWeights(dict(opened.weights()))
    pieces = sentencepiece.SentencePieceProcessor(str(opened.file(SENTENCEPIECE_FILE)))
    tokens = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    spec = TransformerSpec.from_config((encoder.layers, decoder.layers), encoder.heads, pre_norm=False)
    _fill(spec, weights, config)
    spec.config.decoder_start_token = tokens[config.first_token]
    spec.config.add_source_eos = True
    spec.config.eos_token, spec.config.unk_token = tokens[config.eos], tokens[pieces.unk_id()]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize(quantization=None)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    spec.save(str(out))
    shutil.copy(opened.file(SENTENCEPIECE_FILE), out / SENTENCEPIECE_FILE)


class TransformerWeights:
    """Weights of a bundle, accessed by parts of their names."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self.tensors = tensors

    def linear(self, part: Any, *names: str) -> None:
        """Fill a part with one projection, or with several concatenated ones."""
        part.weight = np.concatenate([self.tensors[f"{name}.weight"] for name in names])
        part.bias = np.concatenate([self.tensors[f"{name}.bias"] for name in names])

    def norm(self, part: Any, name: str) -> None:
        part.gamma, part.beta = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]


def _sides(config: ModelConfig, bundle: Path) -> tuple[StackConfig, StackConfig]:
    """Return encoder and decoder. Raises ConfigError if CTranslate2 can't compute the model."""
    encoder, decoder = config.encoder, config.decoder
    if (
        config.architecture != "transformer"
        or not isinstance(encoder, StackConfig)
        or not isinstance(decoder, StackConfig)
        or any(s.normalize_before or s.learned_positions or any(s.kernel_sizes) for s in (encoder, decoder))
        or not (config.share_embeddings and config.share_output)
    ):
        raise ConfigError(
            f"{bundle} is no post-norm Transformer with one table of embeddings: "
            "train one by loadtest/http/compare/tatoeba-de-en-transformer.toml"
        )
    return encoder, decoder


def _fill(spec: Any, weights: TransformerWeights, config: ModelConfig) -> None:
    """Copy the weights of a bundle into a CTranslate2 specification."""
    table = weights.tensors["encoder.embed_tokens.weight"]
    first = config.pad + 1
    encoder, decoder = spec.encoder, spec.decoder
    for part, positions in ((encoder, config.max_source), (decoder, config.max_target)):
        part.scale_embeddings = True
        encodings = sinusoids(positions + first, table.shape[1], config.pad)[first:]
        part.position_encodings.encodings = encodings
    source_table = encoder.embeddings[0] if isinstance(encoder.embeddings, list) else encoder.embeddings
    source_table.weight = decoder.embeddings.weight = decoder.projection.weight = table
    for i, layer in enumerate(encoder.layer):
        name = f"encoder.layers.{i}"
        _self_attention(weights, layer.self_attention, name, f"{name}.layer_norm1")
        _feed_forward(weights, layer.ffn, name, f"{name}.layer_norm2")
    for i, layer in enumerate(decoder.layer):
        name = f"decoder.layers.{i}"
        _self_attention(weights, layer.self_attention, name, f"{name}.conv_layer_norm")
        source, attention = f"{name}.encoder_attn", layer.attention
        weights.linear(attention.linear[0], f"{source}.q_proj")
        weights.linear(attention.linear[1], f"{source}.k_proj", f"{source}.v_proj")
        weights.linear(attention.linear[2], f"{source}.out_proj")
        weights.norm(attention.layer_norm, f"{name}.encoder_attn_layer_norm")
        _feed_forward(weights, layer.ffn, name, f"{name}.final_layer_norm")


def _self_attention(weights: TransformerWeights, part: Any, layer: str, norm: str) -> None:
    projections = [f"{layer}.self_attn.{which}_proj" for which in ("q", "k", "v", "out")]
    weights.linear(part.linear[0], *projections[:3])
    weights.linear(part.linear[1], projections[3])
    weights.norm(part.layer_norm, norm)


def _feed_forward(weights: TransformerWeights, part: Any, layer: str, norm: str) -> None:
    weights.linear(part.linear_0, f"{layer}.fc1")
    weights.linear(part.linear_1, f"{layer}.fc2")
    weights.norm(part.layer_norm, norm)
