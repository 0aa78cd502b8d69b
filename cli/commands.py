"""A group of commands; each command is a module that is imported when it runs or is listed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from cli.variables import name_variables, unknown_of, warn_of

OTHER_FLAGS: Final = "Options"  # group of flags without one
ARGUMENTS: Final = "Arguments"
SETTINGS: Final[dict[str, Any]] = {"add_completion": False, "rich_markup_mode": None}


class Command(TyperCommand):
    """A command with flags in groups in its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the flags of each group under its name."""
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: []}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is not None:
                title = ARGUMENTS if parameter.param_type_name == "argument" else OTHER_FLAGS
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or title, []).append(row)
        groups[OTHER_FLAGS] = groups.pop(OTHER_FLAGS)  # the last one
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


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
            group: Any = typer.main.get_command(module.table)
            for name, command in group.commands.items():
                name_variables(command, f"{_path(ctx, cmd_name)} {name}")
            return group
        one = typer.Typer(**SETTINGS)
        one.command(cmd_name, cls=Command)(
            module.build() if hasattr(module, "build") else getattr(module, cmd_name)
        )
        command = typer.main.get_command(one)
        name_variables(command, _path(ctx, cmd_name))
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Fail on an unknown command with the nearest or all known ones, and warn of misspelt variables."""
        if args[0] not in self.names and not ctx.resilient_parsing:
            near = get_close_matches(args[0], self.names, 1)
            known = f"did you mean {near[0]}?" if near else f"known are {', '.join(self.names)}."
            ctx.fail(f"No such command {args[0]!r}; {known}")
        name, command, rest = super().resolve_command(ctx, args)
        if not (ctx.resilient_parsing or isinstance(command, TyperGroup)):
            warn_of(unknown_of(command, _path(ctx, name), os.environ))
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


def _path(ctx: Any, name: str | None) -> str:
    """Return the name of a command after "convoy", such as "translate" or "convert hf"."""
    return f"{ctx.command_path if ctx else 'convoy'} {name}".partition(" ")[2]
