"""One suite for every executor: each step equals a teacher-forced pass over the whole prefix."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.specs import SOURCE
from engine.executors.onnx.executor import OnnxExecutor
from engine.search.executor import Executor, StepInput
from tests.support.models import (
    BACKENDS,
    BESIDE,
    CONFIGS,
    EXECUTORS,
    KERNELS,
    NEEDS_LIBRARY,
    executor,
    model,
    sessions,
)
from tests.support.thorough import THOROUGH, in_turn, some

EOS, PAD, UNK = 2, 1, 3


@dataclass
class Slot:
    """One source in flight, with the tokens of each beam's whole prefix."""

    source: list[int]
    prefixes: list[list[int]] = field(default_factory=list)


def reference(name: str, slot: Slot) -> tuple[np.ndarray, np.ndarray | None]:
    """Return log-probabilities of the next token [beams, vocab] and attention [beams, source], None without a
    source."""
    scores, attention = _reference(name, tuple(slot.source), tuple(map(tuple, slot.prefixes)))
    return scores.copy(), attention


@lru_cache(1 << 14)  # each backend takes the same steps
def _reference(
    name: str, source: tuple[int, ...], prefixes: tuple[tuple[int, ...], ...]
) -> tuple[np.ndarray, np.ndarray | None]:
    net = model(name)
    with torch.inference_mode():
        memory = {k: v.expand(len(prefixes), *v.shape[1:]) for k, v in _encoded(name, source).items()}
        mask = torch.zeros(len(prefixes), len(source))
        features, attention = net.decode(torch.tensor(prefixes), memory, mask)
        scores = net.log_probs(features[:, -1])
    return scores.numpy(), None if attention is None else attention[:, -1].numpy().copy()


@lru_cache(1 << 10)
def _encoded(name: str, source: tuple[int, ...]) -> dict[str, torch.Tensor]:
    tokens = torch.tensor([source])
    return model(name).encode(tokens, torch.arange(tokens.shape[1]), torch.ones(tokens.shape))


def inputs(lane: Executor, slots: list[Slot], parents: np.ndarray, **changes: object) -> StepInput:
    n, beams, k = len(slots), lane.beams, changes.pop("k", 2 * lane.beams)
    values = {
        "tokens": np.array([[p[-1] for p in s.prefixes] for s in slots], np.int64),
        "positions": np.array([[len(s.prefixes[0]) - 1] for s in slots], np.int64),
        "parents": parents,
        "forced": np.full((n, beams), -1, np.int64),
        "banned": np.full((n, beams, 1), PAD, np.int64),
        "temperature": np.ones(n, np.float32),
        "unk_penalty": np.zeros(n, np.float32),
        "eos_penalty": np.zeros(n, np.float32),
        "lm_weight": np.zeros(n, np.float32),
    } | changes
    if lane.namespace.__name__.endswith("torch"):
        values = {k: torch.from_numpy(np.asarray(v)) for k, v in values.items()}
    return StepInput(**values, k=k)


def check(name: str, lane: Executor, slots: list[Slot], top: object) -> None:
    for i, slot in enumerate(slots):
        scores, attention = reference(name, slot)
        scores[:, PAD] = -np.inf
        want = -np.sort(-scores, axis=1)[:, : top.scores.shape[2]]
        got, ids = np.asarray(top.scores[i]), np.asarray(top.ids[i])
        # without a norm after the last layer (SliceNet) logits are large, and rounded accordingly
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(np.take_along_axis(scores, ids, 1), got, rtol=1e-5, atol=2e-5)
        if attention is None:
            assert top.attention is None
            continue
        length = len(slot.source)
        np.testing.assert_allclose(np.asarray(top.attention[i])[:, :length], attention, atol=1e-5)
        assert not np.asarray(top.attention[i])[:, length:].any()


def join(lane: Executor, slots: list[Slot], sources: list[list[int]]) -> None:
    encoded = lane.encode(sources)
    for i, source in enumerate(sources):
        lane.place(encoded, i, len(slots))
        slots.append(Slot(source, [[EOS] for _ in range(lane.beams)]))


def leave(lane: Executor, slots: list[Slot], slot: int) -> None:
    last = slots.pop()
    if slot != len(slots):
        lane.move(len(slots), slot)
        slots[slot] = last


def random_source(rng: np.random.Generator, longest: int = 40) -> list[int]:
    return [*rng.integers(4, 47, rng.integers(0, longest)).tolist(), EOS]


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_with_reordered_beams_in_moving_slots_equal_the_full_forward(backend: str, name: str) -> None:
    _check_steps(backend, name)


