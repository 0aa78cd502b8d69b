"""Read Marian's files: weights (.npz or binary .bin), options and vocabularies in YAML."""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from numpy.typing import NDArray

from engine.errors import CheckpointError
from export.importers.marian.binary import Item, read_binary
from export.importers.marian.compressed import CHUNK_BYTES, MOST_EXPANSION, contents, plain_name

Arrays = dict[str, Item]

OPTIONS_ITEM: Final = "special:model.yml"  # item of a model's options
# errors of damaged archives and binary files
UNREADABLE: Final = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)
HEADERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
ENTRY: Final = re.compile(r"""^("(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^"'].*?|): *(\d+) *$""", re.DOTALL)
ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
ESCAPED_MORE: Final = {"e": "\x1b", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}


class PlainLoader(yaml.SafeLoader):  # type: ignore[misc] # untyped
    """Reads plain data without aliases: with them a small file could expand beyond any memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def read_arrays(path: Path) -> Arrays:
    """Return all items of a model file by name. Raises CheckpointError that names the file."""
    try:
        data = contents(path)
        return _npz(data) if plain_name(path).endswith(".npz") else read_binary(data)
    except CheckpointError as error:
        raise error if str(path) in str(error) else CheckpointError(f"{path}: {error}") from error
    except UNREADABLE as error:
        raise CheckpointError(
            f"{path}: not a readable Marian model, damaged or incomplete ({error}); download it again"
        ) from error


def options_of(path: Path, arrays: Arrays) -> dict[str, Any]:
    """Remove the options from a model file's arrays and return them.

    Raises CheckpointError if there are no options.
    """
    stored = arrays.pop(OPTIONS_ITEM, None)
    if not isinstance(stored, np.ndarray):
        raise CheckpointError(f"{path}: holds no {OPTIONS_ITEM}, so it is not a Marian model")
    return parse_yaml(path, stored.tobytes().rstrip(b"\0"))


def parse_yaml(path: Path, text: bytes) -> dict[str, Any]:
    """Parse options in YAML, plain data only. Raises CheckpointError that names the file."""
    try:
        value = yaml.load(text.decode("utf-8"), PlainLoader)  # nosec B506 # a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: its options are not readable as YAML ({reason})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: its options must be an object, not {type(value).__name__}")
    return value


def read_symbols(path: Path) -> dict[str, int]:
    """Return a vocabulary of Marian (YAML or JSON), symbol to id. Raises CheckpointError with the problem."""
    try:
        text = path.read_bytes().decode("utf-8")
        entries = json.loads(text).items() if path.suffix == ".json" else _entries(path, text)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable ({error}); download it again") from error
    ids: dict[str, int] = {}
    for symbol, token in entries:
        if symbol in ids or type(token) is not int or token < 0:
            raise CheckpointError(f"{path}: {symbol!r} occurs twice, or {token!r} is no id")
        ids[symbol] = token
    if len(set(ids.values())) != len(ids) or not ids:
        raise CheckpointError(f"{path}: gives two symbols the same id, or holds none")
    return ids


def _entries(path: Path, text: str) -> Iterator[tuple[str, int]]:
    """Yield symbols with their ids. A YAML parser would read some words as booleans or numbers."""
    key: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.startswith("? "):  # the id of a long symbol follows on the next line
            key = line[2:]
            continue
        whole = f"{key}{line}" if key is not None and line.startswith(":") else line
        key = None
        if not whole.strip() or whole in ("---", "...") or whole.startswith("#") and ": " not in whole:
            continue
        match = ENTRY.match(whole)
        if not match:
            raise CheckpointError(f"{path}, line {number}: must be 'symbol: id', not {line[:80]!r}")
        yield _unquote(match[1]), int(match[2])


def _unquote(symbol: str) -> str:
    """Return a symbol of YAML without its quotes and escapes."""
    if symbol[:1] == "'":
        return symbol[1:-1].replace("''", "'")
    if symbol[:1] != '"':
        return symbol
    return ESCAPE.sub(lambda m: _character(m[1]), symbol[1:-1])


def _character(code: str) -> str:
    """Return the character of an escape without its backslash."""
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return {**ESCAPED, **ESCAPED_MORE}.get(code, code)


def _npz(data: bytes) -> Arrays:
    """Return the arrays of a numpy archive; each member is checked before it is unpacked."""
    items: Arrays = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in items:
                raise CheckpointError(f"{name} occurs twice")
            if member.file_size > MOST_EXPANSION * member.compress_size + CHUNK_BYTES:
                raise CheckpointError(f"{name} unpacks to {member.file_size:,} bytes, so it is not a weight")
            items[name] = _array(name, archive.read(member))
    return items


def _array(name: str, data: bytes) -> NDArray[Any]:
    """Return an array of numpy's format. Raises ValueError if its shape does not match its bytes."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"{name}: version {version} of numpy's format")
    shape, column_major, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which are never read")
    count = math.prod(shape)
    if count * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"{name} has other bytes than its shape {list(shape)} needs")
    return np.frombuffer(data, dtype, count, file.tell()).reshape(shape, order="F" if column_major else "C")
