"""Read the resources of each kernel from a cubin, an ELF file: registers, static shared memory, bytes of
stack."""

from __future__ import annotations

import struct
from typing import NamedTuple

REGISTERS, FRAME = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE: a word for each function


class Section(NamedTuple):
    name: str
    kind: int
    data: bytes
    size: int


class Budget(NamedTuple):
    """Resources of one kernel.

    registers: number of registers of a thread.
    shared: bytes of static shared memory of a block.
    stack: bytes of stack of a thread, spilled registers included.
    """

    registers: int
    shared: int
    stack: int


def sections(cubin: bytes) -> list[Section]:
    assert cubin[:5] == b"\x7fELF\x02"
    begin, size, count, names = (
        struct.unpack_from("<Q", cubin, 0x28)[0],
        *struct.unpack_from("<HHH", cubin, 0x3A),
    )
    rows = [struct.unpack_from("<IIQQQQIIQQ", cubin, begin + i * size) for i in range(count)]
    text = rows[names][4]

    def name(row: tuple[int, ...]) -> str:
        return cubin[text + row[0] :].split(b"\0", 1)[0].decode()

    return [
        Section(name(row), row[1], b"" if row[1] == 8 else cubin[row[4] : row[4] + row[5]], row[5])
        for row in rows
    ]


def budgets(cubin: bytes) -> dict[str, Budget]:
    """Return the budget of each kernel by its name."""
    listed = sections(cubin)
    by_name = {s.name: s for s in listed}
    strings, symbols = by_name[".strtab"].data, by_name[".symtab"].data
    functions = [
        strings[struct.unpack_from("<I", symbols, at)[0] :].split(b"\0", 1)[0].decode()
        for at in range(0, len(symbols), 24)
    ]
    words: dict[tuple[str, int], int] = {}
    info, at = by_name[".nv.info"].data, 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == 4:  # a value of `size` bytes follows
            if attribute in (REGISTERS, FRAME):
                symbol, word = struct.unpack_from("<II", info, at + 4)
                words[functions[symbol], attribute] = word
            at += size
        at += 4
    kernels = [s.name.removeprefix(".text.") for s in listed if s.name.startswith(".text.")]
    return {
        kernel: Budget(
            words[kernel, REGISTERS],
            by_name[f".nv.shared.{kernel}"].size if f".nv.shared.{kernel}" in by_name else 0,
            words.get((kernel, FRAME), 0),
        )
        for kernel in kernels
    }
