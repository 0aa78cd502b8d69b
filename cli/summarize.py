"""`convoy summarize`: documents in, summaries out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli import texts
from cli.flags import decode_flags, given


@decode_flags
def summarize(
    model: texts.Model,
    source: texts.Input = None,
    output: texts.Output = None,
    scores: texts.Scores = False,
    as_json: texts.AsJson = False,
    prefix: Annotated[str, typer.Option(help="What each summary begins with.")] = "",
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Read only the beginning of a document that is too long.")
    ] = False,
    precision: texts.Precision = "fp32",
    backend: texts.Backend = "onnx",
    device: texts.Device = "cpu",
    threads: texts.Threads = None,
    **decode: Any,
) -> None:
    """Summarize documents, one a line, in order; see --truncate for those that are too long."""
    place = texts.Place(model, precision, backend, device, threads)
    wish = texts.Wish(given(decode), prefix, truncate=truncate)
    texts.pipe(place, "summarize", wish, source, texts.Form(output, scores, as_json))
