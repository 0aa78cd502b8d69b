"""Check the options of Marian's models, and map them to ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from export.importers.weights import LARGEST_SIZE, MOST_LAYERS

MARIAN_ACTIVATIONS: Final = {"relu": "relu", "swish": "swish", "gelu": "gelu_sigmoid"}
SELF, AVERAGE, RECURRENT = "self-attention", "average-attention", "rnn"
DECODERS: Final = {SELF: "attention", AVERAGE: "average", RECURRENT: "ssru"}  # Marian's kind to our mixer
MARIAN_ARCHITECTURES: Final = {SELF: "transformer", AVERAGE: "aan", RECURRENT: "ssru"}
MARIAN_SIZES: Final = ("dim-emb", "transformer-dim-ffn", "transformer-heads", "enc-depth", "dec-depth")
# unsupported options that change the arithmetic, with the values that have no effect
MARIAN_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "transformer-no-projection": (None, False),
    "transformer-no-bias": (None, False),
    "transformer-no-affine": (None, False),
    "transformer-rnn-projection": (None, False),
    "transformer-pool": (None, False),
    "transformer-tied-layers": (None, []),
    "transformer-ffn-depth": (None, 2),
    "transformer-decoder-ffn-depth": (None, 0, 2),
    "transformer-flat-context": (None, False),
    "lemma-dim-emb": (None, 0),
    "lemma-dependency": (None, ""),
    "factors-combine": (None, "", "sum"),
    "input-types": (None, [], ["sequence"], ["sequence", "sequence"]),
    "ulr": (None, False),
    "right-left": (None, False),
}
# the same for recurrent decoders
CELL: Final[dict[str, tuple[Any, ...]]] = {
    "dec-cell": ("ssru",),
    "layer-normalization": (None, False),
    "skip": (None, False),
}


def check_options(path: Path, options: Mapping[str, Any]) -> None:
    """Raise CheckpointError with every unsupported option of a model file."""
    kind = options.get("type")
    if kind != "transformer":
        raise CheckpointError(f"{path}: is a model of the type {kind!r}; only 'transformer' is supported")
    autoreg = options.get("transformer-decoder-autoreg", SELF)
    neutral = MARIAN_NEUTRAL | (CELL if autoreg == RECURRENT else {})
    wrong = [
        f"{name} = {options[name]!r} is not supported"
        for name, harmless in neutral.items()
        if name in options and options[name] not in harmless
    ]
    wrong += [
        *_decoder_problems(options, autoreg),
        *_size_problems(options),
        *_layer_problems(options, autoreg),
    ]
    if wrong:
        raise CheckpointError(f"{path}: can't be imported: " + "; ".join(wrong))


def _decoder_problems(options: Mapping[str, Any], autoreg: Any) -> Iterator[str]:
    if autoreg == RECURRENT and "dec-cell" not in options:
        yield "dec-cell is not given; ssru is supported"
    if autoreg not in DECODERS:
        yield f"transformer-decoder-autoreg = {autoreg!r} is not supported"


def _size_problems(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sizes that are missing or impossible."""
    for name in MARIAN_SIZES:
        value, most = options.get(name), MOST_LAYERS if name.endswith("depth") else LARGEST_SIZE
        if type(value) is not int or not 0 < value <= most:
            yield f"{name} = {value!r} is not a valid size"
    sizes = options.get("dim-vocabs")
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(type(n) is int and n > 0 for n in sizes):
        yield f"dim-vocabs = {sizes!r} must be two sizes"


def _layer_problems(options: Mapping[str, Any], autoreg: Any) -> Iterator[str]:
    """Yield unsupported activations and orders of norms."""
    names = ["transformer-ffn-activation", *(["transformer-aan-activation"] if autoreg == AVERAGE else [])]
    for name in names:
        if options.get(name, "swish") not in MARIAN_ACTIVATIONS:
            yield f"{name} = {options[name]!r} is none of {', '.join(MARIAN_ACTIVATIONS)}"
    if norm_order(options) not in (("", "an", ""), ("n", "a", "n")):
        yield (
            "transformer-preprocess, -postprocess and -postprocess-top must be '', 'dan', '' (post-norm) or "
            "'n', 'da', 'n' (pre-norm)"
        )
    if str(options.get("transformer-postprocess-emb", "d")).replace("d", "") not in ("", "n"):
        yield f"transformer-postprocess-emb = {options['transformer-postprocess-emb']!r} is unknown"


def norm_order(options: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the operations before and after each sub-block and after the last layer, without dropout."""
    names = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
    pre, post, top = (str(options.get(n) or "").replace("d", "") for n in names)
    return pre, post, top