@pytest.mark.parametrize(("name", "backend"), in_turn(list(CONFIGS), BESIDE))
def test_further_kinds_of_steps_equal_the_full_forward(backend: str, name: str) -> None:
    _check_steps(backend, name)


def _check_steps(backend: str, name: str) -> None:
    rng = np.random.default_rng(5)
    lane = executor(backend, name, beams=3, slots=4)
    slots: list[Slot] = []
    for _ in range(some(26, 2)):
        while slots and rng.random() < 0.2:
            leave(lane, slots, int(rng.integers(len(slots))))
        if len(slots) < lane.slots and (not slots or rng.random() < 0.5):
            room = int(rng.integers(1, lane.slots - len(slots) + 1))
            join(lane, slots, [random_source(rng) for _ in range(room)])
        parents = rng.integers(0, lane.beams, (len(slots), lane.beams))
        for slot, order in zip(slots, parents, strict=True):
            if len(slot.prefixes[0]) > 1:
                slot.prefixes = [slot.prefixes[p] for p in order]
            else:
                order[:] = np.arange(lane.beams)
        top = lane.step(len(slots), inputs(lane, slots, parents), attention=True)
        check(name, lane, slots, top)
        for slot in slots:
            slot.prefixes = [[*p, int(rng.integers(4, 47))] for p in slot.prefixes]
        for i in reversed(range(len(slots))):
            if len(slots[i].prefixes[0]) > 20:
                leave(lane, slots, i)


@pytest.mark.parametrize("backend", EXECUTORS)
def test_caches_longer_than_a_block_hold_every_token_while_they_grow_and_shrink(backend: str) -> None:
    """Targets of 39 tokens need a second block of columns; later short ones free it."""
    rng = np.random.default_rng(6)
    lane, slots = executor(backend, "transformer", beams=2, slots=2), []
    for _ in range(2):
        join(lane, slots, [random_source(rng)])
        for step in range(39):
            n = len(slots)
            parents = rng.integers(0, 2, (n, 2)) if step else np.tile(np.arange(2), (n, 1))
            for slot, order in zip(slots, parents, strict=True):
                slot.prefixes = [slot.prefixes[p] for p in order]
            top = lane.step(n, inputs(lane, slots, parents), attention=True)
            check("transformer", lane, slots, top)
            for slot in slots:
                slot.prefixes = [[*p, int(rng.integers(4, 47))] for p in slot.prefixes]
        leave(lane, slots, 0)


@given(
    name=st.sampled_from(list(CONFIGS)),
    seed=st.integers(0, 2**32),
    beams=st.integers(1, 4),
    longest=st.integers(1, 90),
)
@pytest.mark.parametrize("backend", EXECUTORS)
def test_any_schedule_of_joins_moves_and_reorderings_leaves_a_slot_untouched(
    backend: str, name: str, seed: int, beams: int, longest: int
) -> None:
    rng = np.random.default_rng(seed)
    lane = executor(backend, name, beams, slots=3)
    longest = min(longest, lane.limits.source - 1)
    slots: list[Slot] = []
    for _ in range(int(rng.integers(3, 12))):
        if slots and rng.random() < 0.25:
            leave(lane, slots, int(rng.integers(len(slots))))
        if len(slots) < lane.slots and (not slots or rng.random() < 0.5):
            join(lane, slots, [random_source(rng, longest)])
        parents = rng.integers(0, beams, (len(slots), beams))
        for slot, order in zip(slots, parents, strict=True):
            slot.prefixes = [slot.prefixes[p] for p in order]
        top = lane.step(len(slots), inputs(lane, slots, parents), attention=True)
        check(name, lane, slots, top)
        for slot in slots:
            slot.prefixes = [[*p, int(rng.integers(4, 47))] for p in slot.prefixes]


@pytest.mark.parametrize("backend", EXECUTORS)
def test_moved_slot_keeps_its_ancestors(backend: str) -> None:
    rng = np.random.default_rng(4)
    lane = executor(backend, "glu", beams=3, slots=2)
    slots: list[Slot] = []
    join(lane, slots, [random_source(rng, 20) for _ in range(2)])
    for step in range(10):
        if step == 5:
            leave(lane, slots, 0)
        # the first slot keeps its beams in place, the second turns them round at every step
        turns = [0, 1][-len(slots) :]
        parents = np.array([[(beam + turn) % 3 for beam in range(3)] for turn in turns])
        for slot, order in zip(slots, parents, strict=True):
            slot.prefixes = [slot.prefixes[p] for p in order]
        check("glu", lane, slots, lane.step(len(slots), inputs(lane, slots, parents), attention=True))
        for slot in slots:
            slot.prefixes = [[*p, int(rng.integers(4, 47))] for p in slot.prefixes]


