"""What a lane asks of a device beside arithmetic: streams, marks in them, graphs, copies nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor


class Mark(Protocol):
    """A point in a stream's work (torch.cuda.Event)."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


class Work(Protocol):
    """One lane's."""

    device: str

    def decoding(self) -> AbstractContextManager[Any]:
        """The stream of steps, and of all that reads or writes slots."""

    def encoding(self) -> AbstractContextManager[Any]:
        """The stream of encoders."""

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        """A graph of what `step` does, which has run before; it is not run now. Returns what launches it."""

    def mark(self) -> Mark:
        """The end of what the current stream has been given."""

    def wait(self, mark: Mark, tensors: Sequence[Tensor]) -> None:
        """Let the current stream wait for a mark; it then uses these tensors of another stream."""

    def up(self, tensor: Tensor) -> Tensor:
        """A copy of a host's tensor on the device."""

    def down(self, tensor: Tensor) -> Tensor:
        """A copy on the host, right once a later mark is reached."""


class CudaWork:
    """See Work. Made when the weights lie on the device."""

    def __init__(self, device: str) -> None:
        self.device = device
        torch.cuda.synchronize(device)  # weights were converted on another stream
        self._steps, self._encoders = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def decoding(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._steps)

    def encoding(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._encoders)

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # other threads (other models) may go on: only this one's calls are captured
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self._pool, stream=self._steps, capture_error_mode=mode):
            step()
        return graph.replay

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

    def down(self, tensor: Tensor) -> Tensor:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor, non_blocking=True)
