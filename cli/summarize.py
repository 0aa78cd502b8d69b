"""`convoy summarize`: summarizes texts."""

from __future__ import annotations

from typing import Any

from cli import remote, texts
from cli.choices import ModelChoice
from cli.flags import answer_flags, options_of


@answer_flags("summarize")
def summarize(
    file: texts.File = None,
    lines: texts.Input = None,
    output: texts.Output = None,
    url: texts.Url = None,
    api_key: texts.ApiKey = None,
    model: texts.Model = None,
    scores: texts.Scores = False,
    as_json: texts.AsJson = False,
    precision: texts.Precision = None,
    backend: texts.Backend = None,
    device: texts.Device = "cpu",
    threads: texts.Threads = None,
    shortlist: texts.Shortlist = None,
    fast: texts.Fast = False,
    timeout: texts.Timeout = 300.0,
    concurrency: texts.Concurrency = 16,
    **options: Any,
) -> None:
    """Summarize a text, or each line of a file; see --strategy for lines that are too long."""
    server = remote.RemoteServer(url, api_key, timeout, concurrency) if url else None
    place = ModelChoice(model, precision, backend, device, threads, shortlist=shortlist, fast=fast)
    job = texts.job_of("summarize", place, server)
    answer = options_of("summarize", options)
    output_format = texts.OutputFormat(output, scores, as_json)
    texts.pipe(job, answer, texts.texts_of(file, lines), output_format)
