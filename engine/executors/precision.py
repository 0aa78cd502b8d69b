"""The default precision of a bundle: by its scores in int8 on the CPU, and by its range on a GPU."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Final

from engine.backends import BACKENDS, BY_BUNDLE, Placement, devices, half_precision
from engine.bundle.bundle import Bundle
from engine.bundle.json_file import read_json
from engine.bundle.manifest import typed

INT8_FILE: Final = "int8.json"  # file name in a bundle
MAX_INT8_LOSS: Final = 0.2  # points of BLEU or ROUGE; a bundle that loses more runs in fp32
REMEDY: Final = "measure it again: convoy evaluate --choose-precision"


@dataclass(frozen=True, slots=True)
class Int8Scores:
    """Scores of a bundle on held-out lines.

    metric: name of the measure.
    lines: number of lines.
    fp32: points in fp32.
    int8: points in int8.
    """

    metric: str
    lines: int
    fp32: float
    int8: float

    def __str__(self) -> str:
        return f"{self.metric} {self.int8:.2f} in int8, {self.fp32:.2f} in fp32"

    @property
    def fits(self) -> bool:
        """Whether int8 loses at most MAX_INT8_LOSS."""
        return round(self.fp32 - self.int8, 2) <= MAX_INT8_LOSS

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return (json.dumps(dataclasses.asdict(self), indent=2) + "\n").encode()


def int8_scores(bundle: Bundle) -> Int8Scores | None:
    """Return the scores in fp32 and int8 that a bundle holds. Raises BundleError for a damaged file."""
    if INT8_FILE not in bundle.manifest:
        return None
    path = bundle.file(INT8_FILE)
    return typed(Int8Scores, read_json(path, dict, REMEDY), path, "scores")


def precision_of(bundle: Bundle, placement: Placement) -> tuple[str, str]:
    """Return the precision of a bundle with this placement, and the reason: "" if a setting decides.

    Raises BundleError for a damaged file of scores.
    """
    if placement.precision != BY_BUNDLE:
        return placement.precision, ""
    first = devices(placement.device)[0]
    if first != "cpu":
        exceeds = bundle.config.exceeds_fp16
        if exceeds and "bf16" not in BACKENDS[placement.backend].precisions["cuda"]:
            return "fp32", "its range exceeds fp16"
        return half_precision(first, exceeds_fp16=exceeds), "its range needs bf16" if exceeds else ""
    if "int8" not in BACKENDS[placement.backend].precisions["cpu"]:
        return "fp32", ""
    if bundle.config.quantization != "none":
        return "int8", "its weights are published in int8"
    scores = int8_scores(bundle)
    if scores is None:
        return "fp32", "its scores in int8 are not measured"
    return "int8" if scores.fits else "fp32", str(scores)
