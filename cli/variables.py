"""Warnings of environment variables that begin like ours and are unknown: most are misspelt."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any, Final

import typer

NEAR: Final = 0.75  # share of letters in common, such as in PROT and PORT


def unknown(names: Iterable[str], variables: Collection[str], prefix: str, command: str) -> list[str]:
    """Return a warning for each unknown variable, with the most similar known one if there is one.

    names: variables of the environment with the prefix.
    variables: known variables.
    prefix: prefix of all variables, which is ignored in comparisons.
    command: name of the command whose help lists the variables.
    """
    warnings = []
    known = [variable.removeprefix(prefix) for variable in variables]
    for name in sorted(set(names) - set(variables)):
        nearest = get_close_matches(name.removeprefix(prefix), known, 1, NEAR)
        hint = f"; did you mean {prefix}{nearest[0]}?" if nearest else f": convoy {command} --help lists them"
        warnings.append(f"unknown variable {name}{hint}")
    return warnings


def unknown_of(command: Any, path: str, names: Iterable[str]) -> list[str]:
    """Return a warning for each unknown variable of a command.

    command: the Click command.
    path: name of the command after "convoy", such as "translate" or "convert hf".
    names: environment variables that are set.
    """
    prefix = _prefix(path)
    variables = {name for flag in _flags(command) for name in _variables(flag, prefix)}
    return unknown([name for name in names if name.startswith(prefix)], variables, prefix, path)


def name_variables(command: Any, path: str) -> None:
    """Let each flag of a command be set by CONVOY_<COMMAND>_<FLAG>, besides its own variable.

    command: the Click command.
    path: name of the command after "convoy"; `serve` has variables of its own.
    """
    for flag in _flags(command) if path != "serve" else ():
        own = [flag.envvar] if isinstance(flag.envvar, str) else []
        if len(names := [*_variables(flag, _prefix(path)), *own]) > 1:
            flag.envvar = names


def _prefix(path: str) -> str:
    return f"CONVOY_{path.upper().replace(' ', '_').replace('-', '_')}_"


def _flags(command: Any) -> list[Any]:
    return [flag for flag in command.params if flag.name and flag.param_type_name == "option"]


def _variables(flag: Any, prefix: str) -> list[str]:
    """Return the variables of a flag: those of its long names, and that of its parameter."""
    names = [name.removeprefix("--").replace("-", "_") for name in flag.opts if name.startswith("--")]
    return [f"{prefix}{name.upper()}" for name in dict.fromkeys([*names, flag.name])]


def warn_of(warnings: Iterable[str]) -> None:
    """Print warnings on stderr."""
    for warning in warnings:
        typer.echo(f"convoy: warning: {warning}", err=True)