def started(backend: str, name: str = "glu", beams: int = 2) -> tuple[Executor, list[Slot]]:
    rng = np.random.default_rng(11)
    lane = executor(backend, name, beams, slots=3)
    slots: list[Slot] = []
    join(lane, slots, [random_source(rng, 20) for _ in range(3)])
    return lane, slots


@pytest.mark.parametrize("backend", EXECUTORS)
def test_forced_token_keeps_its_probability_and_excludes_all_others(backend: str) -> None:
    lane, slots = started(backend)
    forced = np.array([[9, -1], [-1, UNK], [EOS, EOS]])
    parents = np.zeros((3, 2), np.int64)
    penalty = np.array([0.0, 1.5, 0.0], np.float32)
    top = lane.step(3, inputs(lane, slots, parents, forced=forced, unk_penalty=penalty))
    scores = [reference("glu", slot)[0] for slot in slots]
    for slot, beam, token, minus in [(0, 0, 9, 0.0), (1, 1, UNK, 1.5), (2, 0, EOS, 0.0), (2, 1, EOS, 0.0)]:
        row = np.asarray(top.scores[slot, beam])
        assert int(top.ids[slot, beam, 0]) == token
        assert row[0] == pytest.approx(scores[slot][beam, token] - minus, abs=2e-5)
        assert np.isneginf(row[1:]).all()
    assert np.isfinite(np.asarray(top.scores[0, 1])).all()


@pytest.mark.parametrize("backend", EXECUTORS)
def test_bans_remove_tokens_and_never_renormalise(backend: str) -> None:
    lane, slots = started(backend)
    scores = [reference("glu", slot)[0] for slot in slots]
    best = np.argsort(-scores[0][0])[:3]
    banned = np.full((3, 2, 4), PAD)
    banned[0, 0, :3] = best
    top = lane.step(3, inputs(lane, slots, np.zeros((3, 2), np.int64), banned=banned))
    assert not set(np.asarray(top.ids[0, 0]).tolist()) & {*best.tolist(), PAD}
    kept = scores[0][0].copy()
    kept[[*best, PAD]] = -np.inf
    np.testing.assert_allclose(np.asarray(top.scores[0, 0]), -np.sort(-kept)[:4], atol=2e-5)
    kept = scores[0][1].copy()
    kept[PAD] = -np.inf
    np.testing.assert_allclose(np.asarray(top.scores[0, 1]), -np.sort(-kept)[:4], atol=2e-5)


@pytest.mark.parametrize("penalty", [2.0, -3.0, np.inf])
@pytest.mark.parametrize("backend", EXECUTORS)
def test_unk_penalty_lowers_only_unk_even_if_infinite(backend: str, penalty: float) -> None:
    lane, slots = started(backend)
    values = np.array([penalty, 0.0, 0.0], np.float32)
    top = lane.step(3, inputs(lane, slots, np.zeros((3, 2), np.int64), unk_penalty=values, k=50))
    for slot in range(3):
        want = reference("glu", slots[slot])[0]
        want[:, PAD] = -np.inf
        want[:, UNK] -= values[slot]
        np.testing.assert_allclose(
            np.asarray(top.scores[slot]), -np.sort(-want)[:, : top.scores.shape[2]], atol=2e-5
        )


@pytest.mark.parametrize("backend", EXECUTORS)
def test_temperature_divides_the_logits_of_its_slot(backend: str) -> None:
    lane, slots = started(backend)
    values = np.array([0.5, 1.0, 2.0], np.float32)
    top = lane.step(3, inputs(lane, slots, np.zeros((3, 2), np.int64), temperature=values))
    for slot in range(3):
        scores = reference("glu", slots[slot])[0] / values[slot]
        scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
        scores[:, PAD] = -np.inf
        np.testing.assert_allclose(np.asarray(top.scores[slot]), -np.sort(-scores)[:, :4], atol=3e-5)


@pytest.mark.parametrize("backend", EXECUTORS)
def test_nan_scores_are_impossible_and_stay_in_their_slot(backend: str) -> None:
    lane, slots = started(backend)
    want = lane.step(3, inputs(lane, slots, np.zeros((3, 2), np.int64)))
    lane, slots = started(backend)
    values = np.array([1.0, np.nan, 1.0], np.float32)
    top = lane.step(3, inputs(lane, slots, np.zeros((3, 2), np.int64), temperature=values))
    assert np.isneginf(np.asarray(top.scores[1])).all()
    for slot in (0, 2):
        np.testing.assert_array_equal(np.asarray(top.scores[slot]), np.asarray(want.scores[slot]))


