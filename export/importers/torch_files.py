"""Read files of `torch.save` without torch: zip archives, and the older format of pickles followed by data.

A tensor becomes a `StoredTensor`, whose values stay in the file, which is mapped, until they are read.
"""

from __future__ import annotations

import io
import math
import mmap
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from export.importers.pickles import Call, PickleReader, Stateful, plain_key

MAGIC: Final = 0x1950A86A20F9469CFC6C  # first pickle of the older format
PROTOCOL: Final = 1001
LOCAL_HEADER: Final = 30  # bytes of a zip member's header before its name
STORAGES: Final[Mapping[str, np.dtype[Any]]] = {
    f"torch.{name}Storage": np.dtype(kind)
    for name, kind in {
        "Double": np.float64,
        "Float": np.float32,
        "Half": np.float16,
        "BFloat16": ml_dtypes.bfloat16,
        "Long": np.int64,
        "Int": np.int32,
        "Short": np.int16,
        "Char": np.int8,
        "Byte": np.uint8,
        "Bool": np.bool_,
        "ComplexFloat": np.complex64,
        "ComplexDouble": np.complex128,
    }.items()
}
KINDS: Final = (
    *(
        "float64",
        "double",
        "float32",
        "float",
        "float16",
        "half",
        "bfloat16",
        "int64",
        "long",
        "int32",
        "int",
    ),
    *("int16", "short", "int8", "uint8", "bool", "complex64", "complex128", "strided"),
)
# functions that make tensors which are not dense
OTHER_TENSORS: Final = (
    *("_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor", "_rebuild_qtensor", "_rebuild_nested_tensor"),
    *("_rebuild_meta_tensor_no_storage", "_rebuild_wrapper_subclass", "_rebuild_device_tensor_from_numpy"),
)


class IgnoredObject(dict[Any, Any], Stateful):
    """Stand-in for an object that no reader needs, such as training statistics."""

    def __init__(self, *_: Any) -> None:
        super().__init__()


class Storage:
    """Numbers of one type in a file, which several tensors may share.

    key: name of the storage within the file.
    dtype: type of the numbers; None: it is not read.
    count: number of elements.
    """

    def __init__(self, key: str, dtype: np.dtype[Any] | None, count: int) -> None:
        self.key, self.dtype, self.count = key, dtype, count
        self.values: NDArray[Any] = np.empty(0, dtype)


@dataclass(frozen=True, slots=True)
class StoredTensor(Stateful):
    """A tensor whose values are in a file.

    storage: its numbers; None: it is not a dense tensor with values.
    offset: index of the first element in the storage.
    shape: lengths of the axes.
    strides: distance of neighbours along each axis, in elements.
    """

    storage: Storage | None
    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def array(self) -> NDArray[Any] | None:
        """Return the values, read-only; None: the file does not store each of them."""
        storage = self.storage
        if storage is None or storage.dtype is None:
            return None
        numbers = (self.offset, *self.shape, *self.strides)
        if len(self.shape) != len(self.strides) or not all(
            type(n) is int and 0 <= n < 2**62 for n in numbers
        ):
            return None
        last = sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))
        size = math.prod(self.shape)
        if size > storage.count or (size and self.offset + last >= len(storage.values)):
            return None
        if not size:
            return np.empty(self.shape, storage.dtype)
        steps = tuple(stride * storage.dtype.itemsize for stride in self.strides)
        begin = storage.values[self.offset :]
        return np.lib.stride_tricks.as_strided(begin, self.shape, steps, writeable=False)


def read_torch_file(path: Path, names: Mapping[str, Call]) -> Any:
    """Return the object in a file of `torch.save`, with a StoredTensor for each tensor.

    path: the file.
    names: further names that its pickle may refer to, and a function for each.

    Raises UnlistedName, and ValueError, TypeError, KeyError, IndexError or OSError if it is damaged.
    """
    known = {**TORCH_NAMES, **names}
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return _read_zip(archive, pages, known)
    return _read_pickles(pages, known)


def _read_zip(archive: zipfile.ZipFile, pages: mmap.mmap, names: Mapping[str, Call | None]) -> Any:
    members = {info.filename: info for info in archive.infolist()}
    if len(members) < len(archive.infolist()):
        raise ValueError("it holds a member twice")
    if any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
        raise ValueError("it is compressed, so torch did not write it")
    wrong = archive.testzip()
    if wrong is not None:
        raise ValueError(f"{wrong} has a wrong checksum")
    (pickle,) = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    folder = pickle.removesuffix("data.pkl")
    if f"{folder}byteorder" in members and archive.read(f"{folder}byteorder") != b"little":
        raise ValueError("it was written by a big-endian machine")

    def find(storage: Storage) -> None:
        info = members[f"{folder}data/{storage.key}"]
        header = pages[info.header_offset : info.header_offset + LOCAL_HEADER]
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        begin = info.header_offset + LOCAL_HEADER + lengths
        _place(storage, pages, begin, info.file_size)

    content, storages = _interpret(io.BytesIO(archive.read(pickle)), names)
    for storage in storages.values():
        find(storage)
    return content


