"""Shapes of requests and answers. Options come from the fields of TextOptions and DecodeOptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)

from engine.api import (
    OPTION_BOUNDS,
    OPTION_HELP,
    USUAL_OPTIONS,
    DecodeOptions,
    InvalidRequest,
    ModelInfo,
    RepositoryEntry,
    SentenceVia,
    Slices,
    TextOptions,
    TextResult,
    TooLarge,
    each,
    offered_options,
    one_slice,
    slowest,
)
from server.errors import InvalidParameter, reason_of
from server.http.parameters import parse_json

# decoding options that other fields of TextRequest set: `alternatives`, `prefix` and `alignment`
ELSEWHERE: Final = frozenset({"n_best", "prefix", "free_prefix", "quotas", "alignment"})
OPTION_NAMES: Final = tuple(f.name for f in fields(DecodeOptions) if f.name not in ELSEWHERE)
INLINE_ANSWER_CHARACTERS: Final = 2_000  # longer answers collect their extras in slices
MAX_PREFIX_CHARACTERS: Final = 16_384
MAX_ALIGNMENT_CELLS: Final = 1_000_000  # numbers of all alignments in an answer
MAX_FAULTS: Final = 10  # invalid fields that one error names
SHOWN_CHARACTERS: Final = 200  # an error repeats at most this much of a client's value


def _split_lines(value: Any) -> Any:
    """Return the lines of a form's text; another value unchanged."""
    if not isinstance(value, str):
        return value
    return [line for part in value.split("\n") if (line := part.removesuffix("\r"))]


