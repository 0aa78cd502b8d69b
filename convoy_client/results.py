"""Answers as frozen data. Fields that a newer server adds are in `extra`, as they came."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from convoy_client.errors import BadAnswer, UnreadOption

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Detection:
    """A language and how sure the server is of it, from 0 to 100."""

    language: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Scores:
    """score, alternatives: natural log, of the text and of each alternative.
    tokens, token_scores: the end of each sentence included.
    finish: "stop", or "length" where a limit ended it.
    """

    score: float | None
    alternatives: list[float | None]
    tokens: list[str]
    token_scores: list[float | None]
    finish: str
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention of one sentence: matrix[target][source]; each row sums to 1."""

    source: list[str]
    target: list[str]
    matrix: list[list[float]]


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds the slowest sentence of a request waited, was encoded and was decoded; decoding steps."""

    queue: float
    encode: float
    decode: float
    steps: int


@dataclass(frozen=True, slots=True)
class Translation:
    """detected: with source "auto".
    truncated: only the beginning was read.
    scores, alignment, timings: where they were asked for.
    """

    text: str
    alternatives: list[str] = field(default_factory=list)
    detected: Detection | None = None
    truncated: bool = False
    scores: Scores | None = None
    alignment: list[Alignment] = field(default_factory=list)
    timings: Timings | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """truncated: only the beginning of the text was read."""

    text: str
    truncated: bool = False
    alternatives: list[str] = field(default_factory=list)
    scores: Scores | None = None
    alignment: list[Alignment] = field(default_factory=list)
    timings: Timings | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """How probable a text is.

    score: natural logarithm, of the text and its end; None for minus infinity.
    tokens, token_scores: end-of-sentence last.
    model: name of the model.
    """

    score: float | None
    perplexity: float | None
    words: int
    tokens: list[str]
    token_scores: list[float]
    model: str


@dataclass(frozen=True, slots=True)
class Partial:
    """The beginning of an answer that is still being made, never taken back.

    index: of the text.
    """

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Language:
    """A language with those it can be translated into."""

    code: str
    name: str
    targets: list[str]


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model.

    limits: in tokens.
    options: its decoding defaults.
    """

    name: str
    task: str
    source: str
    target: str
    architecture: str
    parameters: int
    limits: Mapping[str, int]
    precision: str
    backend: str
    options: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)


# the server's names, which are LibreTranslate's or in its manner, by ours
FIELD_NAMES: Final = {
    "token_scores": "tokenScores",  # nosec B105 # the name of a field
    "source_tokens": "sourceTokens",
    "target_tokens": "targetTokens",
}


def translations(data: Any, count: int | None) -> list[Translation]:
    """Read the answers of /translate to `count` texts; None: to a single text that was no array."""
    _warn(data)
    return [
        Translation(
            text=_text(one["translatedText"]),
            detected=_maybe(Detection, one.get("detectedLanguage")),
            extra=_rest(one, "translatedText", "detectedLanguage", *SHARED_FIELDS),
            **_common_fields(one),
        )
        for one in _apart(data, count, "translatedText")
    ]


def summaries(data: Any, count: int | None) -> list[Summary]:
    """Read the answers of /summarize, likewise."""
    _warn(data)
    return [
        Summary(
            text=_text(one["summaryText"]),
            extra=_rest(one, "summaryText", *SHARED_FIELDS),
            **_common_fields(one),
        )
        for one in _apart(data, count, "summaryText")
    ]


def scores(data: Any, count: int | None) -> list[Score]:
    """Read the answers of /score, likewise."""
    _warn(data)
    answer = data.get("scores") if isinstance(data, dict) else None
    parts: list[Any] = [answer] if count is None else answer if isinstance(answer, list) else []
    if len(parts) != (count or 1) or not all(isinstance(one, dict) for one in parts):
        raise BadAnswer("the server did not answer with a score for each text: is this a Convoy server?")
    return [_from_object(Score, one | {"model": data.get("model")}) for one in parts]


def from_array(kind: type[T], data: Any) -> list[T]:
    """Read a JSON array of objects as a list of `kind`."""
    if not isinstance(data, list):
        raise BadAnswer("the server's answer is no list: is this a Convoy server?")
    return [_from_object(kind, one) for one in data]


SHARED_FIELDS: Final = ("alternatives", "truncated", "scores", "alignment", "timings")


def _common_fields(one: Mapping[str, Any]) -> dict[str, Any]:
    """What translations and summaries have in common, by our names."""
    return {
        "alternatives": _get(one, "alternatives", list, []),
        "truncated": _get(one, "truncated", bool, False),
        "scores": _maybe(Scores, one.get("scores")),
        "alignment": [_from_object(Alignment, a) for a in one.get("alignment", [])],
        "timings": _maybe(Timings, one.get("timings")),
    }


def _warn(data: Any) -> None:
    """Warn of options that the server did not read."""
    unread = data.get("warnings") if isinstance(data, dict) else None
    for name, warning in unread.items() if isinstance(unread, dict) else ():
        warnings.warn(f"{name} {warning}", UnreadOption, stacklevel=2)


def _apart(data: Any, count: int | None, text: str) -> list[dict[str, Any]]:
    """One object for each text. Every list of an array's answer has an entry for each; what is no list, such
    as the timings, is of all of them."""
    if not isinstance(data, dict) or text not in data:
        raise BadAnswer(f"the server's answer has no {text!r}: is this a Convoy server?")
    if count is None:
        return [data]
    lists = {name: value for name, value in data.items() if isinstance(value, list)}
    if len(lists.get(text, ())) != count or any(len(value) != count for value in lists.values()):
        raise BadAnswer(f"the server did not answer each of the {count} texts")
    shared = {name: value for name, value in data.items() if name not in lists}
    return [shared | {name: value[i] for name, value in lists.items()} for i in range(count)]


def _from_object(kind: type[T], data: Any) -> T:
    """A dataclass from a JSON object; what it has no field for goes to `extra` where there is one."""
    names = {f.name: FIELD_NAMES.get(f.name, f.name) for f in fields(kind)}  # type: ignore[arg-type]
    has_extra = names.pop("extra", None) is not None
    try:
        values = {ours: data[theirs] for ours, theirs in names.items()}
    except (KeyError, TypeError):
        raise BadAnswer(
            f"the server's {kind.__name__.lower()} lacks a field: is this a Convoy server?"
        ) from None
    if has_extra:
        values["extra"] = _rest(data, *names.values())
    return kind(**values)


def _maybe(kind: type[T], data: Any) -> T | None:
    return None if data is None else _from_object(kind, data)


def _rest(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadAnswer("the server answered something else than a text")
    return value


def _get(data: Mapping[str, Any], name: str, kind: type[T], default: T) -> T:
    value = data.get(name, default)
    return value if isinstance(value, kind) else default
