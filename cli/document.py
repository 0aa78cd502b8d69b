"""Translation of documents in their own format, by a local model or by a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli import local, remote, texts
from cli.choices import ModelChoice
from cli.lines import write
from documents import FORMATS, OversizedDocument, Unreadable, read_document, written_ending
from engine.answers.options import USUAL_OPTIONS, TextOptions
from engine.errors import InvalidRequest, TooLarge

if TYPE_CHECKING:
    from documents import Document
    from documents.spans import Segment
    from engine.api import MarkedText

ENDINGS: Final = frozenset(FORMATS) - {".txt"}  # a .txt is translated line by line


def translate(job: texts.Job, options: TextOptions, file: Path, output_format: texts.OutputFormat) -> None:
    """Write the translation of a file.

    job: the model, local or on a server.
    options: decoding and text options given by flags.
    file: the document.
    output_format: path of the translation.

    Raises InvalidRequest on flags that are not for documents, TooLarge, OSError, and the errors of the model
    or the server.
    """
    output = output_format.output
    if output is None:
        raise InvalidRequest(f"{file}: name the file of the translation with --output")
    ending = written_ending(file.name)
    if output.suffix.lower() != ending.lower():
        raise InvalidRequest(f"{output}: the translation of {file.name} is a {ending}: give it this ending")
    if output_format.scores or output_format.as_json or options.prefix or options.decode.get("n_best", 1) > 1:
        raise InvalidRequest(
            "--scores, --json, --prefix and --n-best are for lines: leave them out for a document"
        )
    if job.server is None:
        write(output, _here(job.place, options, file))
        return
    if options != USUAL_OPTIONS["translate"]:
        raise InvalidRequest(
            "a server decodes documents with its own options: leave out such flags with --url"
        )
    write(output, remote.translate_document(job.server, job.place, file))


def _here(place: ModelChoice, options: TextOptions, file: Path) -> bytes:
    """Return the translation by a local model, equal to the one of a server."""
    from documents.projection import project
    from engine.api import at_once

    document = _open_document(file)
    aligned = any(segment.spans for segment in document.segments)
    options = replace(options, alignment=aligned)
    with local.open_service(place, options) as service:
        sample = "\n".join(segment.text for segment in document.segments[: texts.SAMPLE_LINES])
        model = local.choose_route(service, "translate", place, sample)
        marked_texts = _mark_protected(document.segments, placeholders=model.keeps_phrases)
        results = texts.with_progress_bar(
            service.run_many(model, marked_texts, options), len(document.segments)
        )
        translations = [
            at_once(project(segment, result))
            for segment, result in zip(document.segments, results, strict=True)
        ]
    return document.write(translations)


def _mark_protected(segments: Sequence[Segment], *, placeholders: bool) -> Iterator[str | MarkedText]:
    """Yield the text of each segment, with its protected spans if the model has placeholders."""
    from documents.projection import protected_ranges
    from engine.api import MarkedText

    for segment in segments:
        spans = protected_ranges(segment) if placeholders else ()
        yield MarkedText(segment.text, spans) if spans else segment.text


def _open_document(file: Path) -> Document:
    """Return the document at a path. Raises TooLarge and InvalidRequest."""
    try:
        return read_document(file.name, file.read_bytes())
    except OversizedDocument as error:
        raise TooLarge(f"{file}: {error}") from None
    except Unreadable as error:
        raise InvalidRequest(f"{file}: {error}") from None
