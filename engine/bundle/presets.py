"""Configurations by their usual names: fairseq's architectures and the rows of the papers' tables.

Values: docs/reference.md 8 and 10. `lightconv_*` and `dynamicconv_*` differ only in their kernels
(in fairseq a flag of one architecture). Presets of corpora with a joint vocabulary share one table between
source, target and output, which agrees with the parameter counts of their papers; the others share nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.bundle.config import ModelConfig
from engine.errors import ConfigError

JOINT: Final[dict[str, Any]] = {"share_embeddings": True, "share_output": True}
GROWING: Final = (3, 7, 15, 31, 31, 31, 31)  # kernel widths from the lowest layer up

BASE_SIZE: Final = {"embed_dim": 512, "conv_dim": 512, "ffn_dim": 2048, "heads": 8}
BIG_SIZE: Final = {"embed_dim": 1024, "conv_dim": 1024, "ffn_dim": 4096, "heads": 16}
TINY_SIZE: Final = {"embed_dim": 64, "conv_dim": 64, "ffn_dim": 64, "heads": 2}
IWSLT_SIZE: Final = {"embed_dim": 512, "conv_dim": 512, "ffn_dim": 1024, "heads": 4}

BANDS: Final = {"cutoffs": (60_000, 160_000), "factor": 4.0}
WORDS: Final = {"softmax": BANDS, "input": BANDS}


# SliceNet's schemes of kernel widths and dilations within a layer (its Table 2), by tensor2tensor's names
SLICE_KERNELS: Final[dict[str, tuple[int, ...]]] = {
    "3.3.3.3": (3, 3, 3, 3),
    "3.7.7.7": (3, 7, 7, 7),
    "3.7.15.15": (3, 7, 15, 15),
    "3.7.15.31": (3, 7, 15, 31),
    "3.7.15.31.63": (3, 7, 15, 31, 63),
}
SLICE_DILATIONS: Final[dict[str, tuple[int, ...]]] = {
    "1.1.1.1.1": (1, 1, 1, 1, 1),
    "1.1.1.1": (1, 1, 1, 1),
    "1.1.1.2": (1, 1, 1, 2),
    "1.1.2.4": (1, 1, 2, 4),
    "1.2.4.8": (1, 2, 4, 8),
}


def preset(
    name: str, source_vocab: int, target_vocab: int, changes: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Return the configuration of a preset for the given vocabularies.

    name: name of the preset.
    source_vocab: number of source symbols.
    target_vocab: number of target symbols.
    changes: values of ModelConfig that replace the preset's; `encoder` and `decoder` are mappings too.

    Raises ConfigError on an unknown name and on impossible values.
    """
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}; known are {', '.join(sorted(PRESETS))}")
    values = {**PRESETS[name], "source_vocab": source_vocab, "target_vocab": target_vocab}
    for key, value in (changes or {}).items():
        inner = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        values[key] = {**values[key], **value} if inner else value
    return ModelConfig.from_dict(values)


def _convolution(mixer: str, size: Mapping[str, Any], *, glu: bool, **rest: Any) -> dict[str, Any]:
    """Return LightConv or DynamicConv of 7 encoder and 6 decoder layers."""
    side = {**size, "mixer": mixer, "glu": glu}
    return {
        "architecture": "dynamicconv",
        "encoder": {**side, "kernel_sizes": GROWING},
        "decoder": {**side, "kernel_sizes": GROWING[:6]},
        **rest,
    }


def _attention(size: Mapping[str, Any], kernels: tuple[int, ...] = (0,) * 6, **rest: Any) -> dict[str, Any]:
    """Return a Transformer.

    kernels: number of positions that each layer of a side sees; 0: all.
    """
    side = {**size, "mixer": "attention", "glu": False, "kernel_sizes": kernels}
    return {"architecture": "transformer", "encoder": side, "decoder": side, **rest}


def _average(encoder: str) -> dict[str, Any]:
    """Return averaged attention of Table 3: joint gates and a feed-forward as wide as the layer's own."""
    side = {**BIG_SIZE, "glu": False, "kernel_sizes": (0,) * 6, "average_ffn": 4096}
    sides = {"encoder": {**side, "mixer": encoder}, "decoder": {**side, "mixer": "average"}}
    return {"architecture": "aan", **sides, **JOINT}


