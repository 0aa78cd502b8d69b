"""Kinds of steps: a step computes only what the options of its slots need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Final, NamedTuple

from engine.search import penalties
from engine.types import DecodeOptions

# options that kernels and the native library support, whatever their values: any other option that is not at
# its default, also one added later, takes the reference path (`engine.search.beam`)
PLAIN_OPTIONS: Final = frozenset(
    (
        *("beam_size", "n_best", "length_penalty", "normalize_scores", "length_normalization", "word_reward"),
        *("beam_rule", "min_length", "min_length_a", "max_length", "max_length_a", "max_length_b"),
        *("unk_penalty", "lm_weight", "temperature", "prefix", "free_prefix", "alignment"),
        *("sampling", "top_k", "top_p", "seed", "diverse_strength", "diverse_discount"),
    )
)
# options that `engine.search.greedy` supports; tokens are banned before it runs
GREEDY_OPTIONS: Final = (PLAIN_OPTIONS - {"sampling"}) | {"no_repeat_ngram_size", "quotas"}
# options under which the rows continue with the first candidates unless a hypothesis ends
SIMPLE_OPTIONS: Final = (PLAIN_OPTIONS - {"beam_rule"}) | {
    *("no_repeat_ngram_size", "quotas", "coverage_penalty", "stepwise_penalty")
}


class Kind(NamedTuple):
    """What a step computes. Two steps of equal kind and slot count run the same operators on the same shapes,
    unless values may be read back.

    columns: length of the token history that is searched for repeats.
    ngram: largest size of n-grams that may not repeat, 0 for none.
    quotas: largest number of tokens that one slot limits, 0 for none.
    ranked, sampled: whether any slot searches, and whether any slot samples.
    groups: largest number of diverse groups of a slot.
    coverage, stepwise: whether any slot has such a penalty.
    prefixed: whether any slot's target has a given prefix; only if values may be read.
    free: whether any forced token costs nothing.
    greedy: whether every slot keeps one hypothesis; only if values may be read.
    simple: whether rows continue with the first candidates unless a hypothesis ends; only if values may be
        read.
    plain: whether kernels or the native library may run the search: no slot sets an option outside
        `PLAIN_OPTIONS`.
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
        """Whether a step reads the earlier tokens of hypotheses."""
        return self.ngram > 0 or self.quotas > 0


def kind_of(options: Sequence[DecodeOptions], beams: int, columns: int, *, readable: bool) -> Kind:
    """Return the kind of step that slots with these options need.

    options: options of each slot; at least one.
    beams: number of rows of each slot.
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
    """Return the names of the options that are not at their defaults."""
    return frozenset(field.name for field in fields(options) if getattr(options, field.name) != field.default)


@lru_cache(16)
def usual(columns: int) -> Kind:
    """Return the kind of step that only does beam search and reads no values back."""
    return kind_of([DecodeOptions()], 0, columns, readable=False)


@lru_cache(1024)
def is_usual(options: DecodeOptions) -> bool:
    """Return whether these options need only beam search."""
    return kind_of([options], 0, 0, readable=False) == usual(0)
