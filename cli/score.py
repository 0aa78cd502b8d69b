"""`convoy score`: the log-probability of each line of a file, and the perplexity of all of them."""

from __future__ import annotations

import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm

from cli import local, remote, texts
from cli.choices import ModelChoice
from cli.lines import read, writing
from engine.answers.options import TextOptions
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.api import TextScore


@dataclass(slots=True)
class Sum:
    """Sums over all lines so far.

    lines: number of lines.
    tokens: number of tokens, with end-of-sentence of each line.
    words: number of words.
    score: natural log-probability.
    """

    lines: int = 0
    tokens: int = 0
    words: int = 0
    score: float = 0.0

    def add(self, scored: TextScore) -> None:
        self.lines += 1
        self.tokens += len(scored.token_scores)
        self.words += scored.words
        self.score += scored.total

    def figures(self) -> dict[str, Any]:
        """Return the figures of all lines so far.

        Loss is in bits a token, perplexity is 2 ** loss, and word_perplexity counts words and line ends.
        """
        from engine.api import perplexity

        return {
            "lines": self.lines,
            "tokens": self.tokens,
            "words": self.words,
            "score": self.score,
            "loss": -self.score / math.log(2) / self.tokens,
            "perplexity": perplexity(self.score, self.tokens),
            "word_perplexity": perplexity(self.score, self.words + self.lines),
        }


def score(
    bundle: Annotated[
        Path,
        typer.Argument(help="A bundle folder; with --url: name of a model."),
    ],
    file: Annotated[Path, typer.Argument(help="File with one text a line; - for standard input.")],
    source: Annotated[
        Path | None, typer.Option(help="File of sources, one a line, unless the model is a language model.")
    ] = None,
    output: texts.Output = None,
    url: texts.Url = None,
    api_key: texts.ApiKey = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, with the score of each token.")
    ] = False,
    total: Annotated[bool, typer.Option("--total", help="Print only the last line.")] = False,
    precision: texts.Precision = None,
    backend: texts.Backend = None,
    device: texts.Device = "cpu",
    threads: texts.Threads = None,
    timeout: texts.Timeout = 300.0,
    concurrency: texts.Concurrency = 16,
) -> None:
    """Print the log-probability and perplexity of each line of a text, and of all lines.

    Output: natural log-probability with end-of-sentence, perplexity, text. The last line has the number of
    tokens with end-of-sentence, the loss in bits a token, and the perplexity.
    """
    server = remote.RemoteServer(url, api_key, timeout, concurrency) if url else None
    shortlist = None if url else False  # a shortlist has no probabilities of other tokens
    place = ModelChoice(bundle, precision, backend, device, threads, shortlist=shortlist)
    job = texts.job_of("score", place, server)
    totals, waiting = Sum(), deque[str]()
    with _scores(job, _pairs(file, source, waiting)) as results, writing(output) as out:
        for scored in tqdm(results, unit="line", disable=not sys.stderr.isatty()):
            totals.add(scored)
            text = waiting.popleft()
            if not total:
                out.write(_score_line(totals.lines, text, scored, as_json=as_json) + "\n")
        if not totals.lines:
            raise InvalidRequest(f"{file}: has no lines to score")
        out.write(_summary_line(totals, as_json=as_json) + "\n")


@contextmanager
def _scores(job: texts.Job, pairs: Iterable[tuple[str, str | None]]) -> Iterator[Iterator[TextScore]]:
    """Yield the scores of (text, source) pairs in order, of a local model or of a server."""
    if job.server is not None:
        scores = remote.scores(job.server, str(job.place.model), pairs)
        with closing(scores):  # cancels open requests
            yield scores
        return
    with local.open_service(job.place, TextOptions({"beam_size": 1})) as service:
        yield service.score_many(service.models()[0].name, pairs)


def _pairs(file: Path, source: Path | None, waiting: deque[str]) -> Iterator[tuple[str, str | None]]:
    """Yield texts with their sources; each text is also appended to `waiting`."""
    lines = read(None if str(file) == "-" else file)
    if source is None:
        for text in lines:
            waiting.append(text)
            yield text, None
        return
    for number, (line, of) in enumerate(zip_longest(lines, read(source)), 1):
        if line is None or of is None:
            shorter = file if line is None else source
            raise InvalidRequest(f"{shorter} ends before line {number}: each text needs its own source")
        waiting.append(line)
        yield line, of


def _score_line(number: int, text: str, scored: TextScore, *, as_json: bool) -> str:
    if not as_json:
        return f"{scored.total:.4f}\t{scored.perplexity:.2f}\t{text}"
    record = {
        "line": number,
        "text": text,
        "score": scored.total,
        "perplexity": scored.perplexity,
        "words": scored.words,
        "tokens": scored.tokens,
        "token_scores": scored.token_scores,
    }
    return json.dumps(record, ensure_ascii=False)


def _summary_line(totals: Sum, *, as_json: bool) -> str:
    figures = totals.figures()
    if as_json:
        return json.dumps({"total": figures})
    return (
        f"{totals.lines} lines, {totals.tokens} tokens, loss {figures['loss']:.4f} (base 2), "
        f"perplexity {figures['perplexity']:.2f}; "
        f"{totals.words} words, perplexity {figures['word_perplexity']:.2f} a word"
    )
