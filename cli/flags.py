"""Command-line flags made of the fields of TextOptions and DecodeOptions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import typer

from engine.answers.options import USUAL_OPTIONS, TextOptions, offered_options
from engine.errors import InvalidRequest
from engine.types import OPTION_HELP, DecodeOptions

Command = Callable[..., None]

ANSWERS: Final = "Answers"  # groups of flags in --help
DECODING: Final = "Decoding"
# text options without a flag: --alignment is a decoding option, and `convoy corpus` has a column of coverage
NO_FLAGS: Final = frozenset({"alignment", "coverage"})
DECODE_KINDS: Final[Mapping[str, Any]] = {
    name: kind for name, kind in get_type_hints(DecodeOptions).items() if name in OPTION_HELP
}


def answer_flags(task: str, names: Collection[str] | None = None) -> Callable[[Command], Command]:
    """Return a decorator that replaces `**options` of a command by the flags of its answers."""
    return lambda command: extend(command, flags_of(task, names))


def flags_of(task: str, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return an annotation by name for each text option of a task and for each decoding option."""
    texts = {
        option.name: option_flag(option.name, option.kind, option.help, ANSWERS, option.default)
        for option in offered_options(task)
        if option.name not in NO_FLAGS and (names is None or option.name in names)
    }
    return texts | {
        name: option_flag(name, kind, OPTION_HELP[name], DECODING) for name, kind in DECODE_KINDS.items()
    }


def options_of(task: str, values: Mapping[str, Any]) -> TextOptions:
    """Return the usual options of a task with the flags that were given.

    task: "translate" or "summarize".
    values: value of each flag by name; None: the flag was not given.

    Raises InvalidRequest.
    """
    given = explicit_flags(values)
    texts = {o.name: _value(o.kind, given[o.name]) for o in offered_options(task) if o.name in given}
    decode = {name: _value(kind, given[name]) for name, kind in DECODE_KINDS.items() if name in given}
    changes: dict[str, Any] = {name: value for name, value in texts.items() if name not in NO_FLAGS}
    return replace(USUAL_OPTIONS[task], decode=decode, **changes)


def option_flag(name: str, kind: Any, sentence: str, group: str | None = None, default: Any = None) -> Any:
    """Return the annotation of a flag; a flag that is not given has the value None.

    name: field of the options, such as "beam_size".
    kind: annotation of that field.
    sentence: help text of the flag.
    group: title over the flag in the help of its command.
    default: value of the option unless the flag is given; None: the model's.
    """
    kind = _without_none(kind)
    settings: dict[str, Any] = {"help": sentence, "show_default": False, "rich_help_panel": group}
    declarations = []
    if kind is bool and default is False:
        declarations = [f"--{name.replace('_', '-')}"]  # without a --no- form
    elif kind is bool and default:
        settings["show_default"] = name.replace("_", "-")
    if get_origin(kind) not in (None, Literal):
        settings["help"] += " May be given several times."
        settings["metavar"] = "SOURCE=TARGET" if _is_mapping(kind) else f"<{get_args(kind)[0].__name__}>"
    return Annotated[_flag_type(kind) | None, typer.Option(*declarations, **settings)]


def extend(command: Command, flags: Mapping[str, Any]) -> Command:
    """Replace `**rest` in the signature of a command by one keyword parameter for each flag, default None."""
    hints = get_type_hints(command, include_extras=True)
    old_parameters = [
        p.replace(annotation=hints[p.name])
        for p in inspect.signature(command).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    new_parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in flags.items()
    ]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        command(**values)

    wrapper.__signature__ = inspect.Signature([*old_parameters, *new_parameters])  # type: ignore[attr-defined]
    return wrapper


def explicit_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given."""
    return {name: value for name, value in values.items() if value is not None}


def _without_none(kind: Any) -> Any:
    """Return T for the type `T | None`, and every other type as it is."""
    if not isinstance(kind, UnionType):
        return kind
    (inner,) = (member for member in get_args(kind) if member is not NoneType)
    return inner


def _is_mapping(kind: Any) -> bool:
    return isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping)


def _flag_type(kind: Any) -> Any:
    """Return the type of the flag for an option of a type: lists stand for tuples and mappings."""
    if _is_mapping(kind):
        return list[str]
    if get_origin(kind) is tuple:
        return list[get_args(kind)[0]]  # type: ignore[misc]
    return str if get_origin(kind) is Literal else kind


def _value(kind: Any, value: Any) -> Any:
    """Return the value of an option for the value of its flag."""
    if not isinstance(value, list):
        return value
    if not _is_mapping(_without_none(kind)):
        return tuple(value)
    pairs = [text.partition("=") for text in value]
    for text, (source, equals, target) in zip(value, pairs, strict=True):
        if not (source and equals and target):
            raise InvalidRequest(f"give a phrase and its translation as SOURCE=TARGET, not {text!r}")
    return {source: target for source, _, target in pairs}
