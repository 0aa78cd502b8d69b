"""What the shell completes: names of models and codes of languages, of a server or of bundles here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from glob import escape, glob
from pathlib import Path
from typing import Any, Final

from typer import Context

HERE: Final = "models"  # where bundles lie by default
ANSWER_SECONDS: Final = 1.0  # that a server gets: somebody waits for the key's effect


def models(ctx: Context, incomplete: str) -> list[str]:
    """List the models of the server that --url names; without it, list folders."""
    if ctx.params.get("url"):
        return [m["name"] for m in _of_server(ctx) if m["name"].startswith(incomplete)]
    return sorted(glob(f"{escape(incomplete)}*/"))


def sources(ctx: Context, incomplete: str) -> list[str]:
    return _codes(ctx, incomplete, "source")


def targets(ctx: Context, incomplete: str) -> list[str]:
    return _codes(ctx, incomplete, "target")


def _codes(ctx: Context, incomplete: str, side: str) -> list[str]:
    catalogue = _of_server(ctx) if ctx.params.get("url") else _of_bundles(ctx)
    codes = {model[side] for model in catalogue if model["task"] == ctx.info_name}
    return sorted(code for code in codes if code.startswith(incomplete))


def _of_server(ctx: Context) -> list[dict[str, Any]]:
    """Nothing when it does not answer: a completion has no place for an error."""
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


def _of_bundles(ctx: Context) -> Iterable[dict[str, Any]]:
    """Of the chosen bundle, else of all in the usual folder."""
    model = ctx.params.get("model")
    for path in [Path(model)] if model else sorted(Path(HERE).glob("*/")):
        try:
            yield json.loads((path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