def _student(embed_dim: int, ffn_dim: int, layers: int) -> dict[str, Any]:
    """Return a student of Firefox Translations or Bergamot: 6 layers of attention and `layers` of SSRU, with
    Marian's norms, positions and first input."""
    size: dict[str, Any] = {"embed_dim": embed_dim, "conv_dim": embed_dim, "ffn_dim": ffn_dim}
    size |= {"heads": 8, "glu": False, "norm_eps": 1e-6}
    return {
        "architecture": "ssru",
        "encoder": {**size, "mixer": "attention", "kernel_sizes": (0,) * 6},
        "decoder": {**size, "mixer": "ssru", "kernel_sizes": (0,) * layers},
        **JOINT,
        "output_bias": True,
        "first_position": 0,
        "zero_start": True,
    }


def _convs2s(
    dim: int,
    encoder: tuple[tuple[int, int], ...],
    decoder: tuple[tuple[int, int], ...] | None = None,
    *,
    output: int,
) -> dict[str, Any]:
    """Return ConvS2S with attention in each decoder layer. It uses 1,022 of fairseq's 1,024 positions.

    encoder, decoder: (channels, kernel width) of each layer; without `decoder` both sides are equal.
    """
    sides = []
    for layers in (encoder, decoder or encoder):
        widths, kernels = zip(*layers, strict=True)
        side = {"embed_dim": dim, "widths": widths, "kernel_sizes": kernels, "residuals": (1,) * len(layers)}
        sides.append(side)
    sides[1] |= {"attention": tuple(range(len(widths))), "output_dim": None if output == dim else output}
    return {
        "architecture": "convs2s",
        "encoder": sides[0],
        "decoder": sides[1],
        "output_bias": True,
        "scale_embeddings": False,
        "max_source": 1022,
        "max_target": 1022,
    }


def _language_model(size: Mapping[str, Any], kernels: tuple[int, ...], **rest: Any) -> dict[str, Any]:
    """Return a DynamicConv language model with norms before the sub-blocks, and none after the last layer."""
    norms = {"normalize_before": True, "final_norm": False}
    decoder = {**size, **norms, "mixer": "dynamic", "glu": True, "kernel_sizes": kernels}
    return {"architecture": "lightconv_lm", "encoder": None, "decoder": decoder, **rest}


