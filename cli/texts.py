"""Flags and steps of commands that answer lines in order, such as `convoy translate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer
from tqdm import tqdm

from cli import complete, remote
from cli.choices import ModelChoice
from cli.lines import read, writing
from cli.remote import RemoteServer
from engine.backends import BACKEND_HELP, DEVICE_HELP, FAST_HELP, PRECISION_HELP
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.answers.options import TextOptions
    from engine.api import ModelRoute, Service, TextResult

File = Annotated[
    Path | None, typer.Argument(help="File of the texts, in place of --input.", show_default=False)
]
Model = Annotated[
    Path | None,
    typer.Option(help="A bundle folder; with --url: name of a model.", autocompletion=complete.models),
]
Source = Annotated[
    str | None,
    typer.Option(
        help="Language of the text; default: the model's, or with --url detected.",
        autocompletion=complete.sources,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="Language to translate into; default: the model's.", autocompletion=complete.targets),
]
Url = Annotated[
    str | None,
    typer.Option(help="Address of a server that answers, such as http://127.0.0.1:8000 (needs `client`)."),
]
ApiKey = Annotated[
    str | None, typer.Option(envvar="CONVOY_API_KEY", help="With --url: API key for the server.")
]
Timeout = Annotated[float, typer.Option(min=0.1, help="With --url: seconds for each text, with all retries.")]
Concurrency = Annotated[int, typer.Option(min=1, max=256, help="With --url: number of requests at a time.")]
Input = Annotated[
    Path | None, typer.Option("--input", help="File with one text a line; default: standard input.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="File of the results, written only when all are done; default: standard output.",
    ),
]
Scores = Annotated[bool, typer.Option("--scores", help="Print each score (natural log) before its text.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, with all details.")]
Precision = Annotated[str | None, typer.Option(help=f"{PRECISION_HELP} Default: fp32; on GPUs fp16.")]
Backend = Annotated[str | None, typer.Option(help=f"{BACKEND_HELP} Default: onnx on the CPU, cuda on GPUs.")]
Device = Annotated[str, typer.Option(help=DEVICE_HELP)]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of the numeric library; default: all cores.")
]
Shortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        help="Decode with likely tokens only, which is faster. Default: setting of the bundle.",
    ),
]
Fast = Annotated[bool, typer.Option("--fast", help=FAST_HELP)]


PARAGRAPH_CHARACTERS: Final = 4_000  # of a text with --newlines; longer paragraphs are cut at line ends


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
class OutputFormat:
    """The format of printed results.

    output: file of the results; None: standard output.
    scores: print a score before each text.
    as_json: print JSON.
    """

    output: Path | None = None
    scores: bool = False
    as_json: bool = False


def open_service(place: ModelChoice, options: TextOptions) -> AbstractContextManager[Service]:
    """Start a service with one model and a lane as wide as its options need, and stop it at the end.

    Raises BundleError, and InvalidRequest when no model is named.
    """
    from engine.api import offline_service

    if place.model is None:
        raise InvalidRequest("give --model with a bundle folder, or --url with a server")
    return offline_service(place.model, place.placement(), options.decode)


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


def with_progress_bar(results: Iterable[TextResult], total: int | None = None) -> Iterator[TextResult]:
    """Yield the results; a terminal gets a progress bar on standard error."""
    yield from tqdm(results, total=total, unit="line", disable=not sys.stderr.isatty())


def pipe(
    job: Job,
    options: TextOptions,
    lines: Iterable[str],
    output_format: OutputFormat,
    total: int | None = None,
) -> None:
    """Answer a stream of lines and print the results.

    job: the task and its model.
    options: decoding and text options given by flags.
    lines: the texts.
    output_format: file, and whether to print scores or JSON.
    total: number of lines, if known.
    """
    several = options.decode.get("n_best", 1) > 1
    with _results(job, options, lines, total) as results, writing(output_format.output) as out:
        for number, result in enumerate(results, 1):
            _print_result(out, number, result, output_format, several)


@contextmanager
def _results(
    job: Job, options: TextOptions, lines: Iterable[str], total: int | None
) -> Iterator[Iterator[TextResult]]:
    """Yield the results of a local model or of a server."""
    place = job.place
    if job.server is not None:
        results = remote.answers(job.server, (job.task, place, options), lines)
        with closing(results):  # cancels open requests
            yield with_progress_bar(results, total)
        return
    with open_service(place, options) as service:
        route = service.pick(job.task, place.source, place.target, service.models()[0].name)
        yield answers(service, job.task, lines, options, total, route=route)


def job_of(task: str, place: ModelChoice, server: RemoteServer | None) -> Job:
    """Return a job. Raises InvalidRequest on flags that a server does not accept.

    task: "translate", "summarize" or "score".
    place: model, languages, backend and device.
    server: the server, or None.
    """
    here = ModelChoice(place.model, source=place.source, target=place.target)
    if server is not None and place != here:
        local = "--precision, --backend, --device, --threads, --shortlist and --fast"
        raise InvalidRequest(f"{local} can't be used with --url: leave them out")
    return Job(task, place, server)


def lines_of(file: Path | None, named_file: Path | None) -> Iterator[str]:
    """Yield the lines of the file, or of standard input.

    file: path given as an argument, or None.
    named_file: path given by --input, or None.

    Raises InvalidRequest if both are given.
    """
    if file is not None and named_file is not None:
        raise InvalidRequest("name the file only once: as an argument, or with --input")
    return read(file or named_file)


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
