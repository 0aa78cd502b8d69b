"""The search kernels equal the array code bit for bit, over random searches."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import array_api_compat.torch as xp
import numpy as np
import pytest
import torch

from engine.bundle.specs import StateSpec
from engine.executors.cuda.search_kernels import RingArrays, SearchKernels, Tokens
from engine.executors.cuda.snapshots import finished_dtype, hypotheses_of
from engine.executors.history import Rings
from engine.kernels.calls import Kernels
from engine.kernels.launches import Address
from engine.kernels.selection import PartialSelection
from engine.search.beam import BeamSearch
from engine.search.executor import SlotRequest, TopK
from engine.search.finished import finished_hypotheses
from engine.search.state import FIELDS
from engine.types import CANDIDATES, DecodeOptions, Limits
from tests.support import cases
from tests.support.host_kernels import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
PAD, EOS, VOCAB, SLOTS, TARGET = 1, 2, 23, 4, 12


def started(beams: int, jobs: list[DecodeOptions], target: int = TARGET) -> tuple[BeamSearch, Rings]:
    limits = Limits(source=9, target=target, beams=beams, vocab=VOCAB)
    lane = SimpleNamespace(slots=SLOTS, beams=beams, limits=limits, pad=PAD, eos=EOS, start=EOS)
    lane.namespace, lane.device = xp, "cpu"
    search = BeamSearch(lane, readable=False)
    for slot, options in enumerate(jobs):
        search.start(slot, options, 5 + slot)
    rings = Rings([StateSpec(str(w), w, 1) for w in (1, 3, 4)], SLOTS, beams, xp, "cpu", torch.float32)
    rings.clock = torch.zeros(1, dtype=torch.int64)
    return search, rings


def options_of(g: np.random.Generator, beams: int, kind: str) -> DecodeOptions:
    """Return random options that the kernels support."""
    made = cases.options(g, VOCAB, beams, longest=TARGET)
    made = replace(made, no_repeat_ngram_size=0, quotas=(), coverage_penalty=0.0, diverse_groups=1)
    if g.random() < 0.2 and made.prefix:
        made = replace(made, free_prefix=int(g.integers(1, len(made.prefix) + 1)))
    if kind == "sampled" and g.random() < 0.6:
        return replace(
            DecodeOptions(beam_size=beams, sampling=True, seed=int(g.integers(1 << 40))), top_k=7, top_p=0.8
        )
    return replace(made, sampling=False)


def candidates(g: np.random.Generator, n: int, beams: int, k: int) -> TopK:
    """Return random candidates of few distinct scores, so that many tie; some are -inf."""
    scores = np.sort(-g.integers(0, 6, (n, beams, k)) / 4, axis=2)[:, :, ::-1].astype(np.float32).copy()
    scores[g.random((n, beams)) < 0.1, k // 2 :] = -np.inf
    ids = np.stack([g.permutation(max(VOCAB, k))[:k] for _ in range(n * beams)]).reshape(n, beams, k) % VOCAB
    return TopK(torch.from_numpy(scores), torch.from_numpy(ids), None)


def same(one: object, other: object, where: str) -> None:
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert (
            torch.equal(a, b)
            or torch.equal(a.isnan(), b.isnan())
            and torch.equal(a.nan_to_num(), b.nan_to_num())
        ), (
            where,
            name,
        )


@pytest.mark.parametrize("kind", ["ranked", "sampled"])
@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("descending", [False, True])
def test_search_kernels_leave_the_same_state_as_the_array_code(host, beams, kind, descending):
    host.descending = descending
    for seed in range(4):
        g = np.random.default_rng([seed, beams])
        jobs = [options_of(g, beams, kind) for _ in range(SLOTS)]
        (plain, rings), (own, others) = started(beams, jobs), started(beams, jobs)
        kernels = SearchKernels(host, own.state, Tokens(PAD, EOS))
        windows = torch.tensor([[w, others.rows[w].data_ptr()] for w in others.windows])
        for step in range(TARGET + 2):
            n = int(g.integers(1, SLOTS + 1))  # later slots are idle from then on
            count, bucket = torch.tensor([n]), min(SLOTS, n + 1)
            sampled = any(o.sampling for o in jobs)
            step_kind = plain.kind(bucket)._replace(simple=False, sampled=sampled, ngram=0, ranked=True)
            plain.idle(count, bucket)
            wanted = plain.inputs(bucket, step_kind)
            rows = rings.advance(wanted.parents)
            forced, banned = kernels.begin_step(
                count, RingArrays(others.ancestors, others.clock, windows), bucket
            )
            where = f"seed {seed}, step {step}"
            assert torch.equal(forced, wanted.forced), where
            assert torch.equal(banned, wanted.banned), where
            assert torch.equal(rings.ancestors, others.ancestors), where
            assert all(torch.equal(rows[w], others.rows[w][:bucket]) for w in rows), where
            top = candidates(g, bucket, beams, max(2 * beams, CANDIDATES) if sampled else 2 * beams)
            plain.absorb(top, bucket, step_kind)
            kernels.end_step(top, others.clock)
            same(plain.state, own.state, where)
            rings.clock += 1
            assert torch.equal(others.clock, rings.clock), where


@pytest.mark.parametrize("kind", ["ranked", "sampled"])
@pytest.mark.parametrize("beams", [1, 3, 9])
@pytest.mark.parametrize("descending", [False, True])
def test_end_step_equals_for_one_list_of_candidates_and_for_parts_of_the_vocabulary(
    host, beams, kind, descending
):
    """Some rows are forced, have few allowed tokens, or contain NaN; a block has fewer than 9 warps."""
    host.descending, vocab, kernels = descending, 2048, Kernels(host)
    g = np.random.default_rng(beams)
    jobs = [options_of(g, beams, kind) for _ in range(SLOTS)]
    (one, _), (other, _) = started(beams, jobs), started(beams, jobs)
    k, clock = CANDIDATES if kind == "sampled" else 2 * beams, torch.zeros(1, dtype=torch.int64)
    for step in range(6):
        logits = torch.from_numpy(g.normal(size=(SLOTS, beams, vocab)).astype(np.float32) * 3).round()
        forced = torch.from_numpy(np.where(g.random((SLOTS, beams)) < 0.2, 7, -1))
        banned = torch.full((SLOTS, beams, vocab - 3), PAD)
        banned[0, 0] = torch.arange(3, vocab)
        logits[1, 0, 5] = torch.nan
        penalties = torch.rand(SLOTS), torch.rand(SLOTS)
        given = logits, (forced, banned, *penalties), 3, EOS, k
        found = kernels.scan(*given)
        assert isinstance(found, PartialSelection) and found.scores.shape[1] > 1
        for search, top in (
            (one, TopK(*kernels.select(*given), None)),
            (other, TopK(None, None, None, found)),
        ):
            SearchKernels(host, search.state, Tokens(PAD, EOS)).end_step(top, clock)
        same(one.state, other.state, f"step {step}")


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("descending", [False, True])
def test_follow_back_kernel_returns_the_hypotheses_of_the_host_code(host, beams, descending):
    """Answers have up to 150 tokens, more than the kernel follows at once."""
    host.descending = descending
    for seed, longest in ((0, 4), (1, 12), (2, 64), (3, 65), (4, 150)):
        g = np.random.default_rng([seed, beams])
        jobs = [replace(options_of(g, beams, "ranked"), n_best=beams, word_reward=0.5) for _ in range(SLOTS)]
        lengths = {"min_length": 0, "min_length_a": 0.0, "max_length_b": 200, "prefix": (), "free_prefix": 0}
        jobs = [replace(o, **lengths, max_length=longest - i % 2) for i, o in enumerate(jobs)]
        search, _ = started(beams, jobs, longest)
        state, kind = search.state, search.kind(SLOTS)._replace(simple=False, ranked=True)
        for step in range(longest + 1):  # some end early, the others at the end
            top = candidates(g, SLOTS, beams, 2 * beams)
            early = torch.from_numpy(g.random(top.ids.shape) < 2 / longest) & (top.ids == EOS)
            ends = early if step < longest else torch.ones_like(early)
            search.absorb(top._replace(ids=torch.where(ends, EOS, top.ids.clamp(min=3))), SLOTS, kind)
        # paths that change rows at every column
        for table in (state.trail, state.kept_trail):
            table.copy_(torch.from_numpy(g.integers(0, beams, tuple(table.shape))))
        state.tokens.copy_(torch.from_numpy(g.integers(3, VOCAB, tuple(state.tokens.shape))))
        state.scores.copy_(torch.from_numpy(-g.random(tuple(state.scores.shape))))
        attention = [g.random((beams, 3)).astype(np.float32) for _ in range(longest + 1)]
        finished = [SlotRequest(o, None if i % 2 else attention) for i, o in enumerate(jobs)]
        done, columns = [2, 0, 3], longest + 2
        rows = torch.full((10 * SLOTS * beams * columns,), -(2**60))
        slots = torch.tensor(done)
        SearchKernels(host, state, Tokens(PAD, EOS)).follow_back(
            Address(slots.data_ptr()), len(done), columns, rows
        )
        row = finished_dtype(beams, columns)
        read = rows.numpy()[: len(done) * row.itemsize // 8].view(row)
        found = hypotheses_of(read, [finished[slot] for slot in done])
        wanted = finished_hypotheses(state, done, [finished[slot] for slot in done])
        assert max(len(h.tokens) for one in wanted for h in one) >= longest - 1
        for one, other in zip(found, wanted, strict=True):
            for a, b in zip(one, other, strict=True):
                assert (a.attention is None) == (b.attention is None)
                if b.attention is not None:
                    np.testing.assert_array_equal(a.attention, b.attention)
                assert a._replace(attention=None) == b._replace(attention=None)


def test_every_field_of_the_state_is_compared():
    assert set(FIELDS) == {f.name for f in fields(started(2, [])[0].state)}
