"""Streams, events, graphs and asynchronous copies of a device."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.kernels.launch import EXCLUSIVE

Replay = Callable[[], None]
STAGING_PARTS: Final = 4  # parts of a ring; a part is written again only after its copies have finished
STAGING_NUMBERS: Final = 1 << 14  # numbers of 8 bytes in a part: all parts fit into a processor's cache


class Mark(Protocol):
    """A point in a stream's work (torch.cuda.Event)."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


class LaneStreams(Protocol):
    """The streams of one lane."""

    device: str

    def decoding(self) -> AbstractContextManager[Any]:
        """Use the stream of steps, and of all work that reads or writes slots."""

    def encoding(self) -> AbstractContextManager[Any]:
        """Use the stream of the encoders."""

    def capture(self, step: Callable[[], None]) -> Replay:
        """Capture a graph of a step that has run before, on the current stream, without running it. Return a
        function that launches the graph.

        Raises RuntimeError if the step can't be captured; the step can still be run without a graph.
        """

    def renew(self) -> None:
        """Let the next graph of the current stream use new memory, not shared with earlier graphs."""

    def mark(self) -> Mark:
        """Mark the current end of the current stream's work."""

    def wait(self, mark: Mark, tensors: Sequence[Tensor]) -> None:
        """Let the current stream wait for a mark, and use these tensors of another stream after it."""

    def to_device(self, tensor: Tensor) -> Tensor:
        """Return a copy of a host tensor on the device."""

    def upload(self, parts: Sequence[NDArray[np.int64]], target: Tensor) -> None:
        """Copy host numbers, part after part, to the beginning of a device tensor. The parts may be changed
        as soon as this returns."""

    def clone(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device of a tensor that the next graph overwrites."""

    def to_host(self, tensor: Tensor) -> Tensor:
        """Return a copy on the host, complete once a later mark is reached."""

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an empty host tensor in pinned memory, for asynchronous copies."""

    def fetch(self, tensor: Tensor, target: Tensor) -> None:
        """Copy to a pinned host tensor; it is complete once a later mark is reached."""


def words_of(numbers: Sequence[int]) -> NDArray[np.int64]:
    """Return a read-only array of integers. Faster than np.array, which examines each number twice."""
    return np.frombuffer(struct.pack(f"{len(numbers)}q", *numbers), np.int64)


class StagingRing:
    """A ring buffer in pinned host memory, through which all uploads of a stream go."""

    def __init__(self, streams: LaneStreams) -> None:
        self._streams = streams
        self._tensor = streams.pinned((STAGING_PARTS * STAGING_NUMBERS,), torch.int64)
        self._numbers: NDArray[np.int64] = self._tensor.numpy()
        self._marks: list[Mark | None] = [
            None
        ] * STAGING_PARTS  # after each mark, its part may be written again
        self._part = self._used = 0

    def stage(self, parts: Sequence[NDArray[np.int64]]) -> Tensor:
        """Copy flat parts to pinned memory, one after the other, and return them there. The caller must copy
        them to the device next, on the current stream."""
        size = sum(map(len, parts))
        if size > STAGING_NUMBERS:
            large = self._streams.pinned((size,), torch.int64)
            np.concatenate(parts, out=large.numpy())
            return large
        if self._used + size > STAGING_NUMBERS:
            self._marks[self._part] = self._streams.mark()
            self._part, self._used = (self._part + 1) % STAGING_PARTS, 0
            if (mark := self._marks[self._part]) is not None:
                mark.synchronize()
        begin = self._part * STAGING_NUMBERS + self._used
        self._used += size
        at = begin
        for part in parts:
            self._numbers[at : at + len(part)] = part
            at += len(part)
        return self._tensor.narrow(0, begin, size)


class CudaStreams:
    """Implements `LaneStreams` by CUDA. Make it after the weights are on the device."""

    def __init__(self, device: str) -> None:
        self.device = device
        with EXCLUSIVE:  # synchronizing the device would break a capture of another thread
            torch.cuda.synchronize(device)  # weights were converted on another stream
            self._steps, self._encoders = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._pools: dict[int, Any] = {}  # by stream, because graphs that share memory must not run at once
        self._rings: dict[int, StagingRing] = {}  # by stream

    def decoding(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._steps)

    def encoding(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._encoders)

    def capture(self, step: Callable[[], None]) -> Replay:
        graph = torch.cuda.CUDAGraph()
        # deleting an older graph would invalidate the capture
        with EXCLUSIVE, without_garbage_collection(), self._capturing(graph):
            step()
        return graph.replay

    @contextmanager
    def _capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Capture without `torch.cuda.graph`, which waits for the device and empties all caches: that is not
        necessary for a step that has run on this stream before."""
        stream = current_stream(self.device)
        if stream not in self._pools:
            self._pools[stream] = torch.cuda.graph_pool_handle()
        # only calls of this thread are captured, so that other models can run
        graph.capture_begin(pool=self._pools[stream], capture_error_mode="thread_local")
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # repeats that the capture is invalid
                graph.capture_end()
            self.renew()  # a broken capture does not return its memory to the pool
            raise
        try:
            graph.capture_end()
        except RuntimeError:
            self.renew()
            raise

    def renew(self) -> None:
        self._pools.pop(current_stream(self.device), None)

    def mark(self) -> Mark:
        event = torch.cuda.Event()
        event.record()
        return event

    def wait(self, mark: Mark, tensors: Sequence[Tensor]) -> None:
        stream = torch.cuda.current_stream(self.device)
        assert isinstance(mark, torch.cuda.Event)
        stream.wait_event(mark)
        for tensor in tensors:
            tensor.record_stream(stream)

    def to_device(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def upload(self, parts: Sequence[NDArray[np.int64]], target: Tensor) -> None:
        stream = current_stream(self.device)
        ring = self._rings.get(stream) or self._rings.setdefault(stream, StagingRing(self))
        staged = ring.stage(parts)
        target.narrow(0, 0, staged.numel()).copy_(staged, non_blocking=True)

    def clone(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def to_host(self, tensor: Tensor) -> Tensor:
        return self.pinned(tensor.shape, tensor.dtype).copy_(tensor, non_blocking=True)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def fetch(self, tensor: Tensor, target: Tensor) -> None:
        target.copy_(tensor, non_blocking=True)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keep the cyclic garbage collector from deleting objects of any thread within the context."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def current_stream(device: str | torch.device) -> int:
    """Return the handle of torch's current stream on a device."""
    return int(torch.cuda.current_stream(device).cuda_stream)
