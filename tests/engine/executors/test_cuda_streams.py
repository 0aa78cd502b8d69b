"""Captures on a stand-in for torch.cuda, which also allows only one capture at a time."""

from __future__ import annotations

import gc
import logging
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.graphs import Graphs
from engine.executors.cuda.streams import CudaStreams
from engine.executors.torch.executor import TorchExecutor
from tests.support.captured import BEAMS, SLOTS, assert_same, random_jobs, run
from tests.support.emulated import Emulation
from tests.support.lanes import lane_of
from tests.support.models import model


class Cuda:
    """Stand-in for the captures of torch.cuda: CUDAGraph, memory pools, a current stream for each thread."""

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


def test_engines_never_capture_at_the_same_time(cuda):
    works = [CudaStreams("cuda") for _ in range(4)]
    threads = [
        threading.Thread(target=streams.capture, args=(lambda: time.sleep(0.02),)) for streams in works
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cuda.most == 1
    assert len(cuda.used) == len(set(cuda.used)) == 4  # graphs of two streams share no memory


def test_failed_capture_ends_and_the_next_one_uses_other_memory(cuda):
    streams = CudaStreams("cuda")

    def broken() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    streams.capture(print)
    streams.capture(print)
    with pytest.raises(RuntimeError, match="not permitted"):
        streams.capture(broken)
    assert cuda.capturing == 0
    streams.capture(print)
    assert cuda.used == [1, 1, 1, 2]


def test_capture_neither_waits_for_the_device_nor_empties_caches(cuda, monkeypatch):
    """`torch.cuda.graph` does both, which would stop all other work."""
    streams = CudaStreams("cuda")

    def stop(*_: object) -> None:
        raise AssertionError("all other work would stop")

    for name in ("synchronize", "empty_cache", "graph"):
        monkeypatch.setattr(torch.cuda, name, stop)
    streams.capture(print)
    assert cuda.used == [1]


def test_garbage_is_not_collected_during_a_capture(cuda):
    """Deleting an older graph during a capture invalidates the capture (seen on an H200)."""
    streams, collecting = CudaStreams("cuda"), []
    streams.capture(lambda: collecting.append(gc.isenabled()))
    assert collecting == [False]
    assert gc.isenabled()


def test_work_runs_on_its_own_streams_of_its_own_device(monkeypatch):
    """TensorRT waits for the device on the default stream, and its contexts are invalid on another device."""
    made, entered = [], []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: made.append(device))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}, {len(made)}")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: (entered.append(stream), nullcontext())[1])
    streams = CudaStreams("cuda:1")
    with streams.decoding(), streams.encoding():
        pass
    assert made == ["cuda:1"]
    assert entered == ["stream of cuda:1, 1"] * 2


class Fragile(Emulation):
    """An emulation with first captures that fail."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails

    def capture(self, step):
        if self.fails:
            self.fails -= 1
            raise RuntimeError("CUDA error: out of memory")
        return super().capture(step)


def test_steps_run_without_a_graph_after_a_failed_capture_and_a_warning_is_logged(caplog):
    jobs = random_jobs("glu", 5, 8)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    streams = Fragile(3)
    with caplog.at_level(logging.WARNING):
        lane = lane_of(CapturedExecutor(model("glu"), (BEAMS, SLOTS), streams, warm=True))
        assert_same(run(lane, jobs, 1), wanted)
    assert [
        r.levelname for r in caplog.records if "capture failed (RuntimeError: CUDA error" in r.message
    ] == ["WARNING"] * 3
    assert streams.captures


def test_device_lost_during_a_capture_raises():
    class Lost(Emulation):
        def capture(self, step):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory"):
        Graphs(Lost(), 2).run("key", lambda: None, 1)


def test_graphs_are_dropped_when_arrays_move_and_the_least_used_one_when_the_cache_is_full():
    streams, ran = Emulation(), []
    graphs = Graphs(streams, 2)
    for key in ("a", "b", "a", "c", "b"):  # c replaces b, the least recently used
        graphs.run(key, lambda key=key: ran.append(key), 1)
    assert len(graphs) == 2
    assert streams.captures == 4
    graphs.clear()
    assert len(graphs) == 0
