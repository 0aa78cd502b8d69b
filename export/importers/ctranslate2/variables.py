"""Read CTranslate2's `model.bin`, binary versions 1 to 6.

Little-endian: version, name and revision of the specification, variables (name, shape, type, bytes, numbers)
and aliases (python/ctranslate2/specs/model_spec.py and src/models/model.cc of CTranslate2). Every size is
compared with the file's before memory is allocated; arrays are views of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from engine.bundle.weights import QuantizedWeight
from engine.errors import CheckpointError

MODEL_FILE: Final = "model.bin"
VERSIONS: Final = range(1, 7)
MAX_AXES: Final = 8
# by the id of the type since version 4; older files store only the bytes of a number
VARIABLE_TYPES: Final[tuple[np.dtype[Any], ...]] = tuple(
    np.dtype(name) for name in ("<f4", "i1", "<i2", "<i4", "<f2", ml_dtypes.bfloat16)
)
TYPES_BY_BYTES: Final = {4: 0, 2: 2, 1: 1}
INT16_SCALE: Final = 1000.0  # default of files that store no scale
SCALE: Final = "_scale"
# parts of OpenNMT-tf's names, which files of version 1 have, and ours, in the order of their replacement
OLD_NAMES: Final = (
    *(("transformer/", ""), (":0", ""), ("w_embs", "embeddings/weight"), ("kernel", "weight")),
    *(("LayerNorm", "layer_norm"), ("dense", "projection"), ("conv1d_", "linear_"), ("conv1d", "linear_0")),
)


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a model.

    specification: kind of the model, such as "TransformerSpec"; empty in old files.
    revision: version of the specification.
    aliases: alias to name.
    used: names of variables that were read so far.
    """

    version: int
    specification: str
    revision: int
    arrays: dict[str, NDArray[Any]]
    aliases: dict[str, str]
    used: set[str] = field(default_factory=set)

    def __contains__(self, name: str) -> bool:
        return self.origin(name) in self.arrays

    def origin(self, name: str) -> str:
        """Return the name under which a variable is stored."""
        return self.aliases.get(name, name)

    def same(self, one: str, other: str) -> bool:
        """Return whether two variables are aliases or equal: files before version 3 have no aliases."""
        a, b = (self.array(name) for name in (one, other))
        return a is b or (a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b))

    def array(self, name: str) -> NDArray[Any]:
        """Return a variable as stored. Raises CheckpointError if it is missing."""
        origin = self.origin(name)
        if origin not in self.arrays:
            raise CheckpointError(f"{name} is missing")
        self.used.update((name, origin))
        return self.arrays[origin]

    def number(self, name: str, usual: float) -> float:
        """Return a scalar variable, or the default `usual` if it is missing."""
        if name not in self:
            return usual
        array = self.array(name)
        if array.size != 1:
            raise CheckpointError(f"{name} must be one number, not {array.shape}")
        return float(array.reshape(()))

    def weight(self, name: str) -> QuantizedWeight | NDArray[np.float32]:
        """Return a weight: int8 as values and scales to multiply by, other types as floats.

        CTranslate2 divides by its scales; our products need values of at least -127.
        """
        array = self.array(name)
        if array.dtype == np.int8:
            scale = self.array(name + SCALE).astype(np.float32).reshape(-1)
            if (
                array.ndim != 2
                or scale.shape != array.shape[:1]
                or not (np.isfinite(scale) & (scale > 0)).all()
            ):
                raise CheckpointError(f"{name} is int8 of the shape {array.shape}, and its scales don't fit")
            values = array if array.min(initial=0) > -128 else np.maximum(array, np.int8(-127))
            return QuantizedWeight(np.asarray(values), (1 / scale).astype(np.float32))
        if array.dtype == np.int16:
            whole = self.number(name + SCALE, INT16_SCALE)
            return np.asarray(array.astype(np.float32) / np.float32(whole))
        return array.astype(np.float32)

    def unused_names(self) -> list[str]:
        """Return the names of variables that were never read."""
        reached = {self.origin(name) for name in self.used}
        return sorted(name for name in self.arrays if name not in reached)


