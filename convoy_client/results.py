"""Answers as frozen data. Fields of newer servers are in `extra`, unchanged."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from convoy_client.errors import BadAnswer, UnreadOption

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Detection:
    """A language, with the confidence of the detection from 0 to 100."""

    language: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of an answer, as natural logarithms; None: minus infinity.

    score, alternatives: score of the text, and of each alternative.
    tokens, token_scores: tokens and their scores, with the end of each sentence.
    finish: "stop", or "length" if the limit of the length ended it.
    source_tokens, target_tokens: number of tokens.
    model: name of the model that answered.
    """

    score: float | None
    alternatives: list[float | None]
    tokens: list[str]
    token_scores: list[float | None]
    finish: str
    source_tokens: int
    target_tokens: int
    model: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention of one sentence: matrix[target][source]; each row sums to 1."""

    source: list[str]
    target: list[str]
    matrix: list[list[float]]


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds in which the slowest sentence was queued, encoded and decoded, and its decoding steps."""

    queue: float
    encode: float
    decode: float
    steps: int


@dataclass(frozen=True, slots=True)
class Translation:
    """A translation.

    text: translated text.
    alternatives: other translations.
    detected: detected language, with source "auto".
    truncated: only the beginning of the text was translated.
    scores, alignment, timings: values for the options of the same names.
    extra: fields of newer servers.
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
    """A summary.

    text: the summary.
    truncated: only the beginning of the text was read.
    alternatives: other summaries.
    scores, alignment, timings: values for the options of the same names.
    extra: fields of newer servers.
    """

    text: str
    truncated: bool = False
    alternatives: list[str] = field(default_factory=list)
    scores: Scores | None = None
    alignment: list[Alignment] = field(default_factory=list)
    timings: Timings | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """The probability of a text.

    score: natural logarithm of the probability, with end-of-sentence; None: minus infinity.
    perplexity: exponential of the mean negative log-probability of a token.
    words: number of words.
    tokens, token_scores: tokens and their scores, with end-of-sentence.
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
    """The beginning of an answer in progress; the answer will begin with it.

    index: number of the text in the request.
    text: the beginning.
    """

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Language:
    """A language, with the codes of its target languages."""

    code: str
    name: str
    targets: list[str]


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model.

    limits: maximum numbers of tokens, by name of the limit.
    options: default decoding options.
    extra: fields of newer servers.
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


# names in the JSON of the server, by name of the field
FIELD_NAMES: Final = {
    "token_scores": "tokenScores",  # nosec B105 # the name of a field
    "source_tokens": "sourceTokens",
    "target_tokens": "targetTokens",
}


def translations(data: Any, count: int | None) -> list[Translation]:
    """Return the translations in an answer of /translate.

    data: JSON of the answer.
    count: number of texts in the array of the request; None: the request had a single text.
    """
    _warn(data)
    return [
        Translation(
            text=_text(one["translatedText"]),
            detected=_optional(Detection, one.get("detectedLanguage")),
            extra=_other_fields(one, "translatedText", "detectedLanguage", *SHARED_FIELDS),
            **_common_fields(one),
        )
        for one in _objects(data, count, "translatedText")
    ]


def summaries(data: Any, count: int | None) -> list[Summary]:
    """Return the summaries in an answer of /summarize.

    data: JSON of the answer.
    count: number of texts in the array of the request; None: the request had a single text.
    """
    _warn(data)
    return [
        Summary(
            text=_text(one["summaryText"]),
            extra=_other_fields(one, "summaryText", *SHARED_FIELDS),
            **_common_fields(one),
        )
        for one in _objects(data, count, "summaryText")
    ]


def scores(data: Any, count: int | None) -> list[Score]:
    """Return the scores in an answer of /score.

    data: JSON of the answer.
    count: number of texts in the array of the request; None: the request had a single text.
    """
    _warn(data)
    answer = data.get("scores") if isinstance(data, dict) else None
    parts: list[Any] = [answer] if count is None else answer if isinstance(answer, list) else []
    if len(parts) != (count or 1) or not all(isinstance(one, dict) for one in parts):
        raise BadAnswer("the server did not answer with a score for each text: is this a Convoy server?")
    return [_from_object(Score, one | {"model": data.get("model")}) for one in parts]


def from_array(kind: type[T], data: Any) -> list[T]:
    """Return a JSON array of objects as a list of a dataclass."""
    if not isinstance(data, list):
        raise BadAnswer("the server's answer is no list: is this a Convoy server?")
    return [_from_object(kind, one) for one in data]


SHARED_FIELDS: Final = ("alternatives", "truncated", "scores", "alignment", "timings")


def _common_fields(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that translations and summaries share, by name."""
    return {
        "alternatives": _get(one, "alternatives", list, []),
        "truncated": _get(one, "truncated", bool, False),
        "scores": _optional(Scores, one.get("scores")),
        "alignment": [_from_object(Alignment, a) for a in one.get("alignment", [])],
        "timings": _optional(Timings, one.get("timings")),
    }


def _warn(data: Any) -> None:
    """Warn of options that the server ignored."""
    unread = data.get("warnings") if isinstance(data, dict) else None
    for name, warning in unread.items() if isinstance(unread, dict) else ():
        warnings.warn(f"{name} {warning}", UnreadOption, stacklevel=2)


def _objects(data: Any, count: int | None, text: str) -> list[dict[str, Any]]:
    """Return one JSON object for each text.

    data: JSON of the answer.
    count: number of texts in the array of the request; None: the request had a single text.
    text: name of the member with the texts.

    If the request had an array, lists have an entry for each text; other values, such as timings, are shared.
    """
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
    """Return a dataclass for a JSON object; members without a field go to `extra` if there is one."""
    # name of each field, and of its member in JSON
    names = {f.name: FIELD_NAMES.get(f.name, f.name) for f in fields(kind)}  # type: ignore[arg-type]
    has_extra = names.pop("extra", None) is not None
    try:
        values = {ours: data[theirs] for ours, theirs in names.items()}
    except (KeyError, TypeError):
        raise BadAnswer(
            f"the server's {kind.__name__.lower()} lacks a field: is this a Convoy server?"
        ) from None
    if has_extra:
        values["extra"] = _other_fields(data, *names.values())
    return kind(**values)


def _optional(kind: type[T], data: Any) -> T | None:
    return None if data is None else _from_object(kind, data)


def _other_fields(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields whose names are not among `names`."""
    return {name: value for name, value in data.items() if name not in names}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadAnswer("the answer of the server has no text")
    return value


def _get(data: Mapping[str, Any], name: str, kind: type[T], default: T) -> T:
    """Return a field, or the default if the field is missing or of another type."""
    value = data.get(name, default)
    return value if isinstance(value, kind) else default
