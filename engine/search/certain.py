"""The tokens that all hypotheses that can still win have in common: certain before the search ends.

The best finished hypothesis can win. An unfinished one can win unless an upper bound of its final score is
below the best finished score.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.search.penalties import MARIAN, scorer
from engine.search.state import SearchState, to_numpy, trace
from engine.types import DecodeOptions

# options under which a score is a sum of log-probabilities, none above 0, and its normalisation
BOUNDED: Final = frozenset(
    {
        "beam_size",
        "n_best",
        "length_penalty",
        "length_normalization",
        "beam_rule",
        "normalize_scores",
        "min_length",
        "min_length_a",
        "max_length",
        "max_length_a",
        "max_length_b",
        "no_repeat_ngram_size",
        "quotas",
        "unk_penalty",
        "lm_weight",
        "temperature",
        "prefix",
        "sampling",
        "top_k",
        "top_p",
        "seed",
        "diverse_groups",
        "diverse_strength",
        "diverse_discount",
        "alignment",
    }
)
PLAIN: Final = DecodeOptions()
SLACK: Final = 1e-4  # largest relative error of a sum of float32 log-probabilities


def certain_tokens(state: SearchState, slot: int, options: DecodeOptions, known: int = 0) -> list[int]:
    """Return the target tokens with which the winning hypothesis of a slot is certain to begin.

    state: state of the search, or a copy of some of its slots (`engine.search.state.SNAPSHOT`).
    slot: row of the state.
    options: options of the slot's request.
    known: number of tokens that an earlier call returned; these are not compared again.

    A later call never retracts a token. Reads values back from the device.
    """
    step, count, width = (int(x[slot]) for x in (state.step, state.kept_count, state.width))
    total = to_numpy(state.total[slot, :width])
    rows = np.flatnonzero(total > -np.inf)
    ended: list[tuple[int, int]] = []
    if count:
        ended, rows = _contenders(state, slot, options, rows, total)
    # column and row of the last token of each hypothesis that can win
    candidates = [*((step, row) for row in rows.tolist()), *ended]
    if not candidates:
        return []
    length = min(at for at, _ in candidates)
    tokens, trail = (to_numpy(table[slot, : step + 1, :]).tolist() for table in (state.tokens, state.trail))
    known = min(known, length)
    # rows of each candidate's ancestors, by column, after the known tokens
    paths = [trace(trail, row, at, known)[1 : length - known + 1] for at, row in candidates]
    certain = known  # number of tokens that all paths share
    for column, across in enumerate(zip(*paths, strict=True), known + 1):
        if len({tokens[column][row] for row in across}) > 1:
            break
        certain = column
    at, row = candidates[0]
    path = trace(trail, row, at)
    return [tokens[column][path[column]] for column in range(1, certain + 1)]


def _contenders(
    state: SearchState, slot: int, options: DecodeOptions, rows: Any, total: Any
) -> tuple[list[tuple[int, int]], Any]:
    """Return the hypotheses that can still win: column and row of the last token of each finished one, and
    the rows of the unfinished ones.

    rows: rows of the unfinished hypotheses.
    total: cumulative score of each row.
    """
    count = int(state.kept_count[slot])
    steps, trail = (to_numpy(x[slot, :count]).tolist() for x in (state.kept_steps, state.kept_trail))
    ended = list(zip(steps, trail, strict=True))
    if not _bound_holds(options):
        return ended, rows
    sums = to_numpy(state.kept_scores[slot, :count]).tolist()
    step, longest = int(state.step[slot]), int(state.longest[slot])
    cut = longest if options.beam_rule == MARIAN else -1
    score = scorer(options)
    # the length counts end-of-sentence, which a hypothesis cut at Marian's limit lacks
    final = [score(total, at + (at != cut)) for total, at in zip(sums, steps, strict=True)]
    leader = int(np.argmax(final))
    best = np.array([_score_bound(float(total[row]), step + 1, longest + 1, options) for row in rows])
    return [ended[leader]], rows[best >= final[leader]]


def _score_bound(total: float, shortest: int, longest: int, options: DecodeOptions) -> float:
    """Return an upper bound of an unfinished hypothesis's final score; lengths include end-of-sentence.

    The sum can only fall, and a negative sum over a power of the length is largest at one of the two lengths.
    """
    # the sum may be this much too low
    total += SLACK * (1 - total)
    if total >= 0:
        return math.inf
    score = scorer(options)
    return max(score(total, shortest), score(total, longest))


def _bound_holds(options: DecodeOptions) -> bool:
    """Return whether `_score_bound` is valid: no option outside `BOUNDED` is set."""
    defaults = {name: getattr(PLAIN, name) for name in BOUNDED}
    return options.unk_penalty >= 0 and replace(options, **defaults) == PLAIN