def _slicenet(side: Mapping[str, Any], layers: int, attention: Mapping[str, Any]) -> dict[str, Any]:
    """Return SliceNet with `layers` modules in the decoder and half as many more in the encoder."""
    sides = {
        "encoder": {**side, "layers": layers * 3 // 2},
        "decoder": {**side, "layers": layers, **attention},
    }
    return {"architecture": "slicenet", **sides, **JOINT}


def _override(
    values: Mapping[str, Any],
    both: Mapping[str, Any],
    *,
    encoder: tuple[int, ...] = GROWING,
    decoder: tuple[int, ...] = GROWING[:6],
) -> dict[str, Any]:
    """Return `values` with the changes `both` on both sides, and with other kernel widths."""
    sides = {
        "encoder": {**values["encoder"], **both, "kernel_sizes": encoder},
        "decoder": {**values["decoder"], **both, "kernel_sizes": decoder},
    }
    return {**values, **sides}


def _twins(name: str, size: Mapping[str, Any], *, glu: bool, **rest: Any) -> dict[str, dict[str, Any]]:
    return {
        f"{kind}conv{name}": _convolution(mixer, size, glu=glu, **rest)
        for kind, mixer in (("light", "lightweight"), ("dynamic", "dynamic"))
    }


_LIGHT: Final = _convolution("lightweight", BIG_SIZE, glu=False, **JOINT)
_DYNAMIC: Final = _convolution("dynamic", BIG_SIZE, glu=False, **JOINT)
_SHARED: Final = _override(_LIGHT, {"weight_softmax": False})
_DEPTHWISE: Final = _override(_SHARED, {"conv_heads": 1024})
_NARROW: Final = {"encoder": (3,) * 7, "decoder": (3,) * 6}

# Tables 3 and 7 of "Pay Less Attention", in their order (DropConnect changes training only)
ABLATIONS: Final[dict[str, dict[str, Any]]] = {
    "transformer_big_windowed": _attention(BIG_SIZE, (3, 7, 15, 31, 31, 31), **JOINT),
    "cnn_k3": {**_override(_LIGHT, {"mixer": "convolution"}, **_NARROW), "architecture": "cnn"},
    "cnn_depthwise_k3": _override(_DEPTHWISE, {}, **_NARROW),
    "cnn_depthwise": _DEPTHWISE,
    "cnn_depthwise_shared": _SHARED,
    "lightconv_big_no_glu": _LIGHT,
    "dynamicconv_big_no_glu": _DYNAMIC,
    "dynamicconv_big_no_softmax": _override(_DYNAMIC, {"weight_softmax": False}),
    "aan_decoder": _average("attention"),
    "aan_both": _average("average"),
    "dynamicconv_1_decoder_layer": _override(_DYNAMIC, {}, decoder=(31,)),
    "dynamicconv_3_decoder_layers": _override(_DYNAMIC, {}, decoder=(3, 7, 15)),
}
PLAIN: Final[dict[str, dict[str, Any]]] = {
    "fconv": _convs2s(512, ((512, 3),) * 20, output=256),
    "fconv_iwslt_de_en": _convs2s(256, ((256, 3),) * 4, ((256, 3),) * 3, output=256),
    "fconv_wmt_en_ro": _convs2s(512, ((512, 3),) * 20, output=512),
    "fconv_wmt_en_de": _convs2s(768, ((512, 3),) * 9 + ((1024, 3),) * 4 + ((2048, 1),) * 2, output=512),
    "fconv_wmt_en_fr": _convs2s(
        768,
        ((512, 3),) * 6 + ((768, 3),) * 4 + ((1024, 3),) * 3 + ((2048, 1), (4096, 1)),
        output=512,
    ),
    "transformer": _attention(BASE_SIZE),
    "transformer_tiny": _attention(TINY_SIZE, (0, 0)),
    "transformer_iwslt_de_en": _attention(IWSLT_SIZE),
    "transformer_wmt_en_de": _attention(BASE_SIZE, **JOINT),
    "transformer_vaswani_wmt_en_de_big": _attention(BIG_SIZE, **JOINT),
    "transformer_vaswani_wmt_en_fr_big": _attention(BIG_SIZE, **JOINT),
    "transformer_wmt_en_de_big": _attention(BIG_SIZE, **JOINT),
    "transformer_wmt_en_de_big_t2t": _attention({**BIG_SIZE, "normalize_before": True}, **JOINT),
    "lightconv_lm": _language_model(BASE_SIZE, GROWING[:6]),
    "lightconv_lm_gbw": _language_model({**BASE_SIZE, "ffn_dim": 4096, "heads": 16}, GROWING[:6]),
    # Table 4 of "Pay Less Attention": its words by frequency, in bands of 60K, 100K and the rest
    "dynamicconv_lm_billion_word": _language_model(
        BIG_SIZE, (15,) * 2 + (31,) * 4 + (63,) * 11, adaptive={**WORDS, "tie_weights": True}
    ),
}
# sizes of Firefox's models under its names
STUDENTS: Final[dict[str, dict[str, Any]]] = {
    "ssru_tiny": _student(256, 1536, 2),
    "ssru_base_memory": _student(384, 1536, 4),
    "ssru_base": _student(512, 2048, 2),
}
# tensor2tensor's names, then rows of SliceNet's Tables 2 and 3 (the paper states their depth) with the
# attention of its section 3.2
_PROJECTED: Final = {"attention": "transformer", "heads": 8}
_INNER: Final = {"attention": "inner_product"}
_WIDEST: Final = {
    "kernel_sizes": SLICE_KERNELS["3.7.15.31.63"],
    "dilations": SLICE_DILATIONS["1.1.1.1.1"],
}
SLICENET: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(("slicenet_1", "slicenet_1noam"), _slicenet({"embed_dim": 768}, 4, _PROJECTED)),
    "slicenet_1tiny": _slicenet({"embed_dim": 128, "separability": 0}, 2, _PROJECTED),
    "slicenet_full_2048": _slicenet({"embed_dim": 2048, "separability": 0, **_WIDEST}, 4, _INNER),
    "slicenet_super_3072": _slicenet({"embed_dim": 3072}, 4, _INNER),
}
PRESETS: Final[dict[str, dict[str, Any]]] = {
    **_twins("", BASE_SIZE, glu=True),
    **_twins("_iwslt_de_en", IWSLT_SIZE, glu=False),
    **_twins("_wmt_en_de", BASE_SIZE, glu=True, **JOINT),
    **_twins("_wmt_en_de_big", BIG_SIZE, glu=True, **JOINT),
    **_twins("_wmt_en_fr_big", BIG_SIZE, glu=True, **JOINT),
    **_twins("_wmt_zh_en_big", BIG_SIZE, glu=True),
    **PLAIN,
    **ABLATIONS,
    **STUDENTS,
    **SLICENET,
}
