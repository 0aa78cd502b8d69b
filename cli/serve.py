"""`convoy serve`: the HTTP server. Its flags are the fields of server/settings.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.flags import extend, given
from engine.errors import InvalidRequest

# never repeated in an error
SECRET: Final = frozenset({"api_keys", "metrics_auth_token", "docs_auth_token", "admin_token"})


def serve(**flags: Any) -> None:
    """Serve models over HTTP until SIGTERM or Ctrl-C; accepted requests are finished first.

    Repeat --models for several, or put ":" between them.
    """
    from pydantic import ValidationError

    from server.app import serve as run
    from server.settings import Settings

    values = given(flags)
    if values.get("models"):
        values["models"] = os.pathsep.join(map(str, values["models"]))
    else:
        values.pop("models", None)  # typer's empty list: not given
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise InvalidRequest("; ".join(map(_fault, error.errors()))) from None
    raise typer.Exit(run(settings))


def build() -> Callable[..., None]:
    """`serve` with a flag and an environment variable for every setting, which parses and checks both."""
    from server.settings import Settings

    flags = {}
    for name, field in Settings.model_fields.items():
        option = typer.Option(
            help=f"{field.description}{_shown(field.default)}",
            envvar=f"CONVOY_{name.upper()}",
            show_default=False,
        )
        kind = list[Path] if name == "models" else bool if field.annotation is bool else str
        flags[name] = Annotated[kind | None, option]
    return extend(serve, flags)


def _shown(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, tuple):
        default = ",".join("x".join(map(str, d)) if isinstance(d, tuple) else str(d) for d in default)
    return f" Default: {default}."


def _fault(error: Any) -> str:
    name = str(error["loc"][0]) if error["loc"] else "settings"
    flag = name.replace("_", "-")
    given = "" if name in SECRET else f", not {error['input']!r}"
    return f"--{flag} (CONVOY_{name.upper()}): {error['msg']}{given}"
