"""Completions of the shell: names of models and codes of languages, of a server or of local bundles."""

from __future__ import annotations

import json
from collections.abc import Iterable
from glob import escape, glob
from pathlib import Path
from typing import Any, Final

from typer import Context

HERE: Final = "models"  # default folder of bundles
ANSWER_SECONDS: Final = 1.0  # timeout of the server, because a user waits for the completion


def models(ctx: Context, incomplete: str) -> list[str]:
    """Return the names of the models of the server at --url; without --url, of folders."""
    if ctx.params.get("url"):
        return [m["name"] for m in _server_models(ctx) if m["name"].startswith(incomplete)]
    return sorted(glob(f"{escape(incomplete)}*/"))


def sources(ctx: Context, incomplete: str) -> list[str]:
    return _codes(ctx, incomplete, "source")


def targets(ctx: Context, incomplete: str) -> list[str]:
    return _codes(ctx, incomplete, "target")


def _codes(ctx: Context, incomplete: str, side: str) -> list[str]:
    """Return the language codes of a side that begin with the typed text."""
    catalogue = _server_models(ctx) if ctx.params.get("url") else _bundle_descriptions(ctx)
    codes = {model[side] for model in catalogue if model["task"] == ctx.info_name}
    return sorted(code for code in codes if code.startswith(incomplete))


def _server_models(ctx: Context) -> list[dict[str, Any]]:
    """Return the models of the server; none if it does not answer, because a completion can't show errors."""
    try:
        from convoy_client import Client, ClientError
    except ModuleNotFoundError:
        return []
    try:
        key = ctx.params.get("api_key")
        with Client(ctx.params["url"], key, timeout=ANSWER_SECONDS, retries=0) as client:
            catalogue = client.models()
    except (ClientError, ValueError):
        return []
    return [{"name": m.name, "task": m.task, "source": m.source, "target": m.target} for m in catalogue]


def _bundle_descriptions(ctx: Context) -> Iterable[dict[str, Any]]:
    """Yield the description of the bundle at --model; without --model, of all bundles in the default
    folder."""
    model = ctx.params.get("model")
    for path in [Path(model)] if model else sorted(Path(HERE).glob("*/")):
        try:
            yield json.loads((path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
