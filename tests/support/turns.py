"""Steps in which slots leave, sources grow and bans change, to compare lanes (TensorRT) with torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from engine.search.executor import Executor, StepInput, TopK
from tests.engine.executors.test_executors import Slot, inputs, join, started

TURNS, LEAVES, GROWS = 14, 6, 9
VOCAB = 47


def turns(name: str, lanes: Sequence[Executor]) -> Iterator[tuple[StepInput, list[TopK]]]:
    """Yield the input of each step, and the answers of torch and of each lane, on the CPU.

    name: name of the model, of `tests.support.models.CONFIGS`.
    lanes: lanes with equal numbers of beams.
    """
    wide, slots = started("torch", name, lanes[0].beams)
    every: list[tuple[Executor, list[Slot]]] = [(wide, slots), *((lane, []) for lane in lanes)]
    for lane, held in every[1:]:
        join(lane, held, [slot.source for slot in slots])
    rng = np.random.default_rng(1)
    for turn in range(TURNS):
        if turn == LEAVES:  # the last leaves: slots 0 and 1 go on, in the shapes of more slots
            for _, held in every:
                held.pop()
        if turn == GROWS:  # a longer source than any before: blocks move to other addresses
            for lane, held in every:
                join(lane, held, [[*range(4, 46), *range(4, 30), 2]])
        parents = rng.integers(0, wide.beams, (len(slots), wide.beams))
        for slot, beams in zip(slots, parents, strict=True):
            slot.prefixes = [slot.prefixes[p] for p in beams]
        bans = rng.integers(4, VOCAB, (len(slots), wide.beams, 1 + turn % 3))
        asked = inputs(wide, slots, parents, k=40, banned=bans)
        yield asked, [_answer(lane, asked) for lane, _ in every]
        for slot in slots:
            slot.prefixes = [[*p, int(rng.integers(4, VOCAB))] for p in slot.prefixes]


def _answer(lane: Executor, asked: StepInput) -> TopK:
    fed = StepInput(*(value.to(lane.device) for value in asked[:-1]), asked.k)
    return TopK(*(None if v is None else v.cpu() for v in lane.step(len(asked.tokens), fed, attention=True)))


def scattered(top: TopK) -> torch.Tensor:
    """Return the log-probabilities [n, beams, vocab] of candidates, -inf for other tokens."""
    n, beams, _ = top.scores.shape
    return torch.full((n, beams, VOCAB), -torch.inf).scatter(2, top.ids, top.scores.float())


def furthest(one: TopK, other: TopK) -> float:
    """Return the greatest difference between the log-probabilities of candidates that both answers have."""
    assert one.scores.shape == other.scores.shape
    assert (one.attention is None) == (other.attention is None)
    assert one.attention is None or one.attention.shape[:2] == other.attention.shape[:2]  # widths may differ
    a, b = scattered(one), scattered(other)
    both = torch.isfinite(a) & torch.isfinite(b)
    return float((a - b)[both].abs().max())
