"""The search's two kernels beside the array code that they stand for: equal bit for bit, over random
searches."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import array_api_compat.torch as xp
import numpy as np
import pytest
import torch

from engine.bundle.specs import StateSpec
from engine.executors.cuda.search_kernels import RingArrays, SearchKernels, Tokens
from engine.executors.history import Rings
from engine.search.beam import BeamSearch
from engine.search.executor import TopK
from engine.search.state import FIELDS
from engine.types import CANDIDATES, DecodeOptions, Limits
from tests import cases
from tests.host_kernels import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
PAD, EOS, VOCAB, SLOTS, TARGET = 1, 2, 23, 4, 12


def started(beams: int, jobs: list[DecodeOptions]) -> tuple[BeamSearch, Rings]:
    limits = Limits(source=9, target=TARGET, beams=beams, vocab=VOCAB)
    lane = SimpleNamespace(slots=SLOTS, beams=beams, limits=limits, pad=PAD, eos=EOS, start=EOS)
    lane.namespace, lane.device = xp, "cpu"
    search = BeamSearch(lane, tight=False)
    for slot, options in enumerate(jobs):
        search.start(slot, options, 5 + slot)
    rings = Rings([StateSpec(str(w), w, 1) for w in (1, 3, 4)], SLOTS, beams, xp, "cpu", torch.float32)
    rings.clock = torch.zeros(1, dtype=torch.int64)
    return search, rings


def options_of(g: np.random.Generator, beams: int, kind: str) -> DecodeOptions:
    """Of the oracle's cases, what the kernels serve."""
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
    """Of few values, so that many tie; some are impossible, some not numbers."""
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
def test_a_step_of_kernels_leaves_what_the_array_code_leaves(host, beams, kind, descending):
    host.descending = descending
    for seed in range(4):
        g = np.random.default_rng([seed, beams])
        jobs = [options_of(g, beams, kind) for _ in range(SLOTS)]
        (plain, rings), (own, others) = started(beams, jobs), started(beams, jobs)
        kernels = SearchKernels(host, own.state, Tokens(PAD, EOS))
        windows = torch.tensor([[w, others.rows[w].data_ptr()] for w in others.windows])
        for step in range(TARGET + 2):
            n = int(g.integers(1, SLOTS + 1))  # those behind are idle from then on
            count, bucket = torch.tensor([n]), min(SLOTS, n + 1)
            sampled = any(o.sampling for o in jobs)
            step_kind = plain.kind(bucket)._replace(simple=False, sampled=sampled, ngram=0, ranked=True)
            plain.rest(count, bucket)
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
            kernels.end_step(top.scores, top.ids)
            same(plain.state, own.state, where)
            rings.clock += 1
            others.clock += 1


def test_every_field_of_the_search_is_compared():
    assert set(FIELDS) == {f.name for f in fields(started(2, [])[0].state)}
