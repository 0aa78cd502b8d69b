"""An independent search: plain lists, every prefix recomputed. Shares no code with engine/search/beam.py.

It follows docs/reference.md 6 and 6.2 (fairseq's generator), with the fixed n-gram rule of 6.1. Cumulative
scores are rounded to float32 after each addition, as the engine's arithmetic is, so that near ties fall
alike.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from engine.types import DecodeOptions

CUT = 64  # number of best tokens from which sampling draws
WORD = 2**64


class Vocabulary(NamedTuple):
    pad: int = 1
    eos: int = 2
    unk: int = 3


class Found(NamedTuple):
    tokens: list[int]
    score: float
    token_scores: list[float]
    finish: str


class Row(NamedTuple):
    """A running hypothesis: its tokens and the cumulative score after each token."""

    tokens: tuple[int, ...]
    sums: tuple[float, ...]

    @property
    def total(self) -> float:
        return self.sums[-1] if self.sums else 0.0


def f32(x: float) -> float:
    return float(np.float32(x))


def oracle(
    logprobs: Callable[[tuple[int, ...]], Sequence[float]],
    options: DecodeOptions,
    source_length: int,
    target_limit: int,
    vocabulary: Vocabulary | None = None,
    minimum: Callable[[int], int] | None = None,
    attention: Callable[[tuple[int, ...]], Sequence[Sequence[float]]] | None = None,
) -> list[Found]:
    """Return the n_best hypotheses.

    logprobs: function from a prefix (without the initial end-of-sentence) to log-probabilities.
    options: options of the search.
    source_length: number of source tokens.
    target_limit: longest target of the model.
    vocabulary: special tokens.
    minimum: schedule of minimum lengths, by step, instead of the options' (docs/reference.md 6.3).
    attention: function from a prefix to the weights of each step up to the next one, for the coverage
        penalty.
    """
    v = vocabulary or Vocabulary()
    longest = min(int(options.max_length_a * source_length + options.max_length_b), target_limit)
    if options.max_length is not None:
        longest = min(longest, options.max_length)
    shortest = min(int(options.min_length_a * source_length + options.min_length), longest)
    width = options.beam_size

    def allowed(row: Row) -> dict[int, float]:
        step = len(row.tokens)
        short = step < (minimum(step) if minimum else shortest)
        scores = tempered(logprobs(row.tokens), options.temperature)
        scores[v.unk] -= options.unk_penalty
        if step == longest:
            tokens = [v.eos]
        elif step < options.free_prefix:
            return {options.prefix[step]: 0.0}
        elif step < len(options.prefix):
            tokens = [options.prefix[step]]
        else:
            taboo = repeating((v.eos, *row.tokens), options.no_repeat_ngram_size)
            taboo |= {t for t, most in options.quotas if row.tokens.count(t) >= most}
            tokens = [
                t for t in range(len(scores)) if t != v.pad and t not in taboo and not (t == v.eos and short)
            ]
        return {t: f32(scores[t]) for t in tokens if scores[t] > -math.inf}

    def divisor(length: int) -> float:
        if not options.normalize_scores:
            return 1.0
        base = (5 + length) / 6 if options.length_normalization == "wu" else length
        return base**options.length_penalty

    def coverage(row: Row) -> float:
        if not options.coverage_penalty or attention is None:
            return 0.0
        mass = np.asarray(attention(row.tokens[:-1]), np.float64).sum(0)[: source_length - 1]
        return options.coverage_penalty * float(np.log(np.clip(mass, 1e-10, 1.0)).sum())

    def score(row: Row) -> float:
        """Return the score of a finished hypothesis. Its end-of-sentence token earns no word reward."""
        words = len(row.tokens) - 1
        return (row.total + options.word_reward * words) / divisor(len(row.tokens)) + coverage(row)

    def race(row: Row) -> float:
        """Return the value by which candidates of one step are ranked."""
        ending = options.word_reward if row.tokens[-1] == v.eos else 0.0
        weighed = coverage(row) * divisor(len(row.tokens)) if options.stepwise_penalty else 0.0
        return row.total - ending + weighed

    finished: list[Row] = []
    rows: list[Row | None] = [Row((), ())]
    if options.sampling:
        rows = rows * width
    elif options.diverse_groups > 1:
        rows = rows * options.diverse_groups
    alike: dict[tuple[int, int], float] = {}
    for step in range(longest + 1):
        if options.sampling:
            candidates = draws(rows, allowed, options, step)
        elif options.diverse_groups > 1:
            candidates = diverse(rows, allowed, options, alike)
        else:
            candidates = sorted(best(rows, allowed), key=lambda row: -race(row))[: 2 * width]
        room = width - len(finished) if options.diverse_groups > 1 else width
        for row in candidates[:room]:
            if row is not None and row.tokens[-1] == v.eos and len(finished) < width:
                finished.append(row)
        if len(finished) == width:
            break
        if options.sampling:
            rows = [None if row is None or row.tokens[-1] == v.eos else row for row in candidates]
        elif options.diverse_groups > 1:
            # the candidates in the places of finished hypotheses come last, unchanged
            lost = [r >= room or (c is not None and c.tokens[-1] == v.eos) for r, c in enumerate(candidates)]
            rows = [c for c, gone in zip(candidates, lost, strict=True) if not gone]
            rows += [c for c, gone in zip(candidates, lost, strict=True) if gone]
        else:
            rows = [row for row in candidates if row is None or row.tokens[-1] != v.eos][:width]

    finished.sort(key=lambda row: -score(row))
    return [
        Found(
            list(row.tokens[:-1]),
            score(row),
            [b - a for a, b in zip((0.0, *row.sums), row.sums, strict=False)],
            "length" if len(row.tokens) - 1 == longest else "stop",
        )
        for row in finished[: options.n_best]
    ]


def tempered(scores: Sequence[float], temperature: float) -> list[float]:
    scores = [s / temperature if s == s else -math.inf for s in scores]
    top = max(scores)
    if top == -math.inf or temperature == 1.0:
        return scores
    norm = top + math.log(math.fsum(math.exp(s - top) for s in scores))
    return [s - norm for s in scores]


def repeating(history: tuple[int, ...], n: int) -> set[int]:
    """Return the tokens that would repeat an n-gram of the history. The history begins with
    end-of-sentence."""
    if n == 0:
        return set()
    if n == 1:
        return set(history[1:])
    tail = history[len(history) - n + 1 :]
    if len(history) < n:
        return set()
    return {history[i + n - 1] for i in range(len(history) - n + 1) if history[i : i + n - 1] == tail}


def best(rows, allowed, penalty=None):
    """Return all continuations, best first. `penalty` is subtracted from tokens that earlier groups used."""
    found = []
    for row in rows:
        if row is not None:
            for token, score in allowed(row).items():
                if penalty:
                    score = f32(score - f32(penalty.get(token, 0.0)))
                found.append(grow(row, token, score))
    return sorted(found, key=lambda r: -r.total)


def grow(row: Row, token: int, score: float) -> Row:
    return Row((*row.tokens, token), (*row.sums, f32(row.total + score)))


def diverse(rows, allowed, options, alike):
    """Return the candidates of fairseq main's groups, interleaved, None for each candidate that a group
    lacks.

    alike[g, h]: number of equal choices of groups g and h so far, rank by rank, discounted at each step.
    """
    groups, strength = options.diverse_groups, options.diverse_strength
    quota = options.beam_size // groups
    chosen = []
    for g in range(groups):
        penalty: dict[int, float] = {}
        for h in range(g):
            for row in chosen[h]:
                if row is not None:
                    cost = strength * (1 + alike.get((g, h), 0.0))
                    penalty[row.tokens[-1]] = penalty.get(row.tokens[-1], 0.0) + cost
        mine = best(rows[g::groups], allowed, penalty)[:quota]
        chosen.append(mine + [None] * (quota - len(mine)))
    for g in range(groups):
        for h in range(groups):
            pairs = zip(chosen[g], chosen[h], strict=True)
            same = sum(a is not None and b is not None and a.tokens[-1] == b.tokens[-1] for a, b in pairs)
            alike[g, h] = options.diverse_discount * (alike.get((g, h), 0.0) + same)
    return [chosen[g][i] for i in range(quota) for g in range(groups)]


def draws(rows, allowed, options, step):
    out = []
    for beam, row in enumerate(rows):
        ranked = sorted(allowed(row).items(), key=lambda c: (-c[1], c[0])) if row is not None else []
        ranked = ranked[: min(CUT, options.top_k or CUT)]
        if options.top_p < 1:
            mass, size = 0.0, 0
            while size < len(ranked) and mass < options.top_p:
                mass += math.exp(ranked[size][1])
                size += 1
            ranked = ranked[:size]
        if not ranked:
            out.append(None)
            continue
        reached = list(accumulate(math.exp(score - ranked[0][1]) for _, score in ranked))
        target = noise(options.seed, beam, step) * reached[-1]
        chosen = next(c for c, r in zip(ranked, reached, strict=True) if r > target)
        out.append(grow(row, *chosen))
    return out


def noise(seed: int, beam: int, position: int) -> float:
    """Return a uniform number of [0, 1): splitmix64 over three counters, in unsigned integers."""
    word = 0
    for counter in (seed, beam, position):
        word = ((word ^ counter) + 0x9E3779B97F4A7C15) % WORD
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
        word ^= word >> 31
    return (word >> 11) / 2**53
