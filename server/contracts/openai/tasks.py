"""Requests of OpenAI's clients: model, languages, number of answers.

`model` is the name of a model, which determines the task; or it is "convoy", and a system message names the
task: "Translate from German to English", "Translate to English" (the source is detected), "Summarize".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from engine.api import InvalidRequest, ModelRoute, TextOptions, TextResult, UnknownModel
from server.answering.results import OnPartial
from server.answering.texts import (
    SUMMARY,
    TRANSLATION,
    TranslationTask,
    accept_texts,
    pick_summarizer,
    resolve_pair,
    translate_texts,
)
from server.answering.translation import run_each
from server.errors import InvalidParameter, Refusal
from server.http.parameters import body_of, parse_json
from server.http.schemas import NO_BOOLEAN, alternatives_of, validate
from server.language_names import LANGUAGE_NAMES
from server.languages import tag_of
from server.state import AppState, deadline_of, state_of

ANY_MODEL: Final = "convoy"
AUTO: Final = "auto"
# values of unsupported parameters that are accepted, because they request nothing
UNSUPPORTED: Final[dict[str, tuple[Any, ...]]] = {
    "audio": (None,),
    "best_of": (None, 0, 1),
    "echo": (None, False),
    "function_call": (None, "none", "auto"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False, 0),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "response_format": (None, {"type": "text"}),
    "stop": (None, "", []),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
    "web_search_options": (None,),
}
# parameters of OpenAI's API that have no effect here
IDLE: Final = frozenset(
    {
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "user",
        "store",
        "metadata",
        "service_tier",
        "verbosity",
    }
    | {"parallel_tool_calls", "reasoning_effort", "safety_identifier", "prompt_cache_key"}
    | {"prompt_cache_retention"}
)
INSTRUCTION: Final = re.compile(r"\b(translat|summari[sz])\w*([^\n]{0,200})", re.IGNORECASE)
LANGUAGE: Final = re.compile(
    r"\b(from|to|into)\s{1,3}(simplified |traditional |brazilian )?([\w-]{2,20})(?:\s?\((\w{2,20})\))?",
    re.IGNORECASE,
)
# reversed: of several codes with one name the first remains
CODES_BY_NAME: Final = {name.casefold(): code for code, name in reversed(LANGUAGE_NAMES.items())}
VARIANTS: Final = {
    ("traditional", "chinese"): "zt",
    ("simplified", "chinese"): "zh",
    ("brazilian", "portuguese"): "pb",
    ("brazil", "portuguese"): "pb",
}


def _null_as_one(value: Any) -> Any:
    return 1 if value is None else value


class StreamOptions(BaseModel):
    include_usage: StrictBool = Field(False, description="Add a chunk with the numbers of tokens.")


class CompletionFields(BaseModel):
    """Fields that chats and completions share. Answers warn about unknown fields."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str = Field(
        min_length=1, description=f'A model of /v1/models, or "{ANY_MODEL}" where a message names languages.'
    )
    n: Annotated[int, Field(ge=1), BeforeValidator(_null_as_one), NO_BOOLEAN] = Field(
        1,
        description="Different answers, best first; there may be fewer.",
        json_schema_extra={"type": ["integer", "null"]},
    )
    max_tokens: Annotated[int | None, NO_BOOLEAN] = Field(
        None, ge=1, description="Longest translation of a sentence, or summary."
    )
    max_completion_tokens: Annotated[int | None, NO_BOOLEAN] = Field(None, ge=1, description="The same.")
    temperature: Annotated[float | None, NO_BOOLEAN] = Field(
        None, ge=0, le=2, description="Changes nothing: the search is exact."
    )
    top_p: Annotated[float | None, NO_BOOLEAN] = Field(None, ge=0, le=1, description="Changes nothing.")
    stream: StrictBool | None = Field(None, description="Answer by server-sent events.")
    stream_options: StreamOptions | None = None