def _read_pickles(pages: mmap.mmap, names: Mapping[str, Call | None]) -> Any:
    """Read the older format: magic number, protocol, facts of the system, content, keys of storages, data."""
    first = [_interpret(pages, names)[0] for _ in range(3)]
    if first[0] != MAGIC or first[1] != PROTOCOL:
        raise ValueError("it is no file of torch.save")
    if not isinstance(first[2], dict) or first[2].get("little_endian") is not True:
        raise ValueError("it was written by a big-endian machine")
    content, storages = _interpret(pages, names)
    keys, _ = _interpret(pages, names)
    for key in keys:
        storage = storages[str(key)]
        if int.from_bytes(pages.read(8), "little") != storage.count or storage.dtype is None:
            raise ValueError(f"the storage {storage.key} has another length")
        size = storage.count * storage.dtype.itemsize
        _place(storage, pages, pages.tell(), size)
        pages.seek(size, 1)
    return content


def _place(storage: Storage, pages: mmap.mmap, begin: int, size: int) -> None:
    """Map the values of a storage.

    storage: the storage.
    pages: the file.
    begin: position of the values in the file.
    size: number of bytes there.
    """
    if storage.dtype is None:
        return
    if size < storage.count * storage.dtype.itemsize:
        raise ValueError(f"the storage {storage.key} is shorter than its tensors")
    if storage.count:
        storage.values = np.frombuffer(pages, storage.dtype, storage.count, begin)


def _interpret(pickle: Any, names: Mapping[str, Call | None]) -> tuple[Any, dict[str, Storage]]:
    """Return the object of a pickle, and the storages that its tensors use, by their keys."""
    storages: dict[str, Storage] = {}

    def persistent(entry: Any) -> Storage:
        if not isinstance(entry, tuple) or len(entry) < 5 or entry[0] != "storage":
            raise ValueError("a persistent object is no storage")
        _, kind, key, _, count, *view = entry
        if type(count) is not int or not 0 <= count < 2**62 or view not in ([], [None]):
            raise ValueError("a storage has no valid length")
        storage = Storage(str(key), STORAGES.get(getattr(kind, "name", "")), count)
        known = storages.setdefault(storage.key, storage)
        if (known.dtype, known.count) != (storage.dtype, storage.count):
            raise ValueError(f"the storage {storage.key} has two types or lengths")
        return known

    return PickleReader(names, persistent).read(pickle), storages


def _tensor(
    storage: Storage, offset: int, shape: Any, strides: Any, _grad: Any = None, _hooks: Any = None, *more: Any
) -> StoredTensor:
    """Return a tensor of `_rebuild_tensor` or `_rebuild_tensor_v2`; one with further marks is not dense."""
    if not isinstance(storage, Storage):
        raise TypeError("a tensor has no storage")
    if any(more):
        return StoredTensor(None)
    return StoredTensor(storage, offset, tuple(shape), tuple(strides))


def _other_tensor(*_: Any) -> StoredTensor:
    return StoredTensor(None)


def _parameter(tensor: StoredTensor, *_: Any) -> StoredTensor:
    return tensor


def _with_attributes(function: Any, _kind: Any, arguments: Any, _state: Any) -> Any:
    """Return the tensor of `_rebuild_from_type_v2`, without its attributes."""
    if getattr(function, "call", None) not in (_tensor, _parameter, _other_tensor):
        raise TypeError("something that is no tensor is made")
    return function.call(*arguments)


def _ordered(pairs: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict((plain_key(key), value) for key, value in pairs)


def _bytes(text: str, _encoding: str = "latin1") -> bytes:
    return text.encode("latin1")


TORCH_NAMES: Final[Mapping[str, Call | None]] = {
    **dict.fromkeys(STORAGES),
    **{f"torch.{kind}": None for kind in KINDS},
    "torch.storage.UntypedStorage": None,
    "torch.Tensor": None,
    "torch.nn.parameter.Parameter": _parameter,
    "torch.Size": tuple,
    "torch.device": IgnoredObject,
    "torch.serialization._get_layout": IgnoredObject,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _with_attributes,
    **{f"torch._utils.{name}": _other_tensor for name in (*OTHER_TENSORS, "_rebuild_tensor_v3")},
    "collections.OrderedDict": _ordered,
    "collections.Counter": IgnoredObject,
    "_codecs.encode": _bytes,
    "builtins.bytearray": IgnoredObject,
    "builtins.complex": IgnoredObject,
    "builtins.set": IgnoredObject,
}
