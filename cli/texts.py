"""Flags and steps of commands that answer lines in order, such as `convoy translate`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer
from tqdm import tqdm

from cli import complete, remote
from cli.choices import ModelChoice
from cli.lines import arrives_slowly, arriving, count, read, writing
from cli.local import choose_route, open_service, source_is_open
from cli.remote import RemoteServer
from engine.backends import BACKEND_HELP, DEVICE_HELP, FAST_HELP, PRECISION_DEFAULT, PRECISION_HELP
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.answers.options import TextOptions
    from engine.api import ModelRoute, Service, TextResult

MODEL: Final = "Model"  # groups of flags in --help
SERVER: Final = "Server"
FILES: Final = "Input and output"

File = Annotated[str | None, typer.Argument(help="File of the texts, or a text itself.", show_default=False)]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        help="File of the texts, or a text itself; with --output-dir files, folders and patterns.",
        show_default=False,
    ),
]
OutputDir = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        help="Folder of the translations of several files, each in its own format.",
        rich_help_panel=FILES,
    ),
]
Lines = Annotated[
    bool,
    typer.Option(
        "--lines", help="Each line of a file is a text, whatever its ending says.", rich_help_panel=FILES
    ),
]
Model = Annotated[
    Path | None,
    typer.Option(
        help="A bundle folder; with --url or --upstreams a name. Default: those in CONVOY_MODELS or models/.",
        autocompletion=complete.models,
        rich_help_panel=MODEL,
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--source",
        "--from",
        help="Language of the text; default: the model's, or without --model detected.",
        autocompletion=complete.sources,
        rich_help_panel=MODEL,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "--to",
        help="Language to translate into; default: the model's.",
        autocompletion=complete.targets,
        rich_help_panel=MODEL,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="Address of a server that answers, such as http://127.0.0.1:8000.", rich_help_panel=SERVER
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(envvar="CONVOY_API_KEY", help="With --url: API key for the server.", rich_help_panel=SERVER),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.1, help="With --url: seconds for each text, with all retries.", rich_help_panel=SERVER
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(min=1, max=256, help="With --url: number of requests at a time.", rich_help_panel=SERVER),
]
Input = Annotated[
    Path | None,
    typer.Option(
        "--input", help="File with one text a line; default: standard input.", rich_help_panel=FILES
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="File of the results, written only when all are done; default: standard output.",
        rich_help_panel=FILES,
    ),
]
Scores = Annotated[
    bool,
    typer.Option("--scores", help="Print each score (natural log) before its text.", rich_help_panel=FILES),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object a line, with all details.", rich_help_panel=FILES),
]
Precision = Annotated[
    str | None,
    typer.Option(help=f"{PRECISION_HELP} {PRECISION_DEFAULT}", rich_help_panel=MODEL),
]
Backend = Annotated[
    str | None,
    typer.Option(help=f"{BACKEND_HELP} Default: onnx on the CPU, cuda on GPUs.", rich_help_panel=MODEL),
]
Device = Annotated[str, typer.Option(help=DEVICE_HELP, rich_help_panel=MODEL)]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of the numeric library; default: all cores.", rich_help_panel=MODEL),
]
Shortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        help="Decode with likely tokens only, which is faster. Default: setting of the bundle.",
        rich_help_panel=MODEL,
    ),
]
Upstreams = Annotated[
    Path | None,
    typer.Option(
        help="File with models of other servers (docs/upstreams.md); --model names one of them.",
        rich_help_panel=MODEL,
    ),
]
Fast = Annotated[bool, typer.Option("--fast", help=FAST_HELP, rich_help_panel=MODEL)]


PARAGRAPH_CHARACTERS: Final = 4_000  # of a text with --newlines; longer paragraphs are cut at line ends
PATH: Final = re.compile(r"\S*/\S*|\S+\.\w{1,8}")  # a missing file, not a text
SAMPLE_LINES: Final = 100  # lines of which the language is detected


@dataclass(frozen=True, slots=True)
class Job:
    """A task of a model, local or on a server.

    task: "translate", "summarize" or "score".
    place: model, languages, backend and device; with a server only name and languages of the model.
    server: the server, or None.
    """

    task: str
    place: ModelChoice
    server: RemoteServer | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """The input of a command.

    lines: the texts.
    slow: whether they come from a terminal or a pipe: each is answered before the next one has come.
    total: number of texts, if known.
    named: whether they come from a file or a stream.
    """

    lines: Iterator[str]
    slow: bool = False
    total: int | None = None
    named: bool = True


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The format of printed results.

    output: file of the results; None: standard output.
    scores: print a score before each text.
    as_json: print JSON.
    file: names of options for reading and writing a document, with their values.
    memory: path of a translation memory for documents.
    """

    output: Path | None = None
    scores: bool = False
    as_json: bool = False
    file: Mapping[str, Any] = field(default_factory=dict)
    memory: Path | None = None


def answers(
    service: Service,
    task: str,
    lines: Iterable[str],
    options: TextOptions,
    total: int | None = None,
    route: ModelRoute | None = None,
) -> Iterator[TextResult]:
    """Return results in the order of the lines; a terminal gets a progress bar on standard error.

    service: the service that answers.
    task: "translate" or "summarize".
    lines: the texts.
    options: decoding and text options given by flags.
    total: number of lines, if known.
    route: the model, in one of its directions; None: first model of the service, in its default direction.

    Raises UnknownModel if the model is for another task.
    """
    route = route or service.pick(task, model=service.models()[0].name)
    return with_progress_bar(service.run_many(route, lines, options), total)


