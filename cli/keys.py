"""`convoy keys`: edits the file of API keys that `convoy serve --api-key-file` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.commands import SETTINGS

File = Annotated[
    Path, typer.Option("--file", envvar="CONVOY_API_KEY_FILE", help="The key file; `new` makes it.")
]

table = typer.Typer(**SETTINGS)


@table.callback()
def keys() -> None:
    """Make, list and revoke API keys; a running server reads changes within a second."""


@table.command()
def new(
    file: File,
    name: Annotated[str, typer.Option(help="Name of the key's owner.")] = "",
    requests: Annotated[
        int | None,
        typer.Option(min=-1, help="Requests a minute; -1: unlimited; default: the server's limit."),
    ] = None,
    characters: Annotated[
        int | None,
        typer.Option(min=-1, help="Characters in 30 days; -1: unlimited; default: the server's quota."),
    ] = None,
) -> None:
    """Make a key and print it; the file stores only its hash."""
    from server.callers.keys import editing, make_key

    key, token = make_key(name, requests, characters)
    with editing(file) as entries:
        entries.append(key)
    typer.echo(token)
    typer.echo(f"key {key.id} is in {file}; it is not shown again", err=True)


@table.command("list")
def show(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print id, name, date and limits of each key."""
    from server.callers.keys import read_keys

    names = ("id", "name", "created", "requests", "characters")
    rows = [{name: getattr(key, name) for name in names} for key in read_keys(file)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    texts = [list(names), *([_format_limit(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in texts) for i in range(len(names))]
    for line in texts:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


@table.command()
def revoke(
    file: File,
    key: Annotated[str, typer.Argument(help="Id of the key, or its name if it is unique.")],
) -> None:
    """Remove a key from the file."""
    from server.callers.keys import editing, read_keys, remove_key

    read_keys(file)  # raises for a missing file, which `editing` would make
    with editing(file) as entries:
        gone = remove_key(entries, key)
    typer.echo(f"revoked {gone.id} ({gone.name or 'no name'})", err=True)


def _format_limit(value: object) -> str:
    if value is None:
        return "server's"
    return "any" if value == -1 else str(value) or "-"
