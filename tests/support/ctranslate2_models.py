"""Small random models, written by CTranslate2's specifications, and CTranslate2's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

DIM, FFN, HEADS = 32, 48, 4
SYMBOLS = ("<unk>", "<blank>", "<s>", "</s>")


@dataclass(frozen=True)
class Options:
    """Options of a model.

    layers: number of layers of encoder and decoder.
    positions: "stored", "computed", "relative" (Shaw's) or "biased" (T5's).
    head_dim: width of a head if all heads together are not as wide as the model.
    likely: lines of a vocabulary map.
    alignment: number of heads, and layer.
    """

    layers: tuple[int, int] = (2, 2)
    pre_norm: bool = True
    rms: bool = False
    head_dim: int | None = None
    no_final_norm: bool = False
    activation: str = "RELU"
    gated: bool = False
    positions: str = "stored"
    embedding_norm: bool = False
    joint: bool = True
    tied: bool = True
    output_bias: bool = True
    scale_embeddings: Any = True
    zero_start: bool = False
    scale_outputs: float | None = None
    queries_scale: float | None = None
    vocabularies: tuple[int, int] = (40, 40)
    symbols: tuple[str, ...] = SYMBOLS
    config: dict[str, Any] = field(default_factory=dict)
    likely: tuple[str, ...] = ()
    alignment: tuple[int, int] = (1, -1)
    seed: int = 0
    end: float = 1.0  # bias of end-of-sentence


def words(count: int, symbols: tuple[str, ...] = SYMBOLS) -> list[str]:
    return [*symbols, *(f"w{i}" for i in range(count - len(symbols)))]


def specification(options: Options) -> transformer_spec.TransformerSpec:
    rng = np.random.default_rng(options.seed)
    same = {
        "relative_position": options.positions == "relative",
        "relative_attention_bias": options.positions == "biased",
        "rms_norm": options.rms,
        "head_dim": options.head_dim,
        "pre_norm": options.pre_norm,
        "no_final_norm": options.no_final_norm,
        "activation": common_spec.Activation[options.activation],
        "layernorm_embedding": options.embedding_norm,
        "ffn_glu": options.gated,
    }
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(options.layers[0], HEADS, **same),
        transformer_spec.TransformerDecoderSpec(
            options.layers[1],
            HEADS,
            alignment_heads=options.alignment[0],
            alignment_layer=options.alignment[1],
            **same,
        ),
    )

    def random(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * shape[-1] ** -0.5 * 1.4).astype(np.float32)

    def linear(layer: Any, inner: int, outer: int) -> None:
        layer.weight, layer.bias = random(outer, inner), random(outer) * 0.5

    def norm(layer: Any) -> None:
        layer.gamma, beta = 1 + random(DIM) * 0.3, random(DIM) * 0.3
        if not options.rms:
            layer.beta = beta

    def attention(layer: Any, *, source: bool) -> None:
        norm(layer.layer_norm)
        inner = HEADS * (options.head_dim or DIM // HEADS)
        rows = (inner, 2 * inner, DIM) if source else (3 * inner, DIM)
        for part, outer in zip(layer.linear, rows, strict=True):
            linear(part, inner if outer == DIM and part is layer.linear[-1] else DIM, outer)
        if options.positions == "relative" and not source:
            layer.relative_position_keys = random(7, options.head_dim or DIM // HEADS)
            layer.relative_position_values = random(7, options.head_dim or DIM // HEADS)
        if biased and not source:
            layer.relative_attention_bias = biases[name]
            layer.relative_attention_max_distance = np.dtype("int32").type(12)
        if options.queries_scale is not None:
            layer.queries_scale = options.queries_scale

    source, target = options.vocabularies
    tables = random(source, DIM), random(target, DIM)
    biased = options.positions == "biased"
    biases = {name: random(8, HEADS) for name in ("encoder", "decoder") if biased}
    for name, side, table in zip(("encoder", "decoder"), (spec.encoder, spec.decoder), tables, strict=True):
        embeddings = side.embeddings[0] if name == "encoder" else side.embeddings
        embeddings.weight = tables[0] if options.joint else table
        side.scale_embeddings = options.scale_embeddings
        if options.positions == "stored":
            side.position_encodings.encodings = 6 * random(300, DIM)  # makes answers end
        if options.embedding_norm:
            norm(side.layernorm_embedding)
        if options.pre_norm and not options.no_final_norm:
            norm(side.layer_norm)
        for layer in side.layer:
            attention(layer.self_attention, source=False)
            if name == "decoder":
                attention(layer.attention, source=True)
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, DIM, FFN)
            linear(layer.ffn.linear_1, FFN, DIM)
            if options.gated:
                linear(layer.ffn.linear_0_noact, DIM, FFN)
    projection = spec.decoder.projection
    projection.weight = spec.decoder.embeddings.weight if options.tied else random(target, DIM)
    if options.output_bias:
        bias = random(target) * 0.3
        names = words(target, options.symbols)
        for symbol, value in (("<blank>", -1e4), ("</s>", options.end)):
            if symbol in names:
                bias[names.index(symbol)] = value
        projection.bias = bias
    spec.decoder.start_from_zero_embedding = options.zero_start
    if options.scale_outputs is not None:
        spec.decoder.scale_outputs = options.scale_outputs
    return spec


def write(folder: Path, options: Options, quantization: str | None = None) -> Path:
    """Write a folder like CTranslate2's converters."""
    spec = specification(options)
    for key, value in options.config.items():
        setattr(spec.config, key, value)
    source, target = (words(count, options.symbols) for count in options.vocabularies)
    folder.mkdir(parents=True)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    if options.likely:
        (folder.parent / "vmap").write_text("".join(f"{line}\n" for line in options.likely))
        spec.register_vocabulary_mapping(str(folder.parent / "vmap"))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    return folder


def answers(
    folder: Path, sources: list[list[str]], compute_type: str = "float32", **options: Any
) -> list[list[tuple[list[str], float]]]:
    """Return CTranslate2's hypotheses of each source with their scores, best first."""
    translator = ctranslate2.Translator(str(folder), compute_type=compute_type, intra_threads=1)
    results = [translator.translate_batch([source], return_scores=True, **options)[0] for source in sources]
    return [list(zip(result.hypotheses, result.scores, strict=True)) for result in results]
