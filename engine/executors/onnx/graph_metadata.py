"""Metadata of a serialised ONNX graph, read from its protocol buffer without the `onnx` package."""

from __future__ import annotations

from typing import Final

METADATA_PROPS: Final = 14  # number of that field in a ModelProto


def metadata_of(graph: bytes) -> dict[str, str]:
    """Return the metadata of a serialised ONNX graph.

    Raises ValueError if the bytes are no complete protocol buffer message.
    """
    metadata: dict[str, str] = {}
    for field, value in _fields(graph):
        if field == METADATA_PROPS:
            entry = dict(_fields(value))  # field 1 is the key, field 2 the value
            metadata[entry[1].decode()] = entry[2].decode()
    return metadata


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """Return number and value of the length-delimited fields of a protocol buffer message."""
    fields, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        wire_type = key & 7
        if wire_type == 2:  # length-delimited; fields of other types are skipped
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("the file is cut short")
            fields.append((key >> 3, data[at : at + size]))
            at += size
        elif wire_type == 0:
            _, at = _varint(data, at)
        elif wire_type in (1, 5):  # 8 or 4 bytes
            at += 8 if wire_type == 1 else 4
        else:
            raise ValueError("the file is damaged")
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at an offset, and the offset behind it."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the file is cut short")
        byte = data[at]
        value |= (byte & 127) << shift  # 7 bits of the number; the 8th is set if a byte follows
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
