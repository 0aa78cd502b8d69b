"""What kind of step some slots need: known to the host, so that nothing else is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.search import penalties
from engine.types import DecodeOptions


class Kind(NamedTuple):
    """What a step computes beyond the sizes of its arrays: what its slots ask for, known to the host. Steps
    of one kind and as many slots are the same operators on the same shapes, but where values may be read.

    columns: of the history that it is looked for in.
    ngram: the largest size that may not repeat, 0 for none.
    quotas: the most tokens of which a slot may have so many only, 0 for none.
    ranked, sampled: whether any slot searches, and samples.
    groups: the most diverse ones of a slot.
    coverage, stepwise: whether such penalties count.
    prefixed: whether any slot's target begins with tokens that it was given.
    free: whether any forced token costs nothing.
    greedy: whether every slot keeps one hypothesis, and values may be read.
    simple: whether rows go on with the first candidates as long as none ends, and values may be read.
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

    @property
    def histories(self) -> bool:
        """Whether a step looks at what hypotheses hold already."""
        return self.ngram > 0 or self.quotas > 0


def kind_of(options: Sequence[DecodeOptions], beams: int, columns: int, *, readable: bool) -> Kind:
    """Find the kind of step that slots with these options need.

    beams: of each slot.
    columns: of the history.
    readable: whether a step may read values back.
    """
    plain = all(
        o.beam_size == beams and o.beam_rule != penalties.MARIAN and o.diverse_groups == 1 for o in options
    )
    return Kind(
        columns=columns,
        ngram=max(o.no_repeat_ngram_size for o in options),
        quotas=max(len(o.quotas) for o in options),
        ranked=not all(o.sampling for o in options),
        sampled=any(o.sampling for o in options),
        groups=max(o.diverse_groups for o in options),
        coverage=any(o.coverage_penalty for o in options),
        stepwise=any(o.stepwise_penalty for o in options),
        prefixed=any(o.prefix for o in options),
        free=any(o.free_prefix or o.beam_rule == penalties.MARIAN for o in options),
        greedy=readable and beams == 1 and not any(o.sampling or o.coverage_penalty for o in options),
        # whether candidates count by their rank alone, all of them
        simple=readable and plain,
    )


def common(options: DecodeOptions) -> bool:
    """Say whether a slot with these options asks nothing of a step but beam search."""
    draws = options.sampling or options.diverse_groups > 1
    bans = options.no_repeat_ngram_size or options.quotas
    ranks = options.coverage_penalty or options.stepwise_penalty or options.beam_rule == penalties.MARIAN
    return not (draws or bans or ranks or options.free_prefix)
