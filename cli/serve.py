"""`convoy serve`: the HTTP server. Its flags are the fields of `server.settings.ServerSettings`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.awaiting import fetching
from cli.flags import explicit_flags, extend
from cli.foreign import served_paths
from cli.variables import unknown, warn_of
from engine.errors import InvalidRequest

PREFIX: Final = "CONVOY_"
# known variables that are no settings of the server
OTHERS: Final = frozenset({"CONVOY_TRACEBACK", "CONVOY_API_KEY", "CONVOY_ISA", "CONVOY_KERNELS_ISA"})
FAMILIES: Final = ("ray", "test", "fault", "engine")
# settings with secret values, which no error message repeats
SECRET: Final = frozenset({"api_keys", "metrics_auth_token", "docs_auth_token", "admin_token"})


def serve(**flags: Any) -> None:
    """Serve models over HTTP until SIGTERM or Ctrl-C; accepted requests are finished first.

    For several folders of models, repeat --models or separate them by ":".
    """
    from pydantic import ValidationError

    from server.libretranslate import without_effect
    from server.settings import ServerSettings
    from server.settings.sources import is_link
    from server.supervisor import serve as run

    links = {name for name, value in os.environ.items() if name.startswith(PREFIX) and is_link(name, value)}
    warn_of(unknown_variables(os.environ.keys() - links, list(ServerSettings.model_fields)))
    # the flags have the values of variables, also of links
    linked = {(name.removeprefix(PREFIX).lower(), os.environ[name]) for name in links}
    values = {
        name: value for name, value in explicit_flags(flags).items() if (name, str(value)) not in linked
    }
    if values.get("models"):
        values["models"] = os.pathsep.join(map(str, values["models"]))
    else:
        values.pop("models", None)  # an empty list: the flag was not given
    try:
        settings = ServerSettings(**values)
    except ValidationError as error:
        raise InvalidRequest("; ".join(map(_setting_error, error.errors()))) from None
    if settings.workers is not None:
        now = f"--frontends {settings.frontends} --engines {settings.engines}"
        typer.echo(f"convoy: --workers {settings.workers} is deprecated; use {now}", err=True)
    idle = without_effect()
    if idle:
        typer.echo(
            f"convoy: {', '.join(idle)}: settings of LibreTranslate without effect in Convoy", err=True
        )
    check_address(settings.host, settings.port)
    if settings.grpc_port is not None:
        check_address(settings.host, settings.grpc_port, "--grpc-port")
    check_writable(settings.store_folder, settings.suggestions)
    placement = settings.service().placement
    placement.check()
    placement.check_gpus()
    settings = settings.with_processes()
    with fetching(settings) as settings:
        languages = settings.served_languages
        models = served_paths(settings.models, settings.cache, settings.store_folder, languages)
        code = run(settings.model_copy(update={"models": models}))
    raise typer.Exit(code)


def build() -> Callable[..., None]:
    """Return `serve` with a flag and an environment variable for every setting.

    ServerSettings parses and checks their values.
    """
    from server.settings import ServerSettings

    groups = {
        name: (group.__doc__ or "").removesuffix(".")
        for group in ServerSettings.__bases__
        for name in group.__annotations__
    }
    flags = {}
    for name, field in ServerSettings.model_fields.items():
        option = typer.Option(
            help=f"{field.description}{_format_default(field.default)}",
            envvar=f"CONVOY_{name.upper()}",
            show_default=False,
            rich_help_panel=groups[name],
        )
        kind = list[Path] if name == "models" else bool if field.annotation is bool else str
        flags[name] = Annotated[kind | None, option]
    return extend(serve, flags)


def check_address(host: str, port: int, flag: str = "--port") -> None:
    """Raise InvalidRequest if the server can't listen at an address; called before models are loaded.

    host: name or address of this machine.
    port: TCP port; 0: any free port.
    flag: name of the flag of the port, for the message.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name == "posix")
            trial.bind(address)
    except OSError as error:
        raise InvalidRequest(
            f"--host {host} {flag} {port}: {error.strerror}; choose another, or end the process that uses it"
        ) from None


def check_writable(folder: Path | None, suggestions: Path | None) -> None:
    """Raise InvalidRequest if the server can't write its files; called before models are loaded.

    folder: folder of stored files, made if it is missing.
    suggestions: file of suggested translations, made if it is missing.
    """
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"--store-folder {folder}: can't make the folder ({error.strerror})") from None
    try:
        if suggestions is not None:
            suggestions.open("ab").close()
    except OSError as error:
        raise InvalidRequest(
            f"--suggestions {suggestions}: can't write the file ({error.strerror})"
        ) from None


def unknown_variables(names: Iterable[str], settings: Sequence[str]) -> list[str]:
    """Return a warning for each unknown variable that begins with CONVOY_.

    names: environment variables that are set.
    settings: names of the settings.
    """
    from cli.main import COMMANDS
    from server.settings.sources import IN_FILES

    variables = {f"{PREFIX}{name.upper()}" for name in settings} | OTHERS
    variables |= {f"{PREFIX}{name.upper()}_FILE" for name in IN_FILES}
    families = tuple(f"{PREFIX}{word.upper()}_" for word in (*COMMANDS, *FAMILIES))
    ours = [name for name in names if name.startswith(PREFIX) and not name.startswith(families)]
    return unknown(ours, variables, PREFIX, "serve")


def _format_default(default: Any) -> str:
    if isinstance(default, tuple):
        default = ",".join("x".join(map(str, d)) if isinstance(d, tuple) else str(d) for d in default)
    return "" if default in (None, "") else f" Default: {default}."


def _setting_error(error: Any) -> str:
    from server.errors import reason_of

    if not error["loc"]:  # an error of several settings has all of them as input, with keys
        return reason_of(error)
    name = str(error["loc"][0])
    flag = name.replace("_", "-")
    suffix = "" if name in SECRET else f", not {error['input']!r}"
    return f"--{flag} (CONVOY_{name.upper()}): {reason_of(error)}{suffix}"
