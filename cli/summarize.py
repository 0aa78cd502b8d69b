"""`convoy summarize`: documents in, summaries out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli import remote, texts
from cli.choices import AnswerFlags, ModelChoice
from cli.flags import decode_flags, explicit_flags
from cli.lines import count


@decode_flags
def summarize(
    file: texts.File = None,
    lines: texts.Input = None,
    output: texts.Output = None,
    url: texts.Url = None,
    api_key: texts.ApiKey = None,
    model: texts.Model = None,
    scores: texts.Scores = False,
    as_json: texts.AsJson = False,
    prefix: Annotated[str, typer.Option(help="What each summary begins with.")] = "",
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Read only the beginning of a document that is too long.")
    ] = False,
    strategy: Annotated[
        str | None, typer.Option(help="Of documents that are too long: truncate, parts or refine.")
    ] = None,
    precision: texts.Precision = None,
    backend: texts.Backend = "onnx",
    device: texts.Device = "cpu",
    threads: texts.Threads = None,
    shortlist: texts.Shortlist = None,
    fast: texts.Fast = False,
    timeout: texts.Timeout = 300.0,
    concurrency: texts.Concurrency = 16,
    **decode: Any,
) -> None:
    """Summarize documents, one a line, in order; see --strategy for those that are too long."""
    server = remote.RemoteServer(url, api_key, timeout, concurrency) if url else None
    place = ModelChoice(model, precision, backend, device, threads, shortlist=shortlist, fast=fast)
    job = texts.job_of("summarize", place, server)
    flags = AnswerFlags(explicit_flags(decode), prefix, truncate=truncate, strategy=strategy)
    output_format = texts.OutputFormat(output, scores, as_json)
    texts.pipe(job, flags, texts.lines_of(file, lines), output_format, count(file or lines))
