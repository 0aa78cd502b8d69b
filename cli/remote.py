"""Sends lines to a server, several requests at a time, and returns the results in order."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cli.choices import ModelChoice
from engine.answers.options import TextOptions, offered_options
from engine.errors import ConvoyError, InvalidRequest, TooLarge, UnknownModel

if TYPE_CHECKING:
    from convoy_client import ApiError, Client, Model, Summary, Translation
    from engine.api import TextResult, TextScore

Line = TypeVar("Line")
Answer = TypeVar("Answer")

MAX_TRIES: Final = 100  # a queue that is full for minutes must not end the command
STATUS_ERRORS: Final[Mapping[int, type[ConvoyError]]] = {
    400: InvalidRequest,
    404: UnknownModel,
    413: TooLarge,
}


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server that answers texts.

    url: HTTP or HTTPS address.
    api_key: API key, if the server needs one.
    timeout: seconds for each text, all tries together.
    concurrency: requests at a time.
    """

    url: str
    api_key: str | None = None
    timeout: float = 300.0
    concurrency: int = 16

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InvalidRequest(f"--url {self.url}: an address must begin with http:// or https://")


@contextmanager
def connect(server: RemoteServer) -> Iterator[tuple[Client, list[Model]]]:
    """Yield a client with many retries, and the models of the server.

    Raises ConvoyError if the server does not answer.
    """
    from convoy_client import Client

    with _map_errors(""), Client(server.url, server.api_key, timeout=server.timeout, retries=1) as first:
        models = first.models()
    with Client(server.url, server.api_key, timeout=server.timeout, retries=MAX_TRIES) as client:
        yield client, models


def answers(
    server: RemoteServer, request: tuple[str, ModelChoice, TextOptions], lines: Iterable[str]
) -> Generator[TextResult, None, None]:
    """Yield results in the order of the lines.

    server: address and limits of the server.
    request: the task, the model with its languages, and the options of the answers.
    lines: the texts.

    An error message has the number of its line, from 1. Raises InvalidRequest, TooLarge, UnknownModel, or
    ConvoyError for an error of the server.
    """
    with connect(server) as (client, models):
        ask = _answer_function(client, models, request)
        yield from _answers_in_turn(_in_order(ask, lines, server.concurrency))


def scores(
    server: RemoteServer, model: str, pairs: Iterable[tuple[str, str | None]]
) -> Generator[TextScore, None, None]:
    """Yield scores in the order of the texts. Raises the errors of `answers`.

    server: address and limits of the server.
    model: name of a model of the server.
    pairs: text and source; the source is None for a language model.
    """
    from engine.api import TextScore, Timings

    with connect(server) as (client, _):

        def ask(pair: tuple[str, str | None]) -> TextScore:
            text, source = pair  # in an array, because an empty text is refused otherwise
            (score,) = client.score_all([text], None if source is None else [source], model=model)
            return TextScore(score.tokens, score.token_scores, score.words, Timings(0.0, 0.0, 0.0, 0))

        yield from _answers_in_turn(_in_order(ask, pairs, server.concurrency))


def translate_document(
    server: RemoteServer, place: ModelChoice, path: Path, options: Mapping[str, Any]
) -> bytes:
    """Return the translation of a file in its own format. Raises OSError, and the errors of `answers`.

    server: the server that translates.
    place: the model and its languages.
    path: the file.
    options: further fields of the form.
    """
    with connect(server) as (client, models), _map_errors(f"{path}: "):
        source, target = _languages(models, place)
        return client.translate_file(path, target, source, **options)


def _answers_in_turn(results: Generator[Future[Answer], None, None]) -> Iterator[Answer]:
    """Yield the answers in order; an error names its line."""
    with closing(results):  # not by the garbage collector, which may run in a thread of its own pool
        for number, result in enumerate(results, 1):
            with _map_errors(f"line {number}: "):
                answer = result.result()
            yield answer


@contextmanager
def _map_errors(where: str) -> Iterator[None]:
    """Raise errors of the client as ConvoyError; `where` is a prefix of the message."""
    from convoy_client import ApiError, ClientError

    try:
        yield
    except ApiError as error:
        raise STATUS_ERRORS.get(error.status, ConvoyError)(f"{where}{_error_message(error)}") from error
    except ClientError as error:
        raise ConvoyError(f"{where}{error}") from error


def _error_message(error: ApiError) -> str:
    key = error.status in (401, 403) or "API key" in error.message
    return f"{error.message} (--api-key or CONVOY_API_KEY)" if key else error.message


