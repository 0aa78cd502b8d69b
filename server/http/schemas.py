"""Shapes of requests and answers. Decoding options come from the fields of DecodeOptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
)

from engine.api import (
    OPTION_BOUNDS,
    OPTION_HELP,
    DecodeOptions,
    InvalidRequest,
    ModelInfo,
    RepositoryEntry,
    Slices,
    TextOptions,
    TextResult,
    TooLarge,
    each,
    one_slice,
    slowest,
)
from server.errors import InvalidParameter, reason_of
from server.http.parameters import parse_json

# `alternatives`, `prefix` (as text) and `alignment` of TextRequest stand for these
ELSEWHERE: Final = frozenset({"n_best", "prefix", "free_prefix", "quotas", "alignment"})
OPTION_NAMES: Final = tuple(f.name for f in fields(DecodeOptions) if f.name not in ELSEWHERE)
INLINE_ANSWER_CHARACTERS: Final = 2_000  # of answers, about, with short extras
MAX_PREFIX_CHARACTERS: Final = 16_384
MAX_ALIGNMENT_CELLS: Final = 1_000_000  # numbers of an alignment
MAX_FAULTS: Final = 10  # that an error names
SHOWN_CHARACTERS: Final = 200  # of a client's own words that an error repeats


class PhraseFields(BaseModel):
    """Phrases that a translation of a text or a file keeps, or translates as the client says."""

    ignore: list[str] = Field([], description="Phrases to keep as they are; in a form one for each line.")
    glossary: dict[str, str] = Field(
        {}, description="Source phrases with their translations; in a form as a JSON object."
    )

    @field_validator("ignore", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return [line for part in value.split("\n") if (line := part.removesuffix("\r"))]

    @field_validator("glossary", mode="before")
    @classmethod
    def _object(cls, value: Any) -> Any:
        try:
            return parse_json(value.encode()) if isinstance(value, str) else value
        except (InvalidRequest, UnicodeEncodeError) as error:
            raise ValueError(str(error)) from None  # names the field


class TextRequest(BaseModel):
    """What /translate and /summarize share, beside the decoding options. Unknown names are not
    read, which answers say. The texts `q` are checked apart."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = Field(None, description="A model's name; else the first that fits.")
    prefix: str = Field("", description="What the answer begins with.", max_length=MAX_PREFIX_CHARACTERS)
    alignment: bool = Field(False, description="Also answer the cross-attention of each sentence.")
    scores: bool = Field(False, description="Also answer score, tokens, their scores and the finish reason.")
    timings: bool = Field(False, description="Also answer seconds waited, encoded and decoded.")
    truncate: bool = Field(False, description="Shorten a text that must stay whole and is too long.")
    partial: bool = Field(
        False,
        description="Of an array: answer the texts that can be answered, with null and an entry of `errors` "
        "for the others.",
    )
    stream: bool = Field(False, description="Answer by server-sent events, as soon as words are certain.")
    coverage: bool = Field(False, description="Also answer which source words nothing attended to.")
    repetition: bool = Field(False, description="Also answer how much the answer repeats itself.")


class TranslateFields(PhraseFields, TextRequest):
    split: bool = Field(True, description="Translate sentence by sentence; off, each text is one source.")
    protect: bool = Field(
        True,
        description="Keep addresses, numbers and fields of formats (%s, {name}) as they are, "
        "where the model has placeholder symbols.",
    )
    attributes: bool = Field(
        False, description="HTML: translate `alt`, `title`, `placeholder` and descriptions too."
    )
    local_numbers: bool = Field(
        False,
        description="Write amounts as the target language does (1.234,56 € as €1,234.56); with protect.",
    )
    follow_form: bool = Field(
        True,
        description="Capitals and final marks follow the source.",
    )
    raw: bool = Field(
        False,
        description="The model reads each text as it is, as one source, and its answer stays as it is: "
        "split, protect, local_numbers and follow_form do not count.",
    )
    forced: bool = Field(
        False,
        description="Also answer how many phrases and marks the model had lost and were put back.",
    )
    replace_unk: bool = Field(
        False, description="Unknown words become the source words that they attend to most."
    )


class SummarizeFields(TextRequest):
    source: str | None = Field(None, description="Language of the text; else any.")
    strategy: Literal["truncate", "parts", "refine"] | None = Field(
        None,
        description="Of texts that are too long: read the beginning; summarize parts and join what they "
        "give; or summarize those again until one is left. Else such texts are refused.",
    )


