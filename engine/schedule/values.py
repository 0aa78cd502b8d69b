"""Values of ours as bytes, for messages between the server and its workers. No message is a pickle.

A message has the basic types of msgpack, tuples, sets, numpy arrays, and dataclasses and named tuples of
modules that the reader has imported. Only messages to a worker have functions and models (`calls`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np

from engine.schedule.slices import Slices, at_once

BASIC: Final = frozenset({int, float, str, bytes, bool, type(None)})
OURS: Final = ("engine", "documents", "server")  # packages whose classes a message may name
CHUNK: Final = 32  # parts of a long list that are written and read together
CHUNK_CODE: Final = 1  # type of a chunk among the extensions of msgpack
# kinds of the other values, each a list of its kind and its parts
LIST, TUPLE, FROZENSET, DICT, OBJECT, ARRAY, NUMBER, FUNCTION, CALL, PARTIAL = range(10)
_MAKERS: Final[tuple[Callable[[list[Any]], Any], ...]] = (list, tuple, frozenset)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(value: Any) -> bytes:
    """Return a value as bytes. Raises TypeError on a value that no message may have."""
    return at_once(encode_slices(value))


def encode_slices(value: Any) -> Slices[bytes]:
    """Return the result of `encode`, in slices of CHUNK parts: the plan of a long text takes 0.3 s."""
    lowered = yield from _lower(value)
    return _ENCODER.encode(lowered)


def decode(message: bytes, *, calls: bool = False) -> Any:
    """Return the value in a message of `encode`.

    message: bytes of `encode`.
    calls: whether the sender may name functions to import and to call; for workers only.

    Raises ValueError on other bytes.
    """
    return at_once(decode_slices(message, calls=calls))


def decode_slices(message: bytes, *, calls: bool = False) -> Slices[Any]:
    """Return the result of `decode`, in slices of CHUNK parts.

    message, calls: parameters of `decode`.
    """
    try:
        return (yield from _restore(msgspec.msgpack.decode(message), calls))
    except (msgspec.DecodeError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not a message of a worker: {error!r}") from error


def name_of(thing: Any) -> str:
    """Return the name of a class or function, with its module."""
    return f"{thing.__module__}:{thing.__qualname__}"


def find_class(name: str) -> type:
    """Return the class of ours with a name of `name_of`. Raises ValueError if there is none in memory."""
    module, _, path = name.partition(":")
    found = attrgetter(path)(sys.modules[module]) if module.partition(".")[0] in OURS else None
    if not isinstance(found, type):
        raise ValueError(f"a message names {name!r}, which is no class of ours")  # noqa: TRY004
    return found


def _lower(value: Any) -> Slices[Any]:
    """Return a value as basic types and lists."""
    kind: Any = type(value)
    if kind in BASIC:
        return value
    start, parts = _lowering(kind)(value)
    lowered = [*start]
    for part in parts:
        lowered.append((yield from _lower_all(part)))
    return lowered


@cache
def _lowering(kind: Any) -> Callable[[Any], tuple[tuple[Any, ...], tuple[Collection[Any], ...]]]:
    """Return the function that splits values of a type into a list's first, basic values and its lists of
    values that follow. Raises TypeError if no message may have them."""
    if kind in _MAKERS:
        number = (_MAKERS.index(kind),)
        return lambda value: (number, (value,))
    if hasattr(kind, "reference"):  # an object that a worker opens itself, such as a model
        return _lower_reference
    if is_dataclass(kind) or _is_named_tuple(kind):
        start, parts = (OBJECT, name_of(kind)), attrgetter(*_field_names(kind), "__class__")
        return lambda value: (start, (parts(value)[:-1],))
    if issubclass(kind, Mapping):
        return lambda value: ((DICT,), (value, value.values()))
    if kind is np.ndarray:
        return lambda value: ((ARRAY, value.dtype.str, value.shape, value.tobytes()), ())
    if issubclass(kind, np.generic):
        return lambda value: ((NUMBER, value.dtype.str, value.tobytes()), ())
    if kind is partial:
        return lambda value: ((PARTIAL, name_of(value.func)), (value.args,))
    if kind is type(_lower):
        return lambda value: ((FUNCTION, name_of(value)), ())
    raise TypeError(f"no message may have a {kind.__name__}")


def _lower_reference(value: Any) -> tuple[tuple[Any, ...], tuple[Collection[Any], ...]]:
    """Return the function and the arguments that open an equal object."""
    function, arguments = value.reference()
    return (CALL, function), (arguments,)


def _lower_all(values: Collection[Any]) -> Slices[list[Any]]:
    """Return values as basic types and lists; most lists have numbers only.

    Other lists of more than CHUNK values become a list of messages, of CHUNK values each, so that neither
    side makes all lists at once, which would let the garbage collector run again and again.
    """
    if BASIC.issuperset(map(type, values)):
        return list(values)
    chunks, lowered = list[Any](), list[Any]()
    for value in values:
        lowered.append((yield from _lower(value)) if type(value) not in BASIC else value)
        if len(lowered) == CHUNK:
            chunks.append(_chunk(lowered))
            lowered.clear()
            yield
    return [*chunks, _chunk(lowered)] if chunks else lowered


def _chunk(lowered: list[Any]) -> msgspec.msgpack.Ext:
    """Return a part of a long list as a message in the message."""
    return msgspec.msgpack.Ext(CHUNK_CODE, _ENCODER.encode(lowered))


def _restore(value: Any, calls: bool) -> Slices[Any]:
    """Return the value that `_lower` has lowered."""
    if type(value) is not list:
        return value
    kind, first, *rest = value
    if kind <= FROZENSET:
        return _MAKERS[kind]((yield from _restore_all(first, calls)))
    if kind == OBJECT:
        return _class(first, calls)(*(yield from _restore_all(rest[0], calls)))
    if kind == DICT:
        keys = yield from _restore_all(first, calls)
        return dict(zip(keys, (yield from _restore_all(rest[0], calls)), strict=True))
    if kind == ARRAY:
        return np.frombuffer(rest[1], np.dtype(first)).reshape(rest[0]).copy()
    if kind == NUMBER:
        return np.frombuffer(rest[0], np.dtype(first))[0]
    if not calls:
        raise ValueError(f"a message of a worker names the function {first!r}")
    function = _function(first)
    if kind == FUNCTION:
        return function
    arguments = yield from _restore_all(rest[0], calls)
    return partial(function, *arguments) if kind == PARTIAL else function(*arguments)


def _restore_all(values: list[Any], calls: bool) -> Slices[list[Any]]:
    """Return the values that `_lower_all` has lowered."""
    if BASIC.issuperset(map(type, values)):
        return values
    if type(values[0]) is not msgspec.msgpack.Ext:
        return (yield from _restore_each(values, calls))
    restored = list[Any]()
    for chunk in values:
        restored += yield from _restore_each(msgspec.msgpack.decode(chunk.data), calls)
        yield
    return restored


def _restore_each(values: list[Any], calls: bool) -> Slices[list[Any]]:
    """Return the values that `_lower` has lowered."""
    restored = list[Any]()
    for value in values:
        restored.append((yield from _restore(value, calls)) if type(value) is list else value)
    return restored


@cache
def _function(name: str) -> Any:
    """Import the module of a function or class, and return it."""
    module, _, path = name.partition(":")
    return attrgetter(path)(importlib.import_module(module))


@cache
def _class(name: str, importing: bool) -> type:
    """Return the dataclass or named tuple with a name."""
    found = _function(name) if importing else find_class(name)
    if not (is_dataclass(found) or _is_named_tuple(found)):
        raise ValueError(f"a message names {name!r}, which is no class of data")
    return found


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the parameters of a dataclass or named tuple, in order."""
    return kind._fields if _is_named_tuple(kind) else tuple(f.name for f in fields(kind) if f.init)
