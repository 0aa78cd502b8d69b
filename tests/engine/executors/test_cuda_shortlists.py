"""Shortlists in captured steps, emulated on the CPU."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from engine.bundle.shortlist import Shortlist
from engine.executors.cuda import shortlists
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.shortlists import DeviceShortlists
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.types import DecodeOptions, Result
from tests.support.captured import BEAMS, NEEDS_COMPILER, SLOTS, assert_same, random_jobs, run
from tests.support.emulated import Emulation
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS, model
from tests.support.thorough import some, some_of

EOS = 2


def shortlist_of(name: str, likely: int = 3, always: int = 4) -> Shortlist:
    """Return random lists for a model of the tests, without tokens that most prefixes have."""
    sizes, g = CONFIGS[name], np.random.default_rng(3)
    columns = g.integers(3, sizes.target_vocab, (sizes.source_vocab, likely)).astype(np.int32)
    tokens = np.unique([EOS, *g.integers(3, sizes.target_vocab, always)]).astype(np.int32)
    return Shortlist(columns, tokens, target_vocab=sizes.target_vocab)


@pytest.mark.parametrize("name", some_of(["glu", "transformer", "transformer pre-norm"]))
def test_captured_steps_with_shortlists_find_what_plain_torch_finds(name: str) -> None:
    """Slots are filled, moved and dropped; some targets begin with tokens that no list has."""
    jobs, lists = random_jobs(name, 6, some(24, 2)), shortlist_of(name)
    wanted = run(lane_of(TorchExecutor(model(name), BEAMS, SLOTS, shortlist=lists)), jobs, 1)
    streams = Emulation()
    lane = lane_of(CapturedExecutor(model(name), (BEAMS, SLOTS), streams, shortlist=lists))
    assert_same(run(lane, jobs, 1), wanted)
    assert streams.replays > streams.captures
    whole = run(lane_of(TorchExecutor(model(name), BEAMS, SLOTS)), jobs, 1)
    assert [r.hypotheses for r in whole if isinstance(r, Result)] != [
        r.hypotheses for r in wanted if isinstance(r, Result)
    ]


@NEEDS_COMPILER
def test_kernels_with_shortlists_take_only_listed_and_forced_tokens(host) -> None:
    lists, narrow = shortlist_of("transformer"), deepcopy(model("transformer")).to(torch.bfloat16)
    streams, made = Emulation(host), []

    def launch(call):
        made.append(call.kernel.entry)
        streams(call)

    lane = lane_of(CapturedExecutor(narrow, (2, 2), streams, Kernels(launch), lists))
    sources = [[*range(4, 4 + n), EOS] for n in (3, 9, 12, 5)]
    prefixes = (), (45, 44, 46), (), (43,)
    jobs = [
        (source, DecodeOptions(beam_size=2, max_length=7, prefix=prefix))
        for source, prefix in zip(sources, prefixes, strict=True)
    ]
    found = run(lane, jobs, 3)
    assert "tiled_listed" in made
    assert streams.replays > streams.captures
    plain = run(lane_of(TorchExecutor(narrow, 2, 2, shortlist=lists)), jobs, 3)
    for (source, options), result, other in zip(jobs, found, plain, strict=True):
        allowed = {*lists.of(source).tolist(), *options.prefix}
        for hypothesis in result.hypotheses:
            assert {*hypothesis.tokens} <= allowed
            assert tuple(hypothesis.tokens[: len(options.prefix)]) == options.prefix
        first, second = result.hypotheses[0], other.hypotheses[0]
        assert first.score == pytest.approx(second.score, abs=0.05)  # near ties may end differently


def test_lists_on_the_device_follow_places_moves_and_longer_lists(monkeypatch) -> None:
    monkeypatch.setattr(shortlists, "INITIAL_TOKENS", 64)
    empty = Shortlist(np.zeros((1, 1), np.int32), np.array([EOS], np.int32))
    lists = DeviceShortlists(empty, 3, 300, Emulation())

    def uploaded() -> list[list[int]]:
        return [[token for token in row if token >= 0] for row in lists.block.tolist()]

    lists.place(0, np.arange(5, 60))
    lists.place(2, np.arange(7))
    assert not lists.upload()
    assert uploaded() == [[*range(5, 60)], [], [*range(7)]]
    lists.move(2, 1)
    lists.place(2, np.array([9]))
    assert not lists.upload()
    assert uploaded() == [[*range(5, 60)], [*range(7)], [9]]
    lists.place(0, np.arange(290))  # the block grows to the vocabulary
    assert lists.upload()
    assert lists.block.shape == (3, 320)
    assert uploaded() == [[*range(290)], [*range(7)], [9]]
    lists.place(0, np.array([4]))
    assert not lists.upload()
    assert uploaded()[0] == [4]
