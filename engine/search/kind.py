"""Kinds of steps: the host knows what slots ask for, so that nothing else is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Final, NamedTuple

from engine.search import penalties
from engine.types import DecodeOptions

# Options that a plain step knows, by kernels or the native library, whatever their values. Any other option
# that is not at its default takes the reference path (`engine.search.beam`), one of tomorrow's too.
PLAIN_OPTIONS: Final = frozenset(
    (
        *("beam_size", "n_best", "length_penalty", "normalize_scores", "length_normalization", "word_reward"),
        *("beam_rule", "min_length", "min_length_a", "max_length", "max_length_a", "max_length_b"),
        *("unk_penalty", "lm_weight", "temperature", "prefix", "free_prefix", "alignment"),
        *("sampling", "top_k", "top_p", "seed", "diverse_strength", "diverse_discount"),
    )
)
# likewise of `engine.search.greedy`: what bans tokens has done so before
GREEDY_OPTIONS: Final = (PLAIN_OPTIONS - {"sampling"}) | {"no_repeat_ngram_size", "quotas"}
# likewise of rows that go on with their first candidates as long as none ends
SIMPLE_OPTIONS: Final = (PLAIN_OPTIONS - {"beam_rule"}) | {
    *("no_repeat_ngram_size", "quotas", "coverage_penalty", "stepwise_penalty")
}


class Kind(NamedTuple):
    """What a step computes beyond the sizes of its arrays. Steps of one kind and as many slots are the same
    operators on the same shapes, but where values may be read.

    columns: length of the token history that is searched for repeats.
    ngram: the largest size of n-grams that may not repeat, 0 for none.
    quotas: the largest number of tokens that one slot limits, 0 for none.
    ranked, sampled: whether any slot searches, and whether any samples.
    groups: the largest number of diverse groups of a slot.
    coverage, stepwise: whether such penalties count.
    prefixed: whether any slot's target begins with tokens of the request, where values may be read.
    free: whether any forced token costs nothing.
    greedy: whether every slot keeps one hypothesis, and values may be read.
    simple: whether rows go on with the first candidates as long as none ends, and values may be read.
    plain: whether kernels or the native library may search it: no slot has an option beyond `PLAIN_OPTIONS`.
    """

    columns: int
    ngram: int
    quotas: int
    ranked: bool
    sampled: bool
    groups: int
    coverage: bool
    stepwise: bool
    prefixed: bool
    free: bool
    greedy: bool
    simple: bool
    plain: bool

    @property
    def histories(self) -> bool:
        """Whether a step looks at the tokens of hypotheses so far."""
        return self.ngram > 0 or self.quotas > 0


def kind_of(options: Sequence[DecodeOptions], beams: int, columns: int, *, readable: bool) -> Kind:
    """Find the kind of step that some slots need.

    options: of each slot; at least one.
    beams: rows of each slot.
    columns: length of the token history.
    readable: whether a step may read values back.
    """
    set_options = frozenset[str]().union(*map(changed, options))
    sampled = [o.sampling for o in options]
    full = all(o.beam_size == beams for o in options)
    return Kind(
        columns=columns,
        ngram=max(o.no_repeat_ngram_size for o in options),
        quotas=max(len(o.quotas) for o in options),
        ranked=not all(sampled),
        sampled=any(sampled),
        groups=max(o.diverse_groups for o in options),
        coverage="coverage_penalty" in set_options,
        stepwise="stepwise_penalty" in set_options,
        prefixed=readable and "prefix" in set_options,
        free="free_prefix" in set_options or any(o.beam_rule == penalties.MARIAN for o in options),
        greedy=readable and beams == 1 and set_options <= GREEDY_OPTIONS,
        simple=readable and full and set_options <= SIMPLE_OPTIONS,
        plain=set_options <= PLAIN_OPTIONS,
    )


@lru_cache(1024)
def changed(options: DecodeOptions) -> frozenset[str]:
    """Name the options that are not at their defaults."""
    return frozenset(field.name for field in fields(options) if getattr(options, field.name) != field.default)


@lru_cache(16)
def usual(columns: int) -> Kind:
    """Return the kind of step of slots that ask for nothing but beam search, where values are not read."""
    return kind_of([DecodeOptions()], 0, columns, readable=False)


@lru_cache(1024)
def is_usual(options: DecodeOptions) -> bool:
    """Tell whether a slot with these options asks for nothing but beam search."""
    return kind_of([options], 0, 0, readable=False) == usual(0)
