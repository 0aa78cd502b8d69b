"""Large files of tensors: written tensor by tensor, and memory-mapped.

The format is safetensors; its library validates a file before it is mapped. Data begin at a multiple of 64
bytes. Arrays computed from tensors can be shared with other processes as mapped .npy files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from engine.bundle.folder import creating

logger = logging.getLogger(__name__)

SAFETENSORS_TYPES: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "I8": np.dtype(np.int8),
}
DTYPE_NAMES: Final = {dtype: name for name, dtype in SAFETENSORS_TYPES.items()}
ALIGNMENT: Final = 64  # bytes of a cache line
PAGE_BYTES: Final = 4096  # smaller arrays are not shared


class Spec(NamedTuple):
    """Type and shape of a tensor."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


class TensorPart(NamedTuple):
    """A tensor or a part of one.

    first: index of the first element in the flattened tensor.
    """

    name: str
    values: NDArray[Any]
    first: int = 0


class MappedTensors(dict[str, NDArray[Any]]):
    """Read-only tensors by name, in the pages of a mapped file."""

    def __init__(self, path: Path, types: Mapping[str, np.dtype[Any]] = SAFETENSORS_TYPES) -> None:
        """Map a file.

        path: the file.
        types: allowed types by their names in the file.

        Raises SafetensorError, OSError or ValueError if it is not a valid file of tensors.
        """
        super().__init__()
        with safe_open(path, framework="np"):  # validates types, shapes, offsets and the length of the file
            pass
        with path.open("rb") as content:
            self._pages = mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ)
        # the file is 8 bytes with the length of the header, the header (JSON), and the data
        start = 8 + int.from_bytes(self._pages[:8], "little")
        for name, entry in json.loads(self._pages[8:start]).items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in types:
                raise ValueError(f"{name} is {entry['dtype']}, not one of {', '.join(types)}")
            spec = Spec(types[entry["dtype"]], tuple(entry["shape"]))
            flat = np.frombuffer(
                self._pages, spec.dtype, math.prod(spec.shape), start + entry["data_offsets"][0]
            )
            self[name] = flat.reshape(spec.shape)

    def forget(self) -> None:
        """Release the pages that were read so far; they are read again when needed."""
        if hasattr(self._pages, "madvise"):
            self._pages.madvise(mmap.MADV_DONTNEED)


class SharedArrays:
    """Arrays computed from a bundle, in files that all processes of a machine map."""

    def __init__(self, folder: Path, name: str, digest: str) -> None:
        """Open the folder of a bundle's arrays and remove those of older bundles of the same name.

        Processes that still map a removed file keep its content.

        folder: folder of this user only, shared by the processes.
        name: name of the bundle.
        digest: digest of the bundle's files.
        """
        name_folder = _arrays_of(folder, name)
        self._folder = name_folder / digest
        for entry in name_folder.glob("*"):
            if entry != self._folder:
                shutil.rmtree(entry, ignore_errors=True)

    def array(self, recipe: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return an array, mapped read-only; the first process writes its file.

        A small or already mapped array, or one whose file can't be written, is returned as `make` made it.

        recipe: description of the array, unique within the bundle.
        make: function that computes the array.
        """
        path = self._folder / f"{hashlib.sha256(recipe.encode()).hexdigest()}.npy"
        with suppress(OSError):
            return _mapped(path)
        array = make()
        if array.nbytes < PAGE_BYTES or not _owner(array).flags.owndata:
            return array
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._folder) as out:
                np.save(out, array, allow_pickle=False)
                out.flush()
                with suppress(FileExistsError):  # another process was first
                    os.link(out.name, path)
            return _mapped(path)
        except OSError as error:
            logger.warning("weights are not shared with other processes: %s", error)
            return array


def remove_shared(folder: Path | None, name: str) -> None:
    """Remove the shared arrays of a bundle; processes that map them keep their content.

    folder: folder of the arrays of all bundles, or None.
    name: name of the bundle.
    """
    if folder is not None:
        shutil.rmtree(_arrays_of(folder, name), ignore_errors=True)


def _arrays_of(folder: Path, name: str) -> Path:
    """Return the folder of the arrays of all bundles of a name."""
    return folder / hashlib.sha256(name.encode()).hexdigest()


def _mapped(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _owner(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array that owns the memory of this view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def write_tensors(path: Path, specs: Mapping[str, Spec], parts: Iterable[TensorPart]) -> None:
    """Write a file of tensors in parts, in any order. The same input gives the same bytes.

    path: path of the file.
    specs: type and shape of each tensor.
    parts: all values of the tensors, each once.
    """
    offsets, end = dict[str, int](), 0
    # wide types first, so that each tensor begins at a multiple of its element size
    for name in sorted(specs, key=lambda name: (-specs[name].dtype.itemsize, name)):
        offsets[name], end = end, end + specs[name].bytes
    header = {
        name: {
            "dtype": DTYPE_NAMES[specs[name].dtype],
            "shape": specs[name].shape,
            "data_offsets": [at, at + specs[name].bytes],
        }
        for name, at in offsets.items()
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    # 8 bytes of length come first; spaces align the data
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with creating(path) as out:
        out.write(len(text).to_bytes(8, "little") + text)
        start = out.tell()
        out.truncate(start + end)
        for part in parts:
            out.seek(start + offsets[part.name] + part.first * part.values.itemsize)
            out.write(np.ascontiguousarray(part.values).data)
