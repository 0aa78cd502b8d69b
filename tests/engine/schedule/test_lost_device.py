"""Errors after which a device is lost, and the engine after such an error."""

import pytest

from engine.errors import DeviceLost
from engine.executors.device_errors import is_device_lost
from engine.types import DecodeOptions
from tests.support.rig import LONG, Inbox, engine_of

TORCH = """CUDA error: an illegal memory access was encountered
Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
CUDA kernel errors might be asynchronously reported at some other API call."""
STICKY = [
    TORCH,
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=x ; file=y ; expr=z;",
    "launching attend: CUDA error 719 (CUDA_ERROR_LAUNCH_FAILED)",
    "CUDA error 716 (CUDA_ERROR_MISALIGNED_ADDRESS)",
]
PASSING = [
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com",
    "CUDA error: invalid argument",
    "CUDA failure 2: out of memory ; GPU=0",
    "launching attend: CUDA error 1 (CUDA_ERROR_INVALID_VALUE)",
    "an illegal memory access was encountered",  # not of CUDA
    "step is broken",
]


@pytest.mark.parametrize("text", STICKY)
def test_sticky_errors_of_cuda_are_recognized(text):
    assert is_device_lost(RuntimeError(text))
    later = ValueError("while decoding")
    later.__cause__ = RuntimeError(text)
    assert is_device_lost(later)


@pytest.mark.parametrize("text", PASSING)
def test_other_errors_do_not_lose_the_device(text):
    assert not is_device_lost(RuntimeError(text))


@pytest.mark.parametrize("where", ["encode", "step", "move"])
def test_a_lost_device_fails_all_requests_and_the_engine_accepts_no_more(running, where):
    engine, (executor,) = engine_of((2, 4))
    inbox = Inbox()
    short = DecodeOptions(beam_size=3, min_length=2, max_length=2)
    requests = [inbox.request(options=short), *(inbox.request(options=LONG) for _ in range(5))]
    for request in requests:
        engine.submit([request])
    executor.broken, executor.message = {where}, TORCH
    running(engine)
    engine.stop(drain=True, timeout=10)
    assert engine.device_lost
    assert not engine.healthy
    answered = [r for r, o in inbox.outcomes.items() if not isinstance(o, DeviceLost)]
    # a move happens only after the last waiting request has taken a slot
    assert answered == (requests[:5] if where == "move" else [])
    assert set(inbox.outcomes) == set(requests)
    assert inbox.twice == 0
    with pytest.raises(DeviceLost, match="elsewhere or later"):
        engine.submit([inbox.request()])
