"""`convoy inspect`: describes a bundle, after verifying the hash of every file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle

CARD: Final = "README.md"
LICENCE: Final = re.compile(r"licen[cs]e", re.IGNORECASE)
SCORE: Final = re.compile(r"\b(BLEU|chrF|ROUGE)", re.IGNORECASE)


def inspect(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a bundle's architecture, parameters, vocabulary, limits, files, licence and scores."""
    from engine.bundle.bundle import open_bundle

    description = _describe(open_bundle(bundle))
    if as_json:
        typer.echo(json.dumps(description, indent=2, ensure_ascii=False))
        return
    width = max(map(len, description))
    for name, value in ((name, value) for name, value in description.items() if value is not None):
        lines = _format_lines(value)
        typer.echo(f"{name:{width}}  {lines[0] if lines else '-'}")
        for line in lines[1:]:
            typer.echo(f"{'':{width}}  {line}")


def _describe(bundle: Bundle) -> dict[str, Any]:
    """Return what `convoy inspect` prints of a bundle; None: the line is omitted."""
    config = bundle.config
    weights = bundle.weights()
    card = bundle.file(CARD).read_text(encoding="utf-8").splitlines() if CARD in bundle.manifest else []
    return {
        "name": bundle.name,
        "task": bundle.task,
        "languages": f"{bundle.source} -> {bundle.target}",
        "architecture": config.architecture,
        "members": [member.architecture for member in config.members] or None,
        "language model": config.language_model.architecture if config.language_model else None,
        "encoder": asdict(config.encoder) if config.encoder else None,
        "decoder": asdict(config.decoder) if config.decoder else None,
        "parameters": sum(w.size for w in weights.values()),
        "vocabulary": {"source": config.source_vocab, "target": config.target_vocab},
        "limits": {
            "source": config.max_source - 1,
            "target": config.max_target - 1,
            "sentence": min(bundle.max_sentence_tokens, config.max_source) - 1,
        },
        "text": dict(bundle.text),
        "options": {k: v for k, v in asdict(bundle.options).items() if v != ()},
        "files": {name: bundle.manifest[name].size for name in bundle.files()},
        "fetched from": _origin(bundle),
        "bytes": sum(entry.size for entry in bundle.manifest.values()),
        "licence": _matching_lines(card, LICENCE),
        "scores": _matching_lines(card, SCORE),
    }


def _origin(bundle: Bundle) -> dict[str, Any] | None:
    """Return the origin of a fetched model; None: it was not fetched."""
    if bundle.provenance is None:
        return None
    values = asdict(bundle.provenance)
    return {name: value for name, value in (values | values.pop("files")).items() if value}


def _matching_lines(card: list[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the lines of the model card that match, except headings, without list marks."""
    return [line.strip().lstrip("-* ") for line in card if pattern.search(line) and not line.startswith("#")]


def _format_lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        width = max(map(len, value), default=0)
        return [f"{k:{width}}  {_format_value(v)}" for k, v in value.items() if v is not None]
    return [str(v) for v in value] if isinstance(value, list) else [_format_value(value)]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)