def _answer_function(
    client: Client, models: list[Model], request: tuple[str, ModelChoice, TextOptions]
) -> Callable[[str], TextResult]:
    """Return a function that sends a line to the server and returns the result.

    client: open client of the server.
    models: models of the server.
    request: the task, the model with its languages, and the options of the answers.
    """
    from engine.api import TextResult

    task, place, options = request
    fields = _fields(task, options) | ({"model": str(place.model)} if place.model else {})
    if task == "translate":
        source, target = _languages(models, place)

    def ask(line: str) -> TextResult:
        if not line.strip():
            return TextResult(line)
        if task == "translate":
            return _text_result(client.translate(line, target, source, **fields))
        return _text_result(client.summarize(line, **fields))

    return ask


def _fields(task: str, options: TextOptions) -> dict[str, Any]:
    """Return the fields of a request: the decoding options, and further options that differ from their
    defaults. Infinity becomes a string, because JSON has no number for it."""
    fields: dict[str, Any] = {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in options.decode.items()
    }
    fields["alternatives"] = fields.pop("n_best", 1) - 1
    changed = [o.name for o in offered_options(task) if getattr(options, o.name) != o.default]
    return fields | {name: getattr(options, name) for name in changed} | {"scores": True}


def _languages(models: list[Model], place: ModelChoice) -> tuple[str, str]:
    """Return source and target language: as given, otherwise those of the model that fits.

    models: models of the server.
    place: name of the model and languages, each as given by the user or None.

    Raises UnknownModel, and InvalidRequest if several targets are possible.
    """
    if place.model is None and place.target:
        return place.source or "auto", place.target  # the server may use two models
    matches = [model for model in models if _fits(model, place)]
    if not matches:
        listing = ", ".join(f"{m.name} ({m.task} {m.source} to {m.target})" for m in models)
        raise UnknownModel(f"the server has no such model for these languages; its models are: {listing}")
    if place.model is None and len({model.target for model in matches}) > 1:
        targets = sorted({model.target for model in matches})
        raise InvalidRequest(f"give --target: the server translates to {', '.join(targets)}")
    return place.source or (matches[0].source if place.model else "auto"), matches[0].target


def _fits(model: Model, place: ModelChoice) -> bool:
    """Return whether a model translates, with the given name and languages."""
    return (
        model.task == "translate"
        and str(place.model or model.name) == model.name
        and place.source in (None, "auto", model.source)
        and place.target in (None, model.target)
    )


def _text_result(answer: Translation | Summary) -> TextResult:
    """Return the result of the engine for an answer of the server."""
    from engine.api import Alignment, TextResult, Timings

    scores = answer.scores
    if scores is None:
        raise ConvoyError("the server returns no scores: update the server")
    return TextResult(
        text=answer.text,
        alternatives=answer.alternatives,
        score=_finite_score(scores.score),
        alternative_scores=[_finite_score(score) for score in scores.alternatives],
        tokens=scores.tokens,
        token_scores=[_finite_score(score) for score in scores.token_scores],
        finish=scores.finish,
        alignment=[Alignment(a.source, a.target, a.matrix) for a in answer.alignment],
        truncated=answer.truncated,
        timings=Timings(0.0, 0.0, 0.0, 0),
        source_tokens=scores.source_tokens,
        target_tokens=scores.target_tokens,
        model=scores.model,
    )


def _finite_score(score: float | None) -> float:
    """Return a score; None, null in JSON, is minus infinity."""
    return -math.inf if score is None else score


def _in_order(
    ask: Callable[[Line], Answer], lines: Iterable[Line], concurrency: int
) -> Generator[Future[Answer], None, None]:
    """Yield futures in the order of the lines.

    ask: function that returns the answer to a line; called in `concurrency` threads.
    lines: the input.
    concurrency: number of requests at a time.

    A thread reads the lines, so that an answer does not wait for the next line of a slow pipe.
    """
    waiting: queue.Queue[Future[Answer] | None] = queue.Queue(2 * concurrency)
    stop = threading.Event()

    def put(item: Future[Answer] | None) -> None:
        """Add an answer to the queue; it is dropped when the reader stops."""
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def feed() -> None:
        """Submit the lines, then None. An error of the input becomes the future after the last line."""
        try:
            for line in lines:
                put(pool.submit(ask, line))
                if stop.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - raised in its turn
            failed: Future[Answer] = Future()
            failed.set_exception(error)
            put(failed)
        put(None)

    pool = ThreadPoolExecutor(concurrency, "convoy-request")
    threading.Thread(target=feed, name="convoy-lines", daemon=True).start()
    try:
        while (future := waiting.get()) is not None:
            yield future
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
