"""The files of Marian itself: weights (.npz, or its binary .bin), options and vocabularies in YAML."""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from numpy.typing import NDArray

from engine.errors import CheckpointError

Arrays = dict[str, NDArray[Any]]

OPTIONS: Final = "special:model.yml"  # the item that holds a model's options
VERSION: Final = 1  # of the binary format
# of the binary format: a kind in the upper byte, bytes of a value in the lower
TYPES: Final = {0x0101: np.int8, 0x0402: np.float16, 0x0404: np.float32, 0x0408: np.float64}
ENTRY: Final = re.compile(r"""^("(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^"'].*?|): *(\d+) *$""", re.DOTALL)
ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
ESCAPED_MORE: Final = {"e": "\x1b", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}


def read_arrays(path: Path) -> Arrays:
    """All items of a model file. Raises CheckpointError naming it."""
    try:
        return _npz(path) if path.suffix == ".npz" else _binary(path.read_bytes())
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise CheckpointError(
            f"{path}: not a readable Marian model, damaged or incomplete ({error}); download it again"
        ) from error


def options_of(path: Path, arrays: Arrays) -> dict[str, Any]:
    """The options that a model file holds."""
    stored = arrays.pop(OPTIONS, None)
    if stored is None:
        raise CheckpointError(f"{path}: holds no {OPTIONS}, so it is not a Marian model")
    return parse_yaml(path, stored.tobytes().rstrip(b"\0"))


def parse_yaml(path: Path, text: bytes) -> dict[str, Any]:
    """Options in YAML, as plain data only. Raises CheckpointError naming the file."""
    try:
        value = yaml.safe_load(text.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: its options are not readable as YAML ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: its options must be an object, not {type(value).__name__}")
    return value


def read_symbols(path: Path) -> dict[str, int]:
    """A vocabulary of Marian, symbol to id: YAML or JSON. Raises CheckpointError naming the line."""
    try:
        text = path.read_bytes().decode("utf-8")
        entries = json.loads(text).items() if path.suffix == ".json" else _entries(path, text)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable ({error}); download it again") from error
    found: dict[str, int] = {}
    for symbol, token in entries:
        if symbol in found or type(token) is not int or token < 0:
            raise CheckpointError(f"{path}: {symbol!r} occurs twice, or {token!r} is no id")
        found[symbol] = token
    if len(set(found.values())) != len(found) or not found:
        raise CheckpointError(f"{path}: gives two symbols the same id, or holds none")
    return found


def _entries(path: Path, text: str) -> Iterator[tuple[str, int]]:
    """Symbols with their ids, line by line: YAML's own rules would make booleans and numbers of words."""
    key: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.startswith("? "):  # a long symbol stands on a line of its own, its id on the next
            key = line[2:]
            continue
        whole = f"{key}{line}" if key is not None and line.startswith(":") else line
        key = None
        if not whole.strip() or whole in ("---", "...") or whole.startswith("#") and ": " not in whole:
            continue
        match = ENTRY.match(whole)
        if not match:
            raise CheckpointError(f"{path}, line {number}: must be 'symbol: id', not {line[:80]!r}")
        yield _unquoted(match[1]), int(match[2])


def _unquoted(symbol: str) -> str:
    if symbol[:1] == "'":
        return symbol[1:-1].replace("''", "'")
    if symbol[:1] != '"':
        return symbol
    return ESCAPE.sub(lambda m: _character(m[1]), symbol[1:-1])


def _character(code: str) -> str:
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return {**ESCAPED, **ESCAPED_MORE}.get(code, code)


def _npz(path: Path) -> Arrays:
    # opened here: numpy leaves a file open that turns out to be no archive
    with path.open("rb") as file, np.load(file, allow_pickle=False) as items:
        return {name: items[name] for name in items.files}


def _binary(data: bytes) -> Arrays:
    """Version, headers (name length, type, dimensions, bytes of each), names, shapes, padding, values."""
    reader = _Reader(data)
    version, count = reader.numbers("Q", 2)
    if version != VERSION:
        raise CheckpointError(f"version {version} of the binary format is unknown, {VERSION} is read")
    headers = [reader.numbers("Q", 4) for _ in range(count)]
    names = [reader.take(length).rstrip(b"\0").decode("utf-8") for length, *_ in headers]
    shapes = [reader.numbers("i", dimensions) for _, _, dimensions, _ in headers]
    reader.take(*reader.numbers("Q", 1))
    found: Arrays = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        values = reader.take(size)
        if kind not in TYPES:
            raise CheckpointError(f"{name} is of the type {kind:#06x} (quantised?); use the file of fp32")
        flat = np.frombuffer(values, TYPES[kind], count=int(np.prod(shape, dtype=np.int64)))
        found[name] = flat.reshape(shape)
    return found


class _Reader:
    """Takes bytes off the front; never beyond the end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("the file is cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, kind: str, count: int) -> tuple[int, ...]:
        size = struct.calcsize("<" + kind)
        if count > len(self.data) // size:
            raise ValueError("the file is cut short")
        return struct.unpack(f"<{count}{kind}", self.take(count * size))
