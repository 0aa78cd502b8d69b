"""`convoy translate`: lines in, translations out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli import texts
from cli.flags import decode_flags, given


@decode_flags
def translate(
    model: texts.Model,
    source: texts.Input = None,
    output: texts.Output = None,
    scores: texts.Scores = False,
    as_json: texts.AsJson = False,
    prefix: Annotated[str, typer.Option(help="What each translation begins with.")] = "",
    split: Annotated[bool, typer.Option(help="Translate each line sentence by sentence.")] = True,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="With --no-split: shorten lines that are too long.")
    ] = False,
    precision: texts.Precision = "fp32",
    backend: texts.Backend = "onnx",
    device: texts.Device = "cpu",
    threads: texts.Threads = None,
    **decode: Any,
) -> None:
    """Translate text, one line each, in order.

    With --n-best above 1: line number, score and text, separated by tabs, one line a hypothesis.
    """
    place = texts.Place(model, precision, backend, device, threads)
    wish = texts.Wish(given(decode), prefix, split, truncate)
    texts.pipe(place, "translate", wish, source, texts.Form(output, scores, as_json))