Fields = TypeVar("Fields", bound=TextRequest)


def _refuse_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed")  # noqa: TRY004 - pydantic tells the client
    return value


NO_BOOLEAN: Final = BeforeValidator(_refuse_boolean)


def _with_options(name: str, base: type[Fields]) -> type[Fields]:
    """The model with one field for each decoding option."""
    hints = get_type_hints(DecodeOptions)
    definitions: dict[str, Any] = {}
    for option in OPTION_NAMES:
        sentence = f"{OPTION_HELP[option]} Null: as the model has it."
        kind = hints[option] if hints[option] in (bool, str) else Annotated[hints[option], NO_BOOLEAN]
        extra = partial(_write_bounds, OPTION_BOUNDS.get(option, {}))
        definitions[option] = (kind | None, Field(None, description=sentence, json_schema_extra=extra))
    return create_model(name, __base__=base, **definitions)


def _write_bounds(bounds: Mapping[str, Any], schema: dict[str, Any]) -> None:
    """Write the bounds of an option into what its schema says of values that are not null."""
    for kind in schema["anyOf"]:
        if kind["type"] != "null":
            kind.update(bounds)


TranslateRequest: Final = _with_options("TranslateRequest", TranslateFields)
SummarizeRequest: Final = _with_options("SummarizeRequest", SummarizeFields)
Checked = TypeVar("Checked", bound=BaseModel)


def validate(kind: type[Checked], values: dict[str, Any]) -> Checked:
    """Validate the values of a request. Raises InvalidParameter that names those at fault."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)[:MAX_FAULTS]
        faults = (f"{'.'.join(map(str, e['loc']))}: {reason_of(e)}" for e in problems)
        message = f"Invalid request: {'; '.join(faults)}"
        parameter = str(problems[0]["loc"][0]) if problems[0]["loc"] else ""
        raise InvalidParameter(parameter, message) from None


def text_options(request: TextRequest, alternatives: int) -> TextOptions:
    """Make the options of a request. What was not given stays the model's default."""
    decode = {name: getattr(request, name) for name in OPTION_NAMES if getattr(request, name) is not None}
    return TextOptions(
        decode=decode,
        prefix=request.prefix,
        alternatives=alternatives,
        alignment=request.alignment,
        truncate=request.truncate,
        coverage=request.coverage,
        **(_of_translations(request) if isinstance(request, TranslateFields) else _of_summaries(request)),
    )


def _of_summaries(request: TextRequest) -> dict[str, Any]:
    strategy = request.strategy if isinstance(request, SummarizeFields) else None
    return {"split": False, "strategy": strategy}


def _of_translations(request: TranslateFields) -> dict[str, Any]:
    return {
        "split": request.split,
        "replace_unk": request.replace_unk,
        "protect": request.protect,
        "local_numbers": request.local_numbers,
        "follow_form": request.follow_form,
        "raw": request.raw,
        "ignore": tuple(request.ignore),
        "glossary": request.glossary,
    }


def texts_of(values: dict[str, Any]) -> str | list[str]:
    """Return `q`. Raises InvalidRequest in LibreTranslate's words when it is missing or empty."""
    q = values.get("q")
    if not q:
        raise InvalidRequest("Invalid request: missing q parameter")
    if isinstance(q, str) or (isinstance(q, list) and all(isinstance(text, str) for text in q)):
        return q
    raise InvalidRequest("Invalid request: q must be a string or an array of strings")


def whole(value: Any) -> Any:
    """Return a number without a fraction as an integer, as JSON Schema has it (2.0); all else as it is."""
    return int(value) if type(value) is float and value.is_integer() else value


def alternatives_of(values: dict[str, Any], beams: int, limit: int) -> int:
    """Read `alternatives`, 0 when missing or negative.

    values: of the request.
    beams: hypotheses of the model's widest search, of which the first is the answer itself.
    limit: the server's own; -1 is none.

    Raises InvalidRequest in LibreTranslate's words.
    """
    most = beams - 1 if limit == -1 else min(limit, beams - 1)
    value = whole(values.get("alternatives"))
    try:
        count = max(0, int(value or 0)) if value is None or type(value) in (int, str) else -1
    except ValueError:
        count = -1
    if count < 0:
        raise InvalidRequest("Invalid request: alternatives parameter is not a number") from None
    if count > most:
        raise InvalidRequest(f"Invalid request: alternatives parameter must be <= {most}")
    return count


