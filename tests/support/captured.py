"""Lanes with captured steps, on the CPU or a GPU, random jobs for them, and comparison of results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.streams import CudaStreams, LaneStreams
from engine.kernels.launch import Device
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Request, Result
from tests.support import cases
from tests.support.emulated import Emulation
from tests.support.host_kernels import COMPILER
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS, model

NEEDS_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU, or a torch without CUDA")
BEAMS, SLOTS = 3, 4
FORTY_TOKENS = DecodeOptions(beam_size=3, min_length=40, max_length=40)


def captured(
    place: str, name: str, streams: LaneStreams | None = None, dtype=torch.float32, slots=SLOTS
) -> Lane:
    """Return a lane of a model with captured steps, on a GPU or emulated on the CPU."""
    if place == "gpu":
        net = deepcopy(model(name)).to("cuda", dtype)
        return lane_of(
            CapturedExecutor(net, (BEAMS, slots), CudaStreams("cuda"), Device("cuda").kernels(), warm=True)
        )
    return lane_of(CapturedExecutor(model(name), (BEAMS, slots), streams or Emulation()))


def random_jobs(name: str, seed: int, count: int) -> list[tuple[list[int], DecodeOptions]]:
    """Return random sources with options: mostly plain searches, some with options of any kind."""
    g, jobs, reads = np.random.default_rng(seed), [], CONFIGS[name].reads_source
    for _ in range(count):
        options = cases.options(g, 47, BEAMS, longest=20)
        if g.random() < 0.6:
            options = DecodeOptions(beam_size=options.beam_size, n_best=options.n_best, max_length_b=20)
        if name == "fused":
            options = replace(options, lm_weight=float(g.choice([0.0, 0.5, 2.0])))
        if not reads:
            options = replace(options, alignment=False, coverage_penalty=0.0)
        source = g.integers(4, 47, g.integers(0, 70)).tolist() if reads else []
        jobs.append(([*source, 2], options))
    return jobs


@contextmanager
def no_waiting(on: bool) -> Iterator[None]:
    """Let torch raise if anything waits for the GPU, if `on`."""
    if on:
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if on:
            torch.cuda.set_sync_debug_mode("default")


def run(lane: Lane, jobs, seed: int, *, strict: bool = False) -> list[Result]:
    """Return the results of jobs that join a few at a time; some jobs are dropped and started again."""
    g, results = np.random.default_rng(seed), {}
    waiting = [Request(s, o, lambda x, i=i: results.__setitem__(i, x)) for i, (s, o) in enumerate(jobs)]
    while waiting or lane.active:
        joining = min(len(waiting), lane.free, int(g.integers(0, 3)))
        if joining:
            lane.admit([waiting.pop(0) for _ in range(joining)])
        if lane.active:
            with no_waiting(strict):
                lane.step()
        if lane.active and g.random() < 0.05:
            waiting.append(lane.drop(lane.active[int(g.integers(len(lane.active)))]))
    return [results[i] for i in range(len(jobs))]


def assert_same(found, wanted, scores: float = 1e-4) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other), (one, other)
        if not isinstance(one, Result):
            continue
        assert [h.tokens for h in one.hypotheses] == [h.tokens for h in other.hypotheses]
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert a.finish == b.finish
            np.testing.assert_allclose(a.score, b.score, rtol=scores, atol=scores)
            np.testing.assert_allclose(a.token_scores, b.token_scores, atol=scores)
            if b.attention is not None:
                np.testing.assert_allclose(a.attention, b.attention, atol=scores)