@pytest.mark.parametrize("backend", EXECUTORS)
def test_more_candidates_than_tokens_returns_all_tokens(backend: str) -> None:
    lane, slots = started(backend)
    top = lane.step(3, inputs(lane, slots, np.zeros((3, 2), np.int64), k=64))
    assert top.scores.shape == top.ids.shape == (3, 2, 47)


@pytest.mark.parametrize("name", list(CONFIGS))
def test_onnx_equals_torch_in_fp32(name: str) -> None:
    tops = []
    for backend in ("onnx-pure", "torch"):
        lane, slots = started(backend, name)
        for step in range(6):
            tops.append(lane.step(3, inputs(lane, slots, np.zeros((3, 2), np.int64)), attention=True))
            for slot in slots:
                slot.prefixes = [[*p, 4 + step] for p in slot.prefixes]
    for a, b in zip(tops[:6], tops[6:], strict=True):
        np.testing.assert_allclose(np.asarray(a.scores), b.scores.numpy(), atol=2e-5)
        if CONFIGS[name].reads_source:
            np.testing.assert_allclose(np.asarray(a.attention), b.attention.numpy(), atol=1e-5)


@pytest.mark.parametrize("backend", EXECUTORS)
def test_longest_allowed_source_is_encoded_with_any_padding(backend: str) -> None:
    lane = executor(backend, "odd limit", beams=2, slots=2)
    assert lane.limits.source == 61  # padded to 64: beyond the last position
    slots: list[Slot] = []
    join(lane, slots, [[*range(4, 46), *range(4, 22), EOS], [5, EOS]])
    top = lane.step(2, inputs(lane, slots, np.zeros((2, 2), np.int64)), attention=True)
    check("odd limit", lane, slots, top)


@pytest.mark.parametrize("kernels", KERNELS)
def test_int8_rows_do_not_depend_on_their_neighbours(kernels: str) -> None:
    rng = np.random.default_rng(2)
    lane = OnnxExecutor(sessions("glu", "int8", kernels=kernels), beams=2, slots=4)
    sources = [random_source(rng, 30) for _ in range(4)]
    together: list[Slot] = []
    join(lane, together, sources)
    top = lane.step(4, inputs(lane, together, np.zeros((4, 2), np.int64)))
    for i, source in enumerate(sources):
        alone: list[Slot] = []
        join(lane, alone, [source])
        got = lane.step(1, inputs(lane, alone, np.zeros((1, 2), np.int64)))
        np.testing.assert_array_equal(got.scores[0], top.scores[i])
        np.testing.assert_array_equal(got.ids[0], top.ids[i])


@pytest.mark.parametrize("kernels", KERNELS)
def test_int8_is_close_to_fp32(kernels: str) -> None:
    tops = []
    for precision in ("fp32", "int8"):
        rng = np.random.default_rng(2)
        lane = OnnxExecutor(sessions("glu", precision, kernels=kernels), beams=2, slots=4)
        slots: list[Slot] = []
        join(lane, slots, [random_source(rng, 30) for _ in range(4)])
        tops.append(lane.step(4, inputs(lane, slots, np.zeros((4, 2), np.int64), k=46)))
    full, quantised = (np.take_along_axis(t.scores, np.argsort(t.ids, axis=2), axis=2) for t in tops)
    difference = np.abs(np.where(np.isinf(full), 0, full - quantised))
    assert difference.max() < 0.3
    assert np.abs(difference).mean() < 0.05


READERS = [name for name, config in CONFIGS.items() if config.reads_source]


@NEEDS_LIBRARY
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", READERS if THOROUGH else ["glu", "transformer", "slicenet", "convs2s"])
def test_native_encoder_returns_the_same_bits_for_any_padding(name: str, precision: str) -> None:
    lane = OnnxExecutor(sessions(name, precision, kernels="native"), 1, 1)
    rng = np.random.default_rng(5)
    for length in (1, 3, 13, 21, 33, 57):
        source = [*rng.integers(4, 40, length - 1).tolist(), EOS]
        kept = lane.encode([source]).memory[0]
        longer = lane.encode([source, [*source[:-1], 5, 5, EOS]]).memory[0]
        for spec in lane.memory.specs:
            until = tuple(slice(length) if d == SOURCE else slice(None) for d in spec.shape)
            np.testing.assert_array_equal(kept[spec.name][until], longer[spec.name][until])