READ: Final = frozenset({"messages", "prompt"} | set(CompletionFields.model_fields) | set(UNSUPPORTED) | IDLE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """The task in a system message.

    summarize: whether to summarize texts; otherwise they are translated.
    source, target: our codes of languages; "": not named.
    """

    summarize: bool
    source: str = ""
    target: str = ""


def read_instruction(message: str) -> Instruction | None:
    """Return the task in a system message; None when it names neither translation nor summaries."""
    instruction = INSTRUCTION.search(message)
    if instruction is None:
        return None
    verb, rest = instruction.groups()
    languages: dict[str, str] = {}
    for match in LANGUAGE.finditer(rest):
        preposition, qualifier, name, bracketed = match.groups()
        code = _code_of(name.casefold(), (qualifier or bracketed or "").strip().casefold())
        if code:
            languages.setdefault("source" if preposition.casefold() == "from" else "target", code)
    return Instruction(summarize=verb.casefold() != "translat", **languages)


def _code_of(name: str, qualifier: str) -> str:
    """Return our code for a language's English name or code; "" for other words."""
    code = VARIANTS.get((qualifier, name)) or CODES_BY_NAME.get(name)
    marked = "-" in name or "_" in name  # many short words are codes of languages
    return code or (name if name in LANGUAGE_NAMES or (marked and tag_of(name)) else "")


@dataclass(frozen=True, slots=True)
class TextJob:
    """Checked and charged texts, and their task.

    state: state that routes share.
    texts: texts in the order of the request.
    task: translation task; or the model that summarizes.
    options: text options.
    deadline: latest time of the answer, of time.monotonic().
    """

    state: AppState
    texts: list[str]
    task: TranslationTask | ModelRoute
    options: TextOptions
    deadline: float

    async def results(self, on_partial: OnPartial | None = None) -> list[TextResult]:
        """Return the results of the texts; final beginnings of answers are passed to `on_partial`."""
        if isinstance(self.task, TranslationTask):
            return (await translate_texts(self.state, self.task, on_partial)).results
        routes = [self.task] * len(self.texts)
        return await run_each(self.state, self.texts, routes, self.options, self.deadline, on_partial)


async def read_fields(request: Request) -> tuple[dict[str, Any], CompletionFields]:
    """Return the fields of a request, raw and validated. Raises Refusal and InvalidRequest."""
    values = parse_json(await body_of(request, state_of(request).settings.body_limit))
    for name, idle in UNSUPPORTED.items():
        if values.get(name) not in idle:
            message = f"Unsupported parameter: '{name}' is not supported by these models."
            raise Refusal("unsupported_parameter", message, parameter=name)
    return values, validate(CompletionFields, values)


async def accept_job(
    request: Request, fields: CompletionFields, texts: list[str], system: str = ""
) -> TextJob:
    """Select the model and languages for texts, check their limits, and charge them.

    request: request of the client.
    fields: fields of the request.
    texts: texts to be translated or summarized.
    system: system message; "": none.

    Raises UnknownModel, InvalidRequest and Refusal.
    """
    state = state_of(request)
    deadline, service = deadline_of(request, state), state.service
    instruction = read_instruction(system)
    name = None if fields.model == ANY_MODEL else fields.model
    route = service.route(name) if name else None
    if route is None and instruction is None:
        raise InvalidParameter(
            "model",
            f'"{ANY_MODEL}" needs a system message such as "Translate from German to English", or '
            '"Summarize"; or name a model of /v1/models',
        )
    # a named model determines the task; otherwise the system message does
    if route.infos[0].task == "summarize" if route else instruction and instruction.summarize:
        route = await pick_summarizer(service, texts, model=name)
        options = _options(fields, route, SUMMARY, state)
        return TextJob(state, await accept_texts(request, texts), route, options, deadline)
    if route and route.infos[0].task != "translate":
        raise UnknownModel(f"model {name!r} neither translates nor summarizes")
    pair = _pair(route, instruction)
    source, target = resolve_pair(service, *pair)
    options = _options(fields, route, TRANSLATION, state)
    task = TranslationTask(texts, source, target, deadline, options, model=name)
    return TextJob(state, await accept_texts(request, texts), task, options, deadline)


def _pair(route: ModelRoute | None, instruction: Instruction | None) -> tuple[str, str]:
    """Return source (or "auto") and target, from the message or from the model."""
    source, target = (instruction.source, instruction.target) if instruction else ("", "")
    if route is not None:
        # a pivot translation has two legs, one for each model
        return source or route.legs[0].source, target or route.legs[-1].target
    if not target:
        raise InvalidRequest('the system message names no language to translate to: "Translate to English"')
    return source or AUTO, target


def _options(
    fields: CompletionFields, route: ModelRoute | None, defaults: TextOptions, state: AppState
) -> TextOptions:
    """Return the text options: number of hypotheses, and their greatest length."""
    infos = route.infos if route else [i for i in state.service.models() if i.task == "translate"]
    beams = max((info.limits.beams for info in infos), default=1)
    alternatives = alternatives_of({"alternatives": fields.n - 1}, beams, state.settings.alternatives_limit)
    requested_length = fields.max_completion_tokens or fields.max_tokens
    limit = min((info.limits.target for info in infos), default=1)
    decode = {"max_length": min(requested_length, limit)} if requested_length else {}
    return TextOptions(
        decode=decode,
        alternatives=alternatives,
        split=defaults.split,
        protect=defaults.protect,
        follow_form=defaults.follow_form,
        newlines=defaults.newlines,
    )
