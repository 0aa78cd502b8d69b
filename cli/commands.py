"""A group of commands; each command is a module that is imported when it runs or is listed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperGroup

from cli.variables import unknown_of, warn_of

SETTINGS: Final[dict[str, Any]] = {"add_completion": False, "rich_markup_mode": None}


class Commands(TyperGroup):
    """A group whose commands are the modules `names` of `package`.

    A module has a function with the name of the command, or `build()` if its flags need heavy imports, or
    `table`, a group of commands.
    """

    package: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.names)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, importing only its module; None: there is no such command."""
        if cmd_name not in self.names:
            return None
        module = self._module(cmd_name)
        if hasattr(module, "table"):
            return typer.main.get_command(module.table)
        one = typer.Typer(**SETTINGS)
        one.command(cmd_name)(module.build() if hasattr(module, "build") else getattr(module, cmd_name))
        return typer.main.get_command(one)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Fail on an unknown command with a list of the known ones, and warn of misspelt variables."""
        if args[0] not in self.names and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}; known are {', '.join(self.names)}.")
        name, command, rest = super().resolve_command(ctx, args)
        if not (ctx.resilient_parsing or isinstance(command, TyperGroup)):
            path = f"{ctx.command_path} {name}".partition(" ")[2]
            warn_of(unknown_of(command, path, os.environ))
        return name, command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first line of each command's docstring; commands are not built for that."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries()))

    def _summaries(self) -> Iterator[tuple[str, str]]:
        for name in self.names:
            yield name, getattr(self._module(name), name).__doc__.splitlines()[0]

    def _module(self, name: str) -> ModuleType:
        return import_module(f"{self.package}.{name}")
