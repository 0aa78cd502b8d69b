"""Captures on a stand-in for torch's CUDA, which allows one at a time as the real one does."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.graphs import Graphs
from engine.executors.cuda.streams import CudaWork
from engine.executors.torch.executor import TorchExecutor
from tests.engine.executors.test_cuda_graph import BEAMS, SLOTS, assert_same, random_jobs, run
from tests.support.emulated import Emulation
from tests.support.lanes import lane_of
from tests.support.models import model


class Cuda:
    """What torch.cuda does for captures: CUDAGraph, memory pools, a current stream for each thread."""

    def __init__(self) -> None:
        self.capturing = self.most = self.pools = 0
        self.used: list[int] = []

    def graph(self) -> Graph:
        return Graph(self)

    def pool(self) -> int:
        self.pools += 1
        return self.pools


class Graph:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda

    def capture_begin(self, pool: int, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self.cuda.capturing += 1
        self.cuda.most = max(self.cuda.most, self.cuda.capturing)
        self.cuda.used.append(pool)

    def capture_end(self) -> None:
        self.cuda.capturing -= 1

    def replay(self) -> None:
        pass


@pytest.fixture
def cuda(monkeypatch):
    made = Cuda()
    for name, value in {
        "CUDAGraph": made.graph,
        "graph_pool_handle": made.pool,
        "Stream": lambda _: None,
        "synchronize": lambda _: None,
        "current_stream": lambda _: SimpleNamespace(cuda_stream=threading.get_ident()),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def test_two_engines_never_capture_at_once(cuda):
    works = [CudaWork("cuda") for _ in range(4)]
    threads = [threading.Thread(target=work.capture, args=(lambda: time.sleep(0.02),)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cuda.most == 1
    assert len(cuda.used) == len(set(cuda.used)) == 4  # graphs of two streams share no memory


def test_a_capture_that_fails_ends_and_the_next_takes_other_memory(cuda):
    work = CudaWork("cuda")

    def broken() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    work.capture(print)
    work.capture(print)
    with pytest.raises(RuntimeError, match="not permitted"):
        work.capture(broken)
    assert cuda.capturing == 0
    work.capture(print)
    assert cuda.used == [1, 1, 1, 2]


def test_a_late_capture_waits_for_nothing_and_empties_no_cache(cuda, monkeypatch):
    """`torch.cuda.graph` does both, and everybody stands still meanwhile."""
    work = CudaWork("cuda")

    def stop(*_: object) -> None:
        raise AssertionError("everybody would stand still")

    for name in ("synchronize", "empty_cache", "graph"):
        monkeypatch.setattr(torch.cuda, name, stop)
    work.capture(print)
    assert cuda.used == [1]


def test_all_work_is_on_streams_of_its_own_device_and_never_on_the_default_one(monkeypatch):
    """On the default stream TensorRT waits for the device; on another device its contexts are invalid."""
    made, entered = [], []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: made.append(device))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}, {len(made)}")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: (entered.append(stream), nullcontext())[1])
    work = CudaWork("cuda:1")
    with work.decoding(), work.encoding():
        pass
    assert made == ["cuda:1"]
    assert entered == ["stream of cuda:1, 1"] * 2


class Fragile(Emulation):
    """An emulation in which some captures fail."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails

    def capture(self, step):
        if self.fails:
            self.fails -= 1
            raise RuntimeError("CUDA error: out of memory")
        return super().capture(step)


def test_steps_whose_capture_failed_run_as_they_are_and_that_is_said(caplog):
    jobs = random_jobs("glu", 5, 8)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    work = Fragile(3)
    with caplog.at_level(logging.WARNING):
        lane = lane_of(CapturedExecutor(model("glu"), (BEAMS, SLOTS), work, warm=True))
        assert_same(run(lane, jobs, 1), wanted)
    assert [
        r.levelname for r in caplog.records if "capture failed (RuntimeError: CUDA error" in r.message
    ] == ["WARNING"] * 3
    assert work.captures


def test_a_device_that_is_lost_while_it_captures_is_no_refusal():
    class Lost(Emulation):
        def capture(self, step):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory"):
        Graphs(Lost(), 2).run("key", lambda: None, 1)


def test_what_was_captured_goes_when_its_arrays_have_moved_and_the_least_used_when_there_are_too_many():
    work, ran = Emulation(), []
    graphs = Graphs(work, 2)
    for key in ("a", "b", "a", "c", "b"):  # c takes the place of b, which was used less lately than a
        graphs.run(key, lambda key=key: ran.append(key), 1)
    assert len(graphs) == 2
    assert work.captures == 4
    graphs.clear()
    assert len(graphs) == 0
