"""What a lane asks of a device beside arithmetic: streams, marks in them, graphs, copies nobody waits for."""

from __future__ import annotations

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
STAGING_PARTS: Final = 4  # of a ring; each is waited for before it is written again
STAGING_NUMBERS: Final = 1 << 14  # of a part, 8 bytes each: all parts stay in a processor's cache


class Mark(Protocol):
    """A point in a stream's work (torch.cuda.Event)."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


class LaneStreams(Protocol):
    """One lane's."""

    device: str

    def decoding(self) -> AbstractContextManager[Any]:
        """Use the stream of steps, and of all that reads or writes slots."""

    def encoding(self) -> AbstractContextManager[Any]:
        """Use the stream of encoders."""

    def capture(self, step: Callable[[], None]) -> Replay:
        """Capture a graph, on the current stream, of a step that has run before. The step is not run now.

        Returns what launches the graph. Raises RuntimeError when the step can't be captured; nothing is lost
        by that.
        """

    def renew(self) -> None:
        """Give the next graph of the current stream memory of its own, shared with none before it."""

    def mark(self) -> Mark:
        """Mark the end of what the current stream has been given."""

    def wait(self, mark: Mark, tensors: Sequence[Tensor]) -> None:
        """Let the current stream wait for a mark, and then use these tensors of another stream."""

    def up(self, tensor: Tensor) -> Tensor:
        """Make a copy of a host's tensor on the device."""

    def upload(self, parts: Sequence[NDArray[np.int64]], target: Tensor) -> None:
        """Copy numbers of the host, part after part, into a tensor of the device from its beginning. The
        host's may be changed at once."""

    def clone(self, tensor: Tensor) -> Tensor:
        """Make a copy on the device, of what the next graph overwrites."""

    def down(self, tensor: Tensor) -> Tensor:
        """Make a copy on the host, right once a later mark is reached."""

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Make a tensor of the host that the device copies to and from without waiting."""

    def fetch(self, tensor: Tensor, target: Tensor) -> None:
        """Copy into a pinned tensor of the host, right once a later mark is reached."""


def words_of(numbers: Sequence[int]) -> NDArray[np.int64]:
    """Make an array of integers, which is not to be written: numpy looks at each more than once."""
    return np.frombuffer(struct.pack(f"{len(numbers)}q", *numbers), np.int64)


class StagingRing:
    """Pinned memory that all uploads of a stream go through: made once, and used round and round."""

    def __init__(self, work: LaneStreams) -> None:
        self._work = work
        self._tensor = work.pinned((STAGING_PARTS * STAGING_NUMBERS,), torch.int64)
        self._numbers: NDArray[np.int64] = self._tensor.numpy()
        self._marks: list[Mark | None] = [None] * STAGING_PARTS  # when a part may be written again
        self._part = self._used = 0

    def stage(self, parts: Sequence[NDArray[np.int64]]) -> Tensor:
        """Copy parts, each flat, to pinned memory, for a copy that the current stream is given next; returns
        them there, one after the other."""
        size = sum(map(len, parts))
        if size > STAGING_NUMBERS:
            large = self._work.pinned((size,), torch.int64)
            np.concatenate(parts, out=large.numpy())
            return large
        if self._used + size > STAGING_NUMBERS:
            self._marks[self._part] = self._work.mark()
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


class CudaWork:
    """See `LaneStreams`. Made when the weights lie on the device."""

    def __init__(self, device: str) -> None:
        self.device = device
        with EXCLUSIVE:  # a capture elsewhere does not survive a device that is waited for
            torch.cuda.synchronize(device)  # weights were converted on another stream
            self._steps, self._encoders = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._pools: dict[int, Any] = {}  # by stream: graphs that share memory must not run at once
        self._rings: dict[int, StagingRing] = {}  # by stream

    def decoding(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._steps)

    def encoding(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._encoders)

    def capture(self, step: Callable[[], None]) -> Replay:
        graph = torch.cuda.CUDAGraph()
        with EXCLUSIVE, self._capturing(graph):
            step()
        return graph.replay

    @contextmanager
    def _capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Not `torch.cuda.graph`, which waits for the device and empties all caches: the step has run before,
        on this stream, so there is nothing to wait for."""
        stream = self._stream()
        if stream not in self._pools:
            self._pools[stream] = torch.cuda.graph_pool_handle()
        # other threads (other models) may go on: only this one's calls are captured
        graph.capture_begin(pool=self._pools[stream], capture_error_mode="thread_local")
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # it says once more that the capture is invalid
                graph.capture_end()
            self.renew()  # what a broken capture took of the pool is not given back
            raise
        try:
            graph.capture_end()
        except RuntimeError:
            self.renew()
            raise

    def renew(self) -> None:
        self._pools.pop(self._stream(), None)

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

    def up(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def upload(self, parts: Sequence[NDArray[np.int64]], target: Tensor) -> None:
        stream = self._stream()
        ring = self._rings.get(stream) or self._rings.setdefault(stream, StagingRing(self))
        staged = ring.stage(parts)
        target.narrow(0, 0, staged.numel()).copy_(staged, non_blocking=True)

    def clone(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def down(self, tensor: Tensor) -> Tensor:
        return self.pinned(tensor.shape, tensor.dtype).copy_(tensor, non_blocking=True)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def fetch(self, tensor: Tensor, target: Tensor) -> None:
        target.copy_(tensor, non_blocking=True)

    def _stream(self) -> int:
        return int(torch.cuda.current_stream(self.device).cuda_stream)
