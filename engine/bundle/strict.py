"""Convert JSON objects to dataclasses; refuse unknown keys, missing keys and values of a wrong type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from engine.errors import ConfigError

T = TypeVar("T")
NOTHING: Final = type(None)


def from_json(cls: type[T], data: Any, where: str, **converted: Any) -> T:
    """Convert a JSON object to a dataclass, nested dataclasses included.

    cls: dataclass with fields str, int, float, bool, None, Any, dataclasses, or tuples and mappings of these.
    data: value read from JSON or TOML.
    where: name of the object in error messages.
    converted: values of fields that replace those of `data`.

    Raises ConfigError that names every error.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} must be an object, not {type(data).__name__}")
    hints, keys = get_type_hints(cls), {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    required = {n for n, f in keys.items() if f.default is MISSING and f.default_factory is MISSING}
    problems, values = (
        list(_key_problems(where, set(data), list(keys), required - set(converted))),
        dict(converted),
    )
    for name in keys:
        if name in data and name not in converted:
            try:
                values[name] = _value(hints[name], data[name], f"{where}.{name}")
            except ConfigError as error:
                problems.append(str(error))
    if problems:
        raise ConfigError("; ".join(problems))
    return cls(**values)


def _key_problems(where: str, data: Set[str], known: Sequence[str], required: Set[str]) -> Iterator[str]:
    """Yield an error for unknown keys and one for missing keys."""
    if unknown := sorted(data - set(known)):
        yield (
            f"{where} has unknown keys {unknown} (known are {', '.join(sorted(known))}): was it written by a "
            "newer Convoy?"
        )
    if missing := [name for name in known if name in required - data]:
        yield f"{where} lacks the key{'s' * bool(missing[1:])} {', '.join(map(repr, missing))}"


def _value(kind: Any, value: Any, where: str) -> Any:
    """Convert a value to the type of its field."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for option in kinds:
        if _fits(option, value):
            return _convert_value(option, value, where)
    raise ConfigError(f"{where} must be of type {_type_names(kinds)}, not {value!r}")


def _fits(kind: Any, value: Any) -> bool:
    """Return whether a value matches a type, without checking the values inside it."""
    origin = get_origin(kind) or kind
    if origin is Any:
        return True
    if origin in (int, float):
        return type(value) is int or (
            origin is float and type(value) is float
        )  # excludes bool, a subclass of int
    if origin is tuple:
        return isinstance(value, (list, tuple))
    return isinstance(value, dict) if _is_object(origin) else isinstance(value, origin)


def _convert_value(kind: Any, value: Any, where: str) -> Any:
    """Convert a value that `_fits` a type, with the values inside it."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if is_dataclass(origin):
        from_dict = getattr(origin, "from_dict", None)  # such a class chooses the types of its fields
        return from_dict(value) if from_dict else from_json(origin, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else list(inner)
        if len(kinds) != len(value):
            raise ConfigError(f"{where} must hold {len(kinds)} values, not {value!r}")
        return tuple(_value(k, v, where) for k, v in zip(kinds, value, strict=True))
    if _is_object(origin) and inner:
        return {key: _value(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    return value


def _is_object(kind: Any) -> bool:
    """Return whether a type is written as a JSON object."""
    return is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, Mapping))


def _type_name(kind: Any) -> str:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is tuple:
        return f"list of {_type_names([k for k in inner if k is not ...])}"
    return "null" if kind is NOTHING else "object" if _is_object(origin) else origin.__name__


def _type_names(kinds: Sequence[Any]) -> str:
    return " or ".join(dict.fromkeys(_type_name(kind) for kind in kinds))
