"""Texts answered by a server: the same lines in, the same results out, several requests at a time."""

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

MAX_TRIES: Final = 100  # a queue that is full for minutes is no reason to lose the lines before
STATUS_ERRORS: Final[Mapping[int, type[ConvoyError]]] = {
    400: InvalidRequest,
    404: UnknownModel,
    413: TooLarge,
}


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server that answers texts.

    url: its address.
    api_key: key of the caller, where the server wants one.
    timeout: seconds for each text, all tries together.
    concurrency: requests at a time.
    """

    url: str
    api_key: str | None = None
    timeout: float = 300.0
    concurrency: int = 16

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InvalidRequest(f"--url {self.url}: an address begins with http:// or https://")


@contextmanager
def connect(server: RemoteServer) -> Iterator[tuple[Client, list[Model]]]:
    """Open a patient client of a server that answers, and ask for its models.

    Raises ConvoyError when no server is there.
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

    server: the server that answers.
    request: the task, the model with its languages, and the options of the answers.
    lines: the texts.

    An error names the number of its line, counted from 1. Raises InvalidRequest, TooLarge, UnknownModel, or
    ConvoyError for what is not the caller's fault.
    """
    with connect(server) as (client, models):
        ask = _question(client, models, request)
        yield from _answers_in_turn(_in_order(ask, lines, server.concurrency))


def scores(
    server: RemoteServer, model: str, pairs: Iterable[tuple[str, str | None]]
) -> Generator[TextScore, None, None]:
    """Yield scores in the order of the texts. Raises what `answers` raises.

    server: the server that answers.
    model: name of the model.
    pairs: text and source; the source is None for a language model.
    """
    from engine.api import TextScore, Timings

    with connect(server) as (client, _):

        def ask(pair: tuple[str, str | None]) -> TextScore:
            text, source = pair  # as arrays: an empty text is none by itself, but has a score
            (score,) = client.score_all([text], None if source is None else [source], model=model)
            return TextScore(score.tokens, score.token_scores, score.words, Timings(0.0, 0.0, 0.0, 0))

        yield from _answers_in_turn(_in_order(ask, pairs, server.concurrency))


def translate_document(server: RemoteServer, place: ModelChoice, path: Path) -> bytes:
    """Translate a file, and return it in its own format. Raises what `answers` raises, and OSError.

    server: the server that translates.
    place: the model and its languages.
    path: the file.
    """
    with connect(server) as (client, models), _map_errors(f"{path}: "):
        source, target = _pair(models, place)
        return client.translate_file(path, target, source)


def _answers_in_turn(results: Generator[Future[Answer], None, None]) -> Iterator[Answer]:
    with closing(results):  # here, not when it is collected: perhaps by one of its own threads
        for number, result in enumerate(results, 1):
            with _map_errors(f"line {number}: "):
                answer = result.result()
            yield answer


@contextmanager
def _map_errors(where: str) -> Iterator[None]:
    """Errors of the client as those that the command line knows."""
    from convoy_client import ApiError, ClientError

    try:
        yield
    except ApiError as error:
        raise STATUS_ERRORS.get(error.status, ConvoyError)(f"{where}{_words(error)}") from error
    except ClientError as error:
        raise ConvoyError(f"{where}{error}") from error


def _words(error: ApiError) -> str:
    key = error.status in (401, 403) or "API key" in error.message
    return f"{error.message} (--api-key or CONVOY_API_KEY)" if key else error.message


def _question(
    client: Client, models: list[Model], request: tuple[str, ModelChoice, TextOptions]
) -> Callable[[str], TextResult]:
    """Return the function that has the server answer a line."""
    from engine.api import TextResult

    task, place, options = request
    fields = _fields(task, options) | ({"model": str(place.model)} if place.model else {})
    if task == "translate":
        source, target = _pair(models, place)

    def ask(line: str) -> TextResult:
        if not line.strip():
            return TextResult(line)
        if task == "translate":
            return _result(client.translate(line, target, source, **fields))
        return _result(client.summarize(line, **fields))

    return ask


def _fields(task: str, options: TextOptions) -> dict[str, Any]:
    """Return the fields of a request: options other than the usual ones; JSON has infinity as a string."""
    fields: dict[str, Any] = {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in options.decode.items()
    }
    fields["alternatives"] = fields.pop("n_best", 1) - 1
    changed = [o.name for o in offered_options(task) if getattr(options, o.name) != o.default]
    return fields | {name: getattr(options, name) for name in changed} | {"scores": True}


def _pair(models: list[Model], place: ModelChoice) -> tuple[str, str]:
    """Source and target language: as given, else those of the model or of the only one there is."""
    if place.model is None and place.target:
        return place.source or "auto", place.target  # perhaps in two steps: the server knows
    matches = [model for model in models if _fits(model, place)]
    if not matches:
        listing = ", ".join(f"{m.name} ({m.task} {m.source} to {m.target})" for m in models)
        raise UnknownModel(f"the server has no such model for these languages, but: {listing}")
    if place.model is None and len({model.target for model in matches}) > 1:
        targets = sorted({model.target for model in matches})
        raise InvalidRequest(f"give --target: the server translates to {', '.join(targets)}")
    return place.source or (matches[0].source if place.model else "auto"), matches[0].target


def _fits(model: Model, place: ModelChoice) -> bool:
    """Whether a model translates, has the name that was asked for, and these languages."""
    return (
        model.task == "translate"
        and str(place.model or model.name) == model.name
        and place.source in (None, "auto", model.source)
        and place.target in (None, model.target)
    )


def _result(answer: Translation | Summary) -> TextResult:
    """As the engine's own, so that it is printed in the same way."""
    from engine.api import Alignment, TextResult, Timings

    scores = answer.scores
    if scores is None:
        raise ConvoyError("the server answers no scores: is it an older one?")
    return TextResult(
        text=answer.text,
        alternatives=answer.alternatives,
        score=_number(scores.score),
        alternative_scores=[_number(score) for score in scores.alternatives],
        tokens=scores.tokens,
        token_scores=[_number(score) for score in scores.token_scores],
        finish=scores.finish,
        alignment=[Alignment(a.source, a.target, a.matrix) for a in answer.alignment],
        truncated=answer.truncated,
        timings=Timings(0.0, 0.0, 0.0, 0),
        source_tokens=scores.source_tokens,
        target_tokens=scores.target_tokens,
    )


def _number(score: float | None) -> float:
    """JSON's null stands for minus infinity."""
    return -math.inf if score is None else score


def _in_order(
    ask: Callable[[Line], Answer], lines: Iterable[Line], concurrency: int
) -> Generator[Future[Answer], None, None]:
    """Futures in the order of the lines, each when it is its turn. Lines are read by a thread of their own,
    so that an answer does not wait for the next line of a slow pipe."""
    waiting: queue.Queue[Future[Answer] | None] = queue.Queue(2 * concurrency)
    stop = threading.Event()

    def put(item: Future[Answer] | None) -> None:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def feed() -> None:
        try:
            for line in lines:
                put(pool.submit(ask, line))
                if stop.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - told in its turn
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
