"""Command-line flags made from the fields of a dataclass, so that a new option needs no second place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, Final, get_type_hints

import typer

from engine.types import OPTION_HELP, DecodeOptions

Command = Callable[..., None]

TYPES: Final[dict[str, type]] = {
    "int": int,
    "int | None": int,
    "float": float,
    "bool": bool,
    "str": str,
}
# token ids mean nothing on a command line
LEFT_OUT: Final = frozenset({"prefix", "free_prefix", "quotas"})


def decode_flags(command: Command) -> Command:
    """Give a command that takes `**decode` one flag for each field of DecodeOptions.

    A flag that is not given arrives as None: the bundle's own default holds.
    """
    return extend(command, flags_of_options())


def flags_of_options() -> dict[str, Any]:
    """Make the flags of DecodeOptions: name to annotation."""
    flags = {}
    for field in fields(DecodeOptions):
        if field.name in LEFT_OUT:
            continue
        option = typer.Option(help=OPTION_HELP.get(field.name), show_default=False)
        flags[field.name] = Annotated[TYPES[str(field.type)] | None, option]
    return flags


def extend(command: Command, flags: Mapping[str, Any]) -> Command:
    """Give `command` keyword parameters in place of `**rest`: name to annotation, each None by default."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        p.replace(annotation=hints[p.name])
        for p in inspect.signature(command).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in flags.items()
    ]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        command(**values)

    wrapper.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    return wrapper


def explicit_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given."""
    return {name: value for name, value in values.items() if value is not None}
