"""`convoy translate`: translates lines, or a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cli import document_flags, remote, texts
from cli.choices import ModelChoice
from cli.flags import answer_flags, options_of
from engine.errors import InvalidRequest


@answer_flags("translate")
def translate(
    file: texts.Files = None,
    input_file: texts.Input = None,
    output: texts.Output = None,
    output_dir: texts.OutputDir = None,
    lines: texts.Lines = False,
    bilingual: document_flags.Bilingual = "",
    columns: document_flags.Columns = "",
    memory: document_flags.Memory = None,
    url: texts.Url = None,
    api_key: texts.ApiKey = None,
    model: texts.Model = None,
    source: texts.Source = None,
    target: texts.Target = None,
    scores: texts.Scores = False,
    as_json: texts.AsJson = False,
    precision: texts.Precision = None,
    backend: texts.Backend = None,
    device: texts.Device = "cpu",
    threads: texts.Threads = None,
    shortlist: texts.Shortlist = None,
    fast: texts.Fast = False,
    upstreams: texts.Upstreams = None,
    timeout: texts.Timeout = 300.0,
    concurrency: texts.Concurrency = 16,
    **options: Any,
) -> None:
    """Translate a text, each line of a file, or a whole document (.docx, .html, .po ...).

    convoy translate 'Guten Morgen!' --to en

    convoy translate docs/ 'pages/**/*.html' --to en --output-dir english

    With --n-best above 1, each hypothesis is a line: line number, score and text, separated by tabs. With
    --newlines join or auto, the lines up to a blank line are one text.
    """
    from cli import document, files

    server = remote.RemoteServer(url, api_key, timeout, concurrency) if url else None
    place = ModelChoice(
        model, precision, backend, device, threads, source, target, shortlist, fast, upstreams
    )
    job = texts.job_of("translate", place, server)
    answer = options_of("translate", options)
    file_options = {"columns": columns, "bilingual": bilingual}
    output_format = texts.OutputFormat(output, scores, as_json, file_options, memory)
    if output_dir is not None:
        found = files.files_of(file or [], output_dir, lines=lines)
        document.translate_all(job, answer, found, output_format, lines=lines)
        return
    if file is not None and len(file) > 1:
        raise InvalidRequest("name the folder of the translations of several files with --output-dir")
    argument = file[0] if file else None
    of_documents = bool(bilingual or columns or memory)
    path = _file_of(argument, is_needed=of_documents)
    if path is not None and (of_documents or files.is_document(path, lines=lines)):
        document.translate(job, answer, path, output_format)
        return
    joined = options.get("newlines") in ("join", "auto")
    texts.pipe(job, answer, texts.texts_of(argument, input_file, joined=joined), output_format)


def _file_of(argument: str | None, *, is_needed: bool) -> Path | None:
    """Return the file that an argument names; None: it names none. Raises InvalidRequest if one is needed."""
    path = texts.path_of(argument)
    if is_needed and path is None:
        raise InvalidRequest("--bilingual, --columns and --memory are for documents: name a file")
    return path
