"""Translation of documents in their own format, by a local model or by a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli import local, remote, texts
from cli.choices import ModelChoice
from cli.lines import write
from documents import OversizedDocument, Unreadable, read_document, written_ending
from documents.bilingual import ENDINGS, check_bilingual, write_bilingual
from documents.options import Bilingual, FileOptions
from engine.answers.options import USUAL_OPTIONS, TextOptions
from engine.errors import InvalidRequest, TooLarge

if TYPE_CHECKING:
    from cli.files import FileToTranslate
    from documents import Document
    from documents.memory import TranslationMemory
    from engine.api import ModelRoute, Service

MAX_MEMORY_BYTES: Final = 512 * 1024 * 1024  # of a translation memory
LINES_NAME: Final = "lines.txt"  # name of a file that is read as lines of text


def translate(job: texts.Job, options: TextOptions, file: Path, output_format: texts.OutputFormat) -> None:
    """Write the translation of a file.

    job: the model, local or on a server.
    options: decoding and text options given by flags.
    file: the document.
    output_format: path of the translation.

    Raises InvalidRequest on flags that are not for documents, TooLarge, OSError, and the errors of the model
    or the server.
    """
    file.stat()  # raises OSError on a missing file before any other mistake is reported
    output, file_options = output_format.output, FileOptions(**output_format.file)
    if output is None:
        raise InvalidRequest(f"{file}: name the file of the translation with --output")
    name = _name(file, lines=False)
    ending = ENDINGS.get(file_options.bilingual) or written_ending(name)
    if output.suffix.lower() != ending.lower():
        raise InvalidRequest(f"{output}: the translation of {file.name} is a {ending}: give it this ending")
    _check_flags(job, options, output_format)
    if job.server is None:
        (content,) = _here(job.place, options, [(file, name)], output_format)
        write(output, content)
    else:
        _check_file(file, name, file_options)
        write(output, remote.translate_document(job.server, job.place, file, _form(file_options)))


def translate_all(
    job: texts.Job,
    options: TextOptions,
    files: Sequence[FileToTranslate],
    output_format: texts.OutputFormat,
    *,
    lines: bool,
) -> None:
    """Write the translation of each file; the first error ends the work, and all files before it are there.

    job: the model, local or on a server.
    options: decoding and text options given by flags.
    files: the files, with the paths of their translations.
    output_format: no flags for lines, and no path.
    lines: each line of a file is a text, whatever its ending says.

    Raises what `translate` raises.
    """
    if output_format.output is not None:
        raise InvalidRequest("give either --output or --output-dir")
    if lines and job.server is not None:
        raise InvalidRequest("--lines with --output-dir needs a local model: leave out --url")
    _check_flags(job, options, output_format)
    file_options = FileOptions(**output_format.file)
    if job.server is None:
        named = [(file.path, _name(file.path, lines=lines)) for file in files]
        contents = _here(job.place, options, named, output_format)
    else:
        server = job.server
        form = _form(file_options)
        contents = (remote.translate_document(server, job.place, file.path, form) for file in files)
    for file, content in zip(files, contents, strict=True):
        ending = ENDINGS.get(file_options.bilingual, file.output.suffix)
        file.output.parent.mkdir(parents=True, exist_ok=True)
        write(file.output.with_suffix(ending), content)


def _name(path: Path, *, lines: bool) -> str:
    """Return the file name that selects the format by its ending."""
    from cli.files import LINE_ENDINGS

    return LINES_NAME if lines or path.suffix.lower() in LINE_ENDINGS else path.name


def _check_flags(job: texts.Job, options: TextOptions, output_format: texts.OutputFormat) -> None:
    """Raise InvalidRequest on flags that are not for documents."""
    if output_format.scores or output_format.as_json or options.prefix or options.decode.get("n_best", 1) > 1:
        raise InvalidRequest(
            "--scores, --json, --prefix and --n-best are for lines: leave them out for a document"
        )
    if job.server is not None and options != USUAL_OPTIONS["translate"]:
        raise InvalidRequest(
            "a server decodes documents with its own options: leave out such flags with --url"
        )
    if job.server is not None and output_format.memory:
        raise InvalidRequest("--memory needs a local model: leave out --url")


def _here(
    place: ModelChoice,
    options: TextOptions,
    files: Sequence[tuple[Path, str]],
    output_format: texts.OutputFormat,
) -> Iterator[bytes]:
    """Yield the translation of each file by a local model, equal to the one of a server.

    place: the model.
    options: decoding and text options.
    files: path of each file, and the name whose ending selects the format.
    output_format: options for reading and writing the files, and the translation memory.
    """
    file_options = FileOptions(**output_format.file)
    for file, name in files:
        _check_file(file, name, file_options)
    first = _open_document(*files[0], file_options)  # before the model is opened, which takes seconds
    with local.open_service(place, replace(options, alignment=True)) as service:
        for number, (file, name) in enumerate(files):
            document = _open_document(file, name, file_options) if number else first
            model = _model_of(service, place, document)
            document = _with_memory(document, output_format.memory, model)
            for notice in document.notices:
                print(f"convoy: {file}: {notice}", file=sys.stderr)
            yield _translated(service, model, options, document, file_options.bilingual)


def _with_memory(document: Document, path: Path | None, model: ModelRoute) -> Document:
    """Return a document without the segments that a translation memory answers.

    document: the source.
    path: translation memory; None: there is none.
    model: model of the other segments, which has the languages.

    Raises OSError, TooLarge and InvalidRequest.
    """
    if path is None:
        return document
    from documents.memory import with_memory

    size = path.stat().st_size
    if size > MAX_MEMORY_BYTES:
        raise TooLarge(f"{path}: it has {size} bytes, more than the limit of {MAX_MEMORY_BYTES}: split it")
    source, target = _languages(model)
    if not source or not target:
        raise InvalidRequest("the model names no languages: give --source and --target with --memory")
    with _errors_of(path):
        return with_memory(document, _memory(path, source, target))


@lru_cache(1)
def _memory(path: Path, source: str, target: str) -> TranslationMemory:
    """Return the translations of a memory, which several files may use."""
    from documents.memory import read_memory

    return read_memory(path.read_bytes(), source, target)


def _languages(model: ModelRoute) -> tuple[str, str]:
    """Return the codes of source and target; "": the model does not name it."""
    return model.legs[0].source or "", model.legs[-1].target or ""


def _model_of(service: Service, place: ModelChoice, document: Document) -> ModelRoute:
    """Return the model of a service for a document."""
    sample = "\n".join(segment.text for segment in document.segments[: texts.SAMPLE_LINES])
    return local.choose_route(service, "translate", place, sample)


def _translated(
    service: Service, model: ModelRoute, options: TextOptions, document: Document, bilingual: Bilingual
) -> bytes:
    """Return the translation of a document by a model of a service."""
    from documents.projection import format_borders, project, protected_ranges
    from engine.api import at_once

    aligned = any(segment.spans for segment in document.segments)
    marked_texts = (
        model.marked(segment.text, protected_ranges(segment), format_borders(segment))
        for segment in document.segments
    )
    results = texts.with_progress_bar(
        service.run_many(model, marked_texts, replace(options, alignment=aligned)), len(document.segments)
    )
    translations = [
        at_once(project(segment, result)) for segment, result in zip(document.segments, results, strict=True)
    ]
    return write_bilingual(document, translations, bilingual, _languages(model))


def _form(options: FileOptions) -> dict[str, str]:
    """Return the options as fields of a form, without defaults."""
    return {name: str(value) for name, value in asdict(options).items() if value}


def _check_file(file: Path, name: str, options: FileOptions) -> None:
    """Raise InvalidRequest if a file can't hold both texts in the asked way.

    file: path of the file.
    name: name whose ending selects the format.
    options: options for writing the file.
    """
    with _errors_of(file):
        check_bilingual(name, options.bilingual)


def _open_document(file: Path, name: str, options: FileOptions) -> Document:
    """Return the document at a path, in the format of a name. Raises TooLarge and InvalidRequest."""
    with _errors_of(file):
        return read_document(name, file.read_bytes(), options)


@contextmanager
def _errors_of(file: Path) -> Iterator[None]:
    """Raise the errors of documents as TooLarge and InvalidRequest that name the file."""
    try:
        yield
    except OversizedDocument as error:
        raise TooLarge(f"{file}: {error}") from None
    except Unreadable as error:
        raise InvalidRequest(f"{file}: {error}") from None
