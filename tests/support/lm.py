"""Helpers of the tests of language models."""

from __future__ import annotations

from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Result
from tests.support.lanes import outcomes_of

EOS, PAD = 2, 1
NAME = "lm_adaptive"


def forced(tokens: list[int]) -> DecodeOptions:
    """Return options that force all tokens of a text that ends with end-of-sentence."""
    inner = tuple(tokens[:-1])
    return DecodeOptions(beam_size=1, min_length=0, max_length_b=len(inner), prefix=inner)


def decode(lane: Lane, wanted: list[DecodeOptions], each: int = 3) -> list[Result]:
    """Decode requests that join a few at a time, while others are at different steps."""
    return outcomes_of(lane, [([EOS], options) for options in wanted], lambda: each)