def read_variables(path: Path) -> Variables:
    """Read a model.bin. Raises CheckpointError that names the file and its problem."""
    try:
        return _parse_variables(np.memmap(path, np.uint8, "r"))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: not a model of CTranslate2 that is read: {error}") from error
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path}: is missing; a folder of Hugging Face is read by convoy convert hf"
        ) from error
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path}: not a readable model of CTranslate2 ({error}); copy it again"
        ) from error


def _parse_variables(content: NDArray[np.uint8]) -> Variables:
    """Parse a whole file. Raises CheckpointError."""
    reader = _VariablesReader(content)
    version = reader.number(4)
    if version not in VERSIONS:
        raise CheckpointError(f"version {version}; versions 1 to 6 of CTranslate2's format are read")
    specification, revision = (reader.text(), reader.number(4)) if version >= 2 else ("", 1)
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in _variables(reader, version):
        name = _new_name(name) if revision == 1 else name
        if name in arrays:
            raise CheckpointError(f"{name} is there twice")
        arrays[name] = array
    aliases: dict[str, str] = {}
    for _ in range(reader.count(4) if version >= 3 else 0):
        alias, name = reader.text(), reader.text()
        if name not in arrays or alias in arrays:
            raise CheckpointError(f"the alias {alias} refers to no variable, or has the name of one")
        for end in ("", SCALE, "_zero"):  # the scale and zero point of a variable have the alias too
            if name + end in arrays:
                aliases[alias + end] = name + end
    return Variables(version, specification, revision, arrays, aliases)


def _new_name(name: str) -> str:
    """Return the present name of a variable that has OpenNMT-tf's name."""
    for old, new in OLD_NAMES:
        name = name.replace(old, new, 1)
    if name.startswith("encoder/"):
        return name.replace("multi_head", "self_attention", 1)
    return name.replace("masked_multi_head", "self_attention", 1).replace("multi_head", "attention", 1)


def _variables(reader: _VariablesReader, version: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the array of each variable."""
    for _ in range(reader.count(8)):
        name = reader.text()
        rank = reader.number(1)
        if rank > MAX_AXES:
            raise CheckpointError(f"{name} has {rank} axes")
        shape = tuple(reader.number(4) for _ in range(rank))
        kind, size = reader.number(1), reader.number(4)
        if version < 4:  # older files store the bytes of a number and the count of numbers
            kind, size = TYPES_BY_BYTES.get(kind, len(VARIABLE_TYPES)), size * kind
        if kind >= len(VARIABLE_TYPES):
            raise CheckpointError(f"{name} holds numbers of the unknown type {kind}")
        if size != math.prod(shape) * VARIABLE_TYPES[kind].itemsize:
            raise CheckpointError(f"{name} has {size} bytes, but the shape {shape}")
        yield name, reader.bytes(size).view(VARIABLE_TYPES[kind]).reshape(shape)


class _VariablesReader:
    """Reads numbers and strings in order. Raises CheckpointError at the end of the file."""

    def __init__(self, content: Any) -> None:
        self.content, self.at = np.frombuffer(content, np.uint8), 0

    def bytes(self, size: int) -> NDArray[np.uint8]:
        """Return the next bytes. Raises CheckpointError if the file ends before."""
        if size > len(self.content) - self.at:
            raise CheckpointError("it ends too early; copy it again")
        part = self.content[self.at : self.at + size]
        self.at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size).tobytes(), "little")

    def count(self, least: int) -> int:
        """Return a number of entries, each at least `least` bytes long."""
        count = self.number(4)
        if count * least > len(self.content) - self.at:
            raise CheckpointError(f"it has no room for {count} entries; copy it again")
        return count

    def text(self) -> str:
        """Return a string; its stored length includes a final zero."""
        text = self.bytes(self.number(2)).tobytes().removesuffix(b"\0").decode("utf-8")
        if not text.isprintable():
            raise CheckpointError(f"it holds a name {text!r}")
        return text
