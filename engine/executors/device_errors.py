"""Errors after which this process can no longer use its CUDA device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# name and text of the error, by code. After these "any further CUDA work will return the same error. To
# continue using CUDA, the process must be terminated and relaunched" (CUDA Runtime API, cudaError)
STICKY: Final = {
    214: ("ECCUncorrectable", "uncorrectable ecc error"),
    220: ("NvlinkUncorrectable", "uncorrectable nvlink error"),
    700: ("IllegalAddress", "illegal memory access"),
    702: ("LaunchTimeout", "the launch timed out"),
    709: ("ContextIsDestroyed", "context is destroyed"),
    710: ("Assert", "device-side assert"),
    714: ("HardwareStackError", "hardware stack error"),
    715: ("IllegalInstruction", "an illegal instruction"),
    716: ("MisalignedAddress", "misaligned address"),
    717: ("InvalidAddressSpace", "operation not supported on global/shared address space"),
    718: ("InvalidPc", "invalid program counter"),
    719: ("LaunchFailure", "unspecified launch failure"),
    720: ("TensorMemoryLeak", "tensor memory not completely freed"),
    721: ("Contained", "invalid access of peer gpu memory over nvlink"),
    999: ("Unknown", "unknown error"),
}
CODE: Final = re.compile(r"\bcuda (?:error|failure)[: ]+(\d+)\b", re.IGNORECASE)
NAME: Final = re.compile(r"\b(?:cudaError|CUDA_ERROR_)(\w+)")
STICKY_NAMES: Final = frozenset(name.lower() for name, _ in STICKY.values())


def is_device_lost(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, means that the CUDA device is lost to this process.

    torch (AcceleratorError), ONNX Runtime ("CUDA failure 700: ...") and our own launcher ("CUDA error 700
    (CUDA_ERROR_ILLEGAL_ADDRESS)") name the error by code, name or text. Out of memory and wrong calls do not
    count.
    """
    return any(map(_is_sticky, _chain(error)))


def _is_sticky(error: BaseException) -> bool:
    """Return whether the text of an error names one of the `STICKY` errors."""
    text = str(error)
    if "cuda" not in text.lower():
        return False
    if (match := CODE.search(text)) is not None:
        return int(match[1]) in STICKY
    names = [name.replace("_", "").lower() for name in NAME.findall(text)]
    if names:
        return not STICKY_NAMES.isdisjoint(names)
    return any(message in text.lower() for _, message in STICKY.values())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on; stop at a loop."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