def _parse_object(value: Any) -> Any:
    """Return the object of a form's JSON text; another value unchanged."""
    try:
        return parse_json(value.encode()) if isinstance(value, str) else value
    except (InvalidRequest, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None  # names the field


# types of text options that a form writes as a string: the type of the field, and the format in a form
FORM_KINDS: Final[Mapping[Any, tuple[Any, str]]] = {
    tuple[str, ...]: (Annotated[list[str], BeforeValidator(_split_lines)], " In a form: one on each line."),
    Mapping[str, str]: (Annotated[dict[str, str], BeforeValidator(_parse_object)], " In a form: as JSON."),
}


def _text_field(task: str, name: str, **bounds: Any) -> Any:
    """Make the field of a text option, with its usual value and its sentence."""
    # exactly one option has the name
    (option,) = (option for option in offered_options(task) if option.name == name)
    _, form = FORM_KINDS.get(option.kind, (None, ""))
    return Field(option.default, description=option.help + form, **bounds)


def text_fields(task: str) -> dict[str, Any]:
    """Return the definition of a request's field for each text option of a task, by name."""
    definitions = {}
    for option in offered_options(task):
        kind, _ = FORM_KINDS.get(option.kind, (option.kind, ""))
        if option.values:
            kind = Literal[option.values] | None
        definitions[option.name] = (kind, _text_field(task, option.name))
    return definitions


class TextRequest(BaseModel):
    """Fields that /translate and /summarize share, without `q` and the decoding options.

    Answers warn about unknown fields.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = Field(None, description="A model's name; else the first that fits.")
    prefix: str = _text_field("translate", "prefix", max_length=MAX_PREFIX_CHARACTERS)
    alignment: bool = _text_field("translate", "alignment")
    scores: bool = Field(False, description="Also answer score, tokens, their scores and the finish reason.")
    timings: bool = Field(False, description="Also answer seconds waited, encoded and decoded.")
    partial: bool = Field(
        False,
        description="Of an array: answer the texts that can be answered, with null and an entry of `errors` "
        "for the others.",
    )
    stream: bool = Field(False, description="Answer by server-sent events, as soon as words are certain.")
    coverage: bool = _text_field("translate", "coverage")
    repetition: bool = Field(False, description="Also answer how much the answer repeats itself.")


class TranslateFields(TextRequest):
    attributes: bool = Field(
        False, description="HTML: translate `alt`, `title`, `placeholder` and descriptions too."
    )
    forced: bool = Field(
        False,
        description="Also answer how many phrases and marks the model had lost and were put back.",
    )
    via: bool = Field(
        False,
        description="Also answer which model gave each sentence; a second model may get sentences in doubt.",
    )


class SummarizeFields(TextRequest):
    source: str | None = Field(None, description="Language of the text; else any.")


Fields = TypeVar("Fields", bound=TextRequest)


def _refuse_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed")  # noqa: TRY004 - pydantic tells the client
    return value


NO_BOOLEAN: Final = BeforeValidator(_refuse_boolean)


def _with_options(name: str, base: type[Fields], task: str) -> type[Fields]:
    """Return the model with one field for each text option of a task and each decoding option."""
    hints = get_type_hints(DecodeOptions)
    definitions = {name: made for name, made in text_fields(task).items() if name not in base.model_fields}
    for option in OPTION_NAMES:
        sentence = f"{OPTION_HELP[option]} Null: as the model has it."
        kind = hints[option] if hints[option] in (bool, str) else Annotated[hints[option], NO_BOOLEAN]
        extra = partial(_write_bounds, OPTION_BOUNDS.get(option, {}))
        definitions[option] = (kind | None, Field(None, description=sentence, json_schema_extra=extra))
    return create_model(name, __base__=base, **definitions)


def _write_bounds(bounds: Mapping[str, Any], schema: dict[str, Any]) -> None:
    """Write the bounds of an option into its schema, except into the part for null."""
    for kind in schema["anyOf"]:
        if kind["type"] != "null":
            kind.update(bounds)


TranslateRequest: Final = _with_options("TranslateRequest", TranslateFields, "translate")
SummarizeRequest: Final = _with_options("SummarizeRequest", SummarizeFields, "summarize")
Checked = TypeVar("Checked", bound=BaseModel)


def validate(kind: type[Checked], values: dict[str, Any]) -> Checked:
    """Return the validated values of a request. Raises InvalidParameter that names the invalid fields."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)[:MAX_FAULTS]
        faults = (f"{'.'.join(map(str, e['loc']))}: {reason_of(e)}" for e in problems)
        message = f"Invalid request: {'; '.join(faults)}"
        parameter = str(problems[0]["loc"][0]) if problems[0]["loc"] else ""
        raise InvalidParameter(parameter, message) from None


def text_options(request: TextRequest, alternatives: int) -> TextOptions:
    """Return the options of a request. An option that it lacks is the model's default."""
    task = "translate" if isinstance(request, TranslateFields) else "summarize"
    decode = {name: getattr(request, name) for name in OPTION_NAMES if getattr(request, name) is not None}
    return replace(options_of(request, task), decode=decode, alternatives=alternatives)


def options_of(request: BaseModel, task: str) -> TextOptions:
    """Return the usual options of a task, with the values of a request's fields."""
    names = [option.name for option in offered_options(task) if hasattr(request, option.name)]
    values: dict[str, Any] = {name: getattr(request, name) for name in names}
    frozen: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    return replace(USUAL_OPTIONS[task], **frozen)


def texts_of(values: dict[str, Any]) -> str | list[str]:
    """Return `q`. Raises InvalidRequest in LibreTranslate's words when it is missing or empty."""
    q = values.get("q")
    if not q:
        raise InvalidRequest("Invalid request: missing q parameter")
    if isinstance(q, str) or (isinstance(q, list) and all(isinstance(text, str) for text in q)):
        return q
    raise InvalidRequest("Invalid request: q must be a string or an array of strings")


def whole(value: Any) -> Any:
    """Return an integral float such as 2.0 as an integer, like JSON Schema; another value unchanged."""
    return int(value) if type(value) is float and value.is_integer() else value


def alternatives_of(values: dict[str, Any], beams: int, limit: int) -> int:
    """Return the value of `alternatives`; 0 when it is missing or negative.

    values: fields of the request.
    beams: hypotheses of the model's widest search; the first is the answer itself.
    limit: the server's own limit; -1: no limit.

    Raises InvalidRequest in LibreTranslate's words.
    """
    most = beams - 1 if limit == -1 else min(limit, beams - 1)
    value = whole(values.get("alternatives"))
    try:
        # a form sends "" for a missing number; a boolean is no number
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

    texts: one text, or a list.
    char_limit: greatest number of characters of each text; -1: no limit.
    batch_limit: greatest number of texts in a list; -1: no limit.

    Raises InvalidRequest in LibreTranslate's words when they exceed a limit.
    """
    batch = [texts] if isinstance(texts, str) else texts
    sizes = [(len(text), char_limit) for text in batch]
    if not isinstance(texts, str):
        # the number of texts is checked first
        sizes.insert(0, (len(batch), batch_limit))
    for size, limit in sizes:
        if limit != -1 and size > limit:
            raise InvalidRequest(f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return batch


def text_limit(values: dict[str, Any], char_limit: int) -> int:
    """Return the character limit for `check_sizes`; -1 with `partial`, where each text is checked later.

    values: fields of the request.
    char_limit: the server's own limit; -1: no limit.
    """
    return -1 if values.get("partial") is True and isinstance(values.get("q"), list) else char_limit


def phrases_of(values: dict[str, Any]) -> int:
    """Estimate the number of phrases in `ignore` and `glossary`, before they are parsed."""
    ignore, glossary = values.get("ignore"), values.get("glossary")
    lines = len(ignore) if isinstance(ignore, list) else 0
    if isinstance(ignore, str):
        lines = ignore.count("\n") + 1
    if isinstance(glossary, str):
        # in JSON each entry has a colon
        return lines + glossary.count(":")
    return lines + (len(glossary) if isinstance(glossary, dict) else 0)


def check_phrases(count: int, limit: int) -> None:
    """Raise InvalidRequest when a request has more phrases than the limit; -1: no limit."""
    if limit != -1 and count > limit:
        raise InvalidRequest(
            f"Invalid request: {count} phrases of ignore and glossary; this server takes {limit} in a request"
        )


def check_tags(texts: Iterable[str], limit: int) -> None:
    """Raise InvalidRequest when texts together have more tags than the limit; -1: no limit."""
    count = sum(text.count("<") for text in texts)
    if limit != -1 and count > limit:
        raise InvalidRequest(
            f"Invalid request: {count} tags; this server takes {limit} in a request: send fewer texts"
        )


def as_asked(lists: dict[str, list[Any]], *, batch: bool) -> dict[str, Any]:
    """Return the lists unchanged for an array of texts; for one text, the only entry of each list."""
    return lists if batch else {name: values[0] for name, values in lists.items()}


def extras(request: TextRequest, results: list[TextResult], *, batch: bool) -> Slices[dict[str, Any]]:
    """Return the optional parts of an answer, in slices.

    request: request, whose fields select the parts.
    results: results of all texts of the request.
    batch: whether the request had an array of texts.

    Raises TooLarge when the alignment has too many numbers.
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
        "via": _via,
    }
    for name, part in parts.items():
        if getattr(request, name, False):
            lists[name] = yield from each(one_slice(part, result) for result in results)
    answer = as_asked(lists, batch=batch)
    if request.timings:
        answer["timings"] = slowest([result.timings for result in results])._asdict()
    return answer


