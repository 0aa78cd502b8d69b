"""Placeholders, batches and the copying task."""

from __future__ import annotations

import numpy as np

from training import data


def test_shared_texts_become_placeholders_on_both_sides() -> None:
    pairs = [("Tom kam am 3.5. nach Boston.", "Tom came to Boston on 3.5.")] * 400
    replaced = data.with_placeholders(pairs, 0.25, seed=1)
    changed = [pair for pair in replaced if pair != pairs[0]]
    assert 60 < len(changed) < 140
    for source, target in changed:
        used = [p for p in data.PLACEHOLDERS if p in source]
        assert len(used) == 3
        assert sorted(used) == sorted(p for p in data.PLACEHOLDERS if p in target)
        assert "Tom" not in source + target
        assert "Boston" not in source + target


def test_batches_contain_every_pair_once_within_the_budget() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(4, 50, rng.integers(1, 30)).astype(np.int32) for _ in range(300)]
    pairs = data.Pairs(rows, rows[::-1])
    batches = data.batches(pairs, budget=200, seed=3)
    assert sorted(i for batch in batches for i in batch) == list(range(300))
    for batch in batches:
        widest = max(max(len(pairs.sources[i]), len(pairs.targets[i])) for i in batch)
        assert widest * len(batch) <= 200 or len(batch) == 1


def test_targets_of_the_copying_task_are_parts_of_their_sources() -> None:
    sources = [np.array([*range(10, 10 + n), 2], np.int32) for n in (1, 5, 60, 200)]
    pieces = data.copying_task(data.Pairs(sources, sources), seed=0)
    for target, piece, source in zip(pieces.targets, pieces.sources, sources, strict=True):
        assert target[-1] == piece[-1] == 2
        assert len(target) > 1
        assert set(target) <= set(piece) <= set(source)
        assert (np.diff(target[:-1]) == 1).all()
