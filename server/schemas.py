"""Shapes of requests and answers. Decoding options come from the fields of DecodeOptions."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from engine.api import DecodeOptions, InvalidRequest, ModelInfo, Shelved, TextOptions, TextResult, slowest

# `alternatives`, `prefix` (as text) and `alignment` of TextRequest stand for these
ELSEWHERE: Final = frozenset({"n_best", "prefix", "alignment"})
OPTIONS: Final = tuple(f.name for f in fields(DecodeOptions) if f.name not in ELSEWHERE)
SHOWN: Final = 200  # characters of a client's own words that an error repeats


class TextRequest(BaseModel):
    """What /translate and /summarize share, beside the decoding options. Unknown names are ignored, as
    LibreTranslate does. The texts `q` are checked apart."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = Field(None, description="A model's name; else the first that fits.")
    prefix: str = Field("", description="What the answer begins with.")
    alignment: bool = Field(False, description="Also answer the cross-attention of each sentence.")
    scores: bool = Field(False, description="Also answer score, tokens, their scores and the finish reason.")
    timings: bool = Field(False, description="Also answer seconds waited, encoded and decoded.")
    truncate: bool = Field(False, description="Shorten a text that must stay whole and is too long.")
    stream: bool = Field(False, description="Answer by server-sent events, as soon as words are certain.")
    coverage: bool = Field(False, description="Also answer which source words nothing attended to.")
    repetition: bool = Field(False, description="Also answer how much the answer repeats itself.")


class TranslateFields(TextRequest):
    split: bool = Field(True, description="Translate sentence by sentence; off, each text is one source.")
    protect: bool = Field(
        True,
        description="Keep addresses, numbers and fields of formats (%s, {name}) as they are, "
        "where the model has placeholder symbols.",
    )
    ignore: list[str] = Field([], description="Phrases to keep as they are; in a form one for each line.")
    glossary: dict[str, str] = Field(
        {}, description="Source phrases with their translations; in a form as a JSON object."
    )

    @field_validator("ignore", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        return value.splitlines() if isinstance(value, str) else value

    @field_validator("glossary", mode="before")
    @classmethod
    def _object(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value  # its ValueError names the field

    replace_unk: bool = Field(
        False, description="Unknown words become the source words that they attend to most."
    )


class SummarizeFields(TextRequest):
    source: str | None = Field(None, description="Language of the text; else any.")


Fields = TypeVar("Fields", bound=TextRequest)


def _with_options(name: str, base: type[Fields]) -> type[Fields]:
    """The model with one field for each decoding option."""
    hints = get_type_hints(DecodeOptions)
    help_text = "Decoding option; null: the model's default."
    made: dict[str, Any] = {
        option: (hints[option] | None, Field(None, description=help_text)) for option in OPTIONS
    }
    return create_model(name, __base__=base, **made)


TranslateRequest: Final = _with_options("TranslateRequest", TranslateFields)
SummarizeRequest: Final = _with_options("SummarizeRequest", SummarizeFields)
Checked = TypeVar("Checked", bound=BaseModel)


def checked(kind: type[Checked], values: dict[str, Any]) -> Checked:
    """Raises InvalidRequest that names every parameter at fault."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise InvalidRequest(f"Invalid request: {'; '.join(faults)}") from None


def text_options(request: TextRequest, alternatives: int) -> TextOptions:
    """What was not given stays the model's default."""
    given = {name: getattr(request, name) for name in OPTIONS if getattr(request, name) is not None}
    return TextOptions(
        decode=given,
        prefix=request.prefix,
        alternatives=alternatives,
        alignment=request.alignment,
        truncate=request.truncate,
        coverage=request.coverage,
        **(_of_translations(request) if isinstance(request, TranslateFields) else {"split": False}),
    )


def _of_translations(request: TranslateFields) -> dict[str, Any]:
    return {
        "split": request.split,
        "replace_unk": request.replace_unk,
        "protect": request.protect,
        "ignore": tuple(request.ignore),
        "glossary": request.glossary,
    }


def texts_of(values: dict[str, Any]) -> str | list[str]:
    """`q`. Raises InvalidRequest in LibreTranslate's words when it is missing or empty."""
    q = values.get("q")
    if not q:
        raise InvalidRequest("Invalid request: missing q parameter")
    if isinstance(q, str) or (isinstance(q, list) and all(isinstance(text, str) for text in q)):
        return q
    raise InvalidRequest("Invalid request: q must be a string or an array of strings")


def alternatives_of(values: dict[str, Any], limit: int) -> int:
    """`alternatives`, 0 when missing or negative; `limit` is the most there can be."""
    given = values.get("alternatives") or 0
    try:
        count = max(0, int(given))
    except (ValueError, TypeError, OverflowError):
        raise InvalidRequest("Invalid request: alternatives parameter is not a number") from None
    if count > limit:
        raise InvalidRequest(f"Invalid request: alternatives parameter must be <= {limit}")
    return count


def check_sizes(texts: str | list[str], char_limit: int, batch_limit: int) -> list[str]:
    """The texts as a list. Raises InvalidRequest in LibreTranslate's words when they exceed a limit."""
    batch = [texts] if isinstance(texts, str) else texts
    sizes = [(len(text), char_limit) for text in batch]
    if not isinstance(texts, str):
        sizes.insert(0, (len(batch), batch_limit))
    for size, limit in sizes:
        if limit != -1 and size > limit:
            raise InvalidRequest(f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return batch


def extras(request: TextRequest, results: list[TextResult], *, batch: bool) -> dict[str, Any]:
    """The optional parts of an answer: lists for an array of texts."""
    found: dict[str, Any] = {}
    if request.scores:
        found["scores"] = [_scores(result) for result in results]
    if request.alignment:
        found["alignment"] = [_alignment(result) for result in results]
    if request.coverage:
        found["coverage"] = [[asdict(sentence) for sentence in result.coverage] for result in results]
    if request.repetition:
        found["repetition"] = [asdict(result.repetition) for result in results]
    if not batch:
        found = {name: values[0] for name, values in found.items()}
    if request.timings:
        found["timings"] = asdict(slowest([result.timings for result in results]))
    return found


def describe(info: ModelInfo, kept: Shelved) -> dict[str, Any]:
    """A model as JSON."""
    found = asdict(info) | {"state": kept.state, "memory": kept.cost}
    found["options"] = {name: finite(found["options"][name]) for name in OPTIONS}
    return found


def finite(value: Any) -> Any:
    """JSON knows no infinity: null instead."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scores(result: TextResult) -> dict[str, Any]:
    """Of a pivot translation, those of the first model in `via`."""
    via = {} if result.via is None else {"via": {"text": result.via.text} | _scores(result.via)}
    return via | {
        "model": result.model,
        "score": finite(result.score),
        "alternatives": [finite(score) for score in result.alternative_scores],
        "tokens": result.tokens,
        "tokenScores": [finite(score) for score in result.token_scores],
        "finish": result.finish,
        "sourceTokens": result.source_tokens,
        "targetTokens": result.target_tokens,
    }


def _alignment(result: TextResult) -> list[dict[str, Any]]:
    return [
        {
            "source": sentence.source,
            "target": sentence.target,
            "matrix": [[finite(round(float(w), 6)) for w in row] for row in sentence.matrix],
        }
        for sentence in result.alignment
    ]