def with_progress_bar(
    results: Iterable[TextResult], total: int | None = None, *, shown: bool = True
) -> Iterator[TextResult]:
    """Yield the results; a terminal gets a progress bar on standard error.

    results: iterator of results.
    total: number of results, if known.
    shown: whether there may be a bar.
    """
    yield from tqdm(results, total=total, unit="line", disable=not (shown and sys.stderr.isatty()))


def pipe(job: Job, options: TextOptions, texts: Texts, output_format: OutputFormat) -> None:
    """Answer texts and print each result as soon as it is there.

    job: the task and its model.
    options: decoding and text options given by flags.
    texts: the texts.
    output_format: file, and whether to print scores or JSON.
    """
    several = options.decode.get("n_best", 1) > 1
    # no bar between lines of a terminal
    shown = texts.named and (output_format.output is not None or not sys.stdout.isatty())
    with _results(job, options, texts) as results, writing(output_format.output) as out:
        for number, result in enumerate(with_progress_bar(results, texts.total, shown=shown), 1):
            _print_result(out, number, result, output_format, several)


@contextmanager
def _results(job: Job, options: TextOptions, texts: Texts) -> Iterator[Iterator[TextResult]]:
    """Yield the results of a local model or of a server."""
    place = job.place
    if job.server is not None:
        results = remote.answers(job.server, (job.task, place, options), texts.lines)
        with closing(results):  # cancels open requests
            yield results
        return
    with open_service(place, options) as service:
        from engine.api import run_batches

        batches: Iterator[Iterable[str]] = arriving(texts.lines) if texts.slow else iter([texts.lines])
        beginning = list[str]()
        if source_is_open(job.task, place):
            rest = iter(next(batches, ()))
            beginning = list(islice(rest, SAMPLE_LINES))
            batches = chain([chain(beginning, rest)], batches)
        route = choose_route(service, job.task, place, "\n".join(beginning))
        yield run_batches(service, route, batches, options)


def job_of(task: str, place: ModelChoice, server: RemoteServer | None) -> Job:
    """Return a job. Raises InvalidRequest on flags that a server does not accept.

    task: "translate", "summarize" or "score".
    place: model, languages, backend and device.
    server: the server, or None.
    """
    here = ModelChoice(place.model, source=place.source, target=place.target)
    if server is not None and place != here:
        local = "--precision, --backend, --device, --threads, --shortlist, --fast and --upstreams"
        raise InvalidRequest(f"{local} can't be used with --url: leave them out")
    return Job(task, place, server)


def path_of(argument: str | None) -> Path | None:
    """Return the path that an argument names; None: it is a text, or there is none."""
    if argument is None or not argument.strip():
        return None
    try:
        path = Path(argument)
        return path if path.exists() or PATH.fullmatch(argument) else None
    except OSError:  # too long for a path
        return None


def texts_of(argument: str | None, named_file: Path | None, *, joined: bool = False) -> Texts:
    """Return the lines of an argument, of the file that it names, or of standard input.

    argument: path or text given as an argument, or None.
    named_file: path given by --input, or None.
    joined: whether the lines up to a blank line are one text.

    Raises InvalidRequest if both are given, and OSError.
    """
    if argument is not None and named_file is not None:
        raise InvalidRequest("name the file only once: as an argument, or with --input")
    path = path_of(argument) or named_file
    if argument is not None and path is None:
        lines, slow = iter(argument.split("\n")), False
    else:
        lines, slow = read(path), arrives_slowly(path)
    if joined:
        return Texts(paragraphs(lines), slow)
    return Texts(lines, slow, count(path), named=argument is None or path is not None)


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines up to each blank line as one text, and each blank line; long paragraphs in parts."""
    part, length = list[str](), 0
    for line in lines:
        if part and (not line.strip() or length > PARAGRAPH_CHARACTERS):
            yield "\n".join(part)
            part, length = [], 0
        if line.strip():
            part.append(line)
            length += len(line)
        else:
            yield line
    if part:
        yield "\n".join(part)


def _print_result(
    out: TextIO, number: int, result: TextResult, output_format: OutputFormat, several: bool
) -> None:
    ranked = list(
        zip([result.text, *result.alternatives], [result.score, *result.alternative_scores], strict=True)
    )
    if output_format.as_json:
        out.write(json.dumps(_json_fields(number, result, ranked), ensure_ascii=False) + "\n")
    elif several:
        out.writelines(f"{number}\t{score:.4f}\t{text}\n" for text, score in ranked)
    else:
        out.write(f"{result.score:.4f}\t{result.text}\n" if output_format.scores else f"{result.text}\n")


def _json_fields(number: int, result: TextResult, ranked: list[tuple[str, float]]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "line": number,
        "text": result.text,
        "model": result.model if result.source_tokens else "",  # no model reads a line without words
        "score": result.score,
        "hypotheses": [{"text": text, "score": score} for text, score in ranked],
        "tokens": result.tokens,
        "token_scores": result.token_scores,
        "finish": result.finish,
        "truncated": result.truncated,
        "source_tokens": result.source_tokens,
        "target_tokens": result.target_tokens,
    }
    if result.alignment:
        record["alignment"] = [
            {
                "source": a.source,
                "target": a.target,
                "matrix": [[round(float(w), 6) for w in r] for r in a.matrix],
            }
            for a in result.alignment
            if not a.fixed
        ]
    return record