def is_short(results: Sequence[TextResult]) -> bool:
    """Return whether results are so short that `extras` need no slices."""
    return sum(len(result.text) + 50 for result in results) <= INLINE_ANSWER_CHARACTERS


def check_cells(count: int) -> None:
    """Raise TooLarge when an alignment has too many numbers."""
    if count > MAX_ALIGNMENT_CELLS:
        raise TooLarge(
            f"the alignment has {count} numbers; this server answers {MAX_ALIGNMENT_CELLS}: "
            "send fewer or shorter texts"
        )


def describe(info: ModelInfo, entry: RepositoryEntry) -> dict[str, Any]:
    """Return the JSON description of a model."""
    description = asdict(info) | {"state": entry.state, "memory": entry.cost}
    description["options"] = {name: finite(description["options"][name]) for name in OPTION_NAMES}
    return description


def finite(value: Any) -> Any:
    """Return None for infinities and NaN, which JSON can't express; another value unchanged."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scores(result: TextResult) -> dict[str, Any]:
    """Return the scores of a result; `via` has the scores of the first model of a pivot.

    `insteadOf` names the upstream that gave no good answer; `doubtful` counts answers with faults.
    """
    more: dict[str, Any] = (
        {} if result.via is None else {"via": {"text": result.via.text} | _scores(result.via)}
    )
    more |= {"insteadOf": result.instead_of} if result.instead_of else {}
    more |= {"doubtful": result.doubtful} if result.doubtful else {}
    return more | {
        "model": result.model,
        "score": finite(result.score),
        "alternatives": [finite(score) for score in result.alternative_scores],
        "tokens": result.tokens,
        "tokenScores": [finite(score) for score in result.token_scores],
        "finish": result.finish,
        "sourceTokens": result.source_tokens,
        "targetTokens": result.target_tokens,
    }


def _via(result: TextResult) -> list[dict[str, Any]]:
    """Return the model of each sentence of a result; one entry if no second model could be asked."""
    whole = [SentenceVia(result.model)] if result.source_tokens else []
    return [asdict(sentence) for sentence in result.sentences or whole]


def _alignment(result: TextResult) -> list[dict[str, Any]]:
    """Return the attention matrix of each sentence that a model read, with its source and target tokens."""
    return [
        {
            "source": sentence.source,
            "target": sentence.target,
            "matrix": sentence.matrix,  # the JSON writer rounds it
        }
        for sentence in result.alignment
        if not sentence.fixed
    ]