def check_sizes(texts: str | list[str], char_limit: int, batch_limit: int) -> list[str]:
    """Return texts as a list.

    texts: one, or several.
    char_limit: characters of each; -1 is none.
    batch_limit: number of texts, where there are several; -1 is none.

    Raises InvalidRequest in LibreTranslate's words when they exceed a limit.
    """
    batch = [texts] if isinstance(texts, str) else texts
    sizes = [(len(text), char_limit) for text in batch]
    if not isinstance(texts, str):
        sizes.insert(0, (len(batch), batch_limit))
    for size, limit in sizes:
        if limit != -1 and size > limit:
            raise InvalidRequest(f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return batch


def text_limit(values: dict[str, Any], char_limit: int) -> int:
    """Return the limit of characters for `check_sizes`: none where each text has its own error.

    values: of the request.
    char_limit: the server's own; -1 is none.
    """
    return -1 if values.get("partial") is True and isinstance(values.get("q"), list) else char_limit


def phrases_of(values: dict[str, Any]) -> int:
    """Count the phrases to look for that a request names, before they are read; in a form, about."""
    ignore, glossary = values.get("ignore"), values.get("glossary")
    lines = len(ignore) if isinstance(ignore, list) else 0
    if isinstance(ignore, str):
        lines = ignore.count("\n") + 1
    if isinstance(glossary, str):
        return lines + glossary.count(":")
    return lines + (len(glossary) if isinstance(glossary, dict) else 0)


def check_phrases(count: int, limit: int) -> None:
    """Raise InvalidRequest on more phrases to look for than a limit; -1 is none."""
    if limit != -1 and count > limit:
        raise InvalidRequest(
            f"Invalid request: {count} phrases of ignore and glossary; this server takes {limit} in a request"
        )


def check_tags(texts: Iterable[str], limit: int) -> None:
    """Raise InvalidRequest on more tags than a limit; -1 is none."""
    count = sum(text.count("<") for text in texts)
    if limit != -1 and count > limit:
        raise InvalidRequest(
            f"Invalid request: {count} tags; this server takes {limit} in a request: send fewer texts"
        )


def as_asked(lists: dict[str, list[Any]], *, batch: bool) -> dict[str, Any]:
    """Give lists where a request had an array of texts, else the only entry of each."""
    return lists if batch else {name: values[0] for name, values in lists.items()}


def extras(request: TextRequest, results: list[TextResult], *, batch: bool) -> Slices[dict[str, Any]]:
    """Collect the optional parts of an answer, in slices.

    request: says which parts.
    results: of all its texts.
    batch: whether the request had an array of texts.

    Raises TooLarge on an alignment that nobody could read.
    """
    lists: dict[str, list[Any]] = {}
    if request.alignment:
        check_cells(sum(a.matrix.size for result in results for a in result.alignment))
    parts: dict[str, Callable[[TextResult], Any]] = {
        "scores": _scores,
        "alignment": _alignment,
        "coverage": lambda result: [asdict(sentence) for sentence in result.coverage],
        "repetition": lambda result: asdict(result.repetition),
        "forced": lambda result: result.forced,
    }
    for name, part in parts.items():
        if getattr(request, name, False):
            lists[name] = yield from each(one_slice(part, result) for result in results)
    answer = as_asked(lists, batch=batch)
    if request.timings:
        answer["timings"] = slowest([result.timings for result in results])._asdict()
    return answer


def is_short(results: Sequence[TextResult]) -> bool:
    """Return whether `extras` of results take no time to speak of."""
    return sum(len(result.text) + 50 for result in results) <= INLINE_ANSWER_CHARACTERS


def check_cells(count: int) -> None:
    """Raise TooLarge on an alignment of more numbers than this server answers."""
    if count > MAX_ALIGNMENT_CELLS:
        raise TooLarge(
            f"the alignment has {count} numbers; this server answers {MAX_ALIGNMENT_CELLS}: "
            "send fewer or shorter texts"
        )


def describe(info: ModelInfo, entry: RepositoryEntry) -> dict[str, Any]:
    """Describe a model as JSON."""
    description = asdict(info) | {"state": entry.state, "memory": entry.cost}
    description["options"] = {name: finite(description["options"][name]) for name in OPTION_NAMES}
    return description


def finite(value: Any) -> Any:
    """Put null in the place of infinities and NaN, which JSON does not know."""
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
            "matrix": sentence.matrix,  # is rounded when it is written
        }
        for sentence in result.alignment
    ]
