"""Requests in the form of chats: a text, the task that messages name, and the limits of the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fastapi import Request

from engine.api import (
    InvalidRequest,
    ModelInfo,
    ModelRoute,
    Partial,
    Service,
    TextOptions,
    TextResult,
    UnknownModel,
)
from server.answering.instructions import Instruction, read_instruction
from server.answering.results import OnPartial
from server.answering.templates import read_template
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
from server.errors import InvalidParameter
from server.http.schemas import alternatives_of
from server.state import AppState, deadline_of, state_of

ANY_MODEL: Final = "convoy"
AUTO: Final = "auto"
MAX_STOPS: Final = 16
MAX_STOP_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class Chat:
    """A request to a chat model.

    model: name of a model; ANY_MODEL or "": the messages name the task.
    system: instructions; "": none.
    count: number of different answers.
    max_tokens: greatest length of an answer; None: the model's.
    stop: texts that end an answer, which does not contain them.
    """

    model: str
    system: str = ""
    count: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextJob:
    """Checked and charged texts, and their task.

    state: state that routes share.
    texts: texts in the order of the request.
    task: translation task; or the model that summarizes.
    options: text options.
    deadline: latest time of the answer, of time.monotonic().
    stop: texts that end an answer.
    """

    state: AppState
    texts: list[str]
    task: TranslationTask | ModelRoute
    options: TextOptions
    deadline: float
    stop: tuple[str, ...] = ()

    async def results(self, on_partial: OnPartial | None = None) -> list[TextResult]:
        """Return the results of the texts; final beginnings of answers are passed to `on_partial`."""
        listener = self._until_stop(on_partial) if on_partial and self.stop else on_partial
        if isinstance(self.task, TranslationTask):
            results = (await translate_texts(self.state, self.task, listener)).results
        else:
            routes = [self.task] * len(self.texts)
            results = await run_each(self.state, self.texts, routes, self.options, self.deadline, listener)
        return [_cut(result, self.stop) for result in results] if self.stop else results

    def _until_stop(self, on_partial: OnPartial) -> OnPartial:
        """Return a listener that passes beginnings without what is, or may become, a text of `stop`."""

        def listener(partial: Partial) -> None:
            on_partial(replace(partial, text=certain_before(partial.text, self.stop)))

        return listener


def chat_models(service: Service) -> list[ModelInfo]:
    """Return the models that answer chats: they translate or summarize."""
    return [info for info in service.models() if info.task in ("translate", "summarize")]


def stop_texts(value: Any) -> Any:
    """Return the texts that a request names, without empty ones; other values stay, to be refused."""
    texts = [] if value is None else [value] if isinstance(value, str) else value
    return tuple(text for text in texts if text != "") if isinstance(texts, list) else texts


def before(text: str, stop: Sequence[str]) -> str:
    """Return the part of a text before the first of some texts that end it."""
    return text[: min((position for end in stop if (position := text.find(end)) >= 0), default=len(text))]


def certain_before(text: str, stop: Sequence[str]) -> str:
    """Return the part of a growing text that no text of `stop` can still take away."""
    cut = before(text, stop)
    open_ends = [size for end in stop for size in range(1, len(end)) if cut.endswith(end[:size])]
    return cut if len(cut) < len(text) else cut[: len(cut) - max(open_ends, default=0)]


def _cut(result: TextResult, stop: Sequence[str]) -> TextResult:
    """Return a result whose texts end before the texts of `stop`."""
    alternatives = [before(text, stop) for text in result.alternatives]
    text = before(result.text, stop)
    finish = result.finish if text == result.text else "stop"
    return replace(result, text=text, alternatives=alternatives, finish=finish)


async def accept_chat(request: Request, chat: Chat, texts: list[str]) -> TextJob:
    """Select the model and languages for texts, check their limits, and charge them.

    request: request of the client.
    chat: fields of the request.
    texts: texts to be translated or summarized; one text may be an instruction with a text of its own.

    Raises UnknownModel, InvalidRequest and Refusal.
    """
    state = state_of(request)
    deadline, service = deadline_of(request, state), state.service
    instruction = read_instruction(chat.system)
    if len(texts) == 1 and (template := read_template(texts[0])):
        instruction, texts = template[0], [template[1]]
    name = _model(service, chat.model, instruction)
    route = service.route(name) if name else None
    # a named model determines the task; otherwise the messages do
    if route.infos[0].task == "summarize" if route else instruction and instruction.summarize:
        route = await pick_summarizer(service, texts, model=name)
        options = _options(chat, route, SUMMARY, state)
        return TextJob(state, await accept_texts(request, texts), route, options, deadline, chat.stop)
    if route and route.infos[0].task != "translate":
        raise UnknownModel(f"model {name!r} neither translates nor summarizes")
    source, target = resolve_pair(service, *_pair(route, instruction))
    options = _options(chat, route, TRANSLATION, state)
    task = TranslationTask(texts, source, target, deadline, options, model=name)
    return TextJob(state, await accept_texts(request, texts), task, options, deadline, chat.stop)


def _model(service: Service, name: str, instruction: Instruction | None) -> str | None:
    """Return the name of the model that a request means; None: the instruction selects it.

    Raises InvalidParameter when neither a name nor an instruction selects one of several models.
    """
    if name not in ("", ANY_MODEL):
        return name
    if instruction and (instruction.summarize or instruction.target):
        return None
    names = [info.name for info in chat_models(service)]
    if len(names) == 1:
        return names[0]
    if instruction:
        raise InvalidRequest('the system message names no language to translate to: "Translate to English"')
    raise InvalidParameter(
        "model",
        f'"{ANY_MODEL}" needs a system message such as "Translate from German to English", or '
        '"Summarize"; or name a model of /v1/models',
    )


def _pair(route: ModelRoute | None, instruction: Instruction | None) -> tuple[str, str]:
    """Return source (or "auto") and target, from the message or from the model."""
    source, target = (instruction.source, instruction.target) if instruction else ("", "")
    if route is not None:
        # a pivot translation has two legs, one for each model
        return source or route.legs[0].source, target or route.legs[-1].target
    return source or AUTO, target


def _options(chat: Chat, route: ModelRoute | None, defaults: TextOptions, state: AppState) -> TextOptions:
    """Return the text options: number of hypotheses, and their greatest length."""
    infos = route.infos if route else [i for i in state.service.models() if i.task == "translate"]
    beams = max((info.limits.beams for info in infos), default=1)
    alternatives = alternatives_of({"alternatives": chat.count - 1}, beams, state.settings.alternatives_limit)
    limit = min((info.limits.target for info in infos), default=1)
    decode = {"max_length": min(chat.max_tokens, limit)} if chat.max_tokens else {}
    return TextOptions(
        decode=decode,
        alternatives=alternatives,
        split=defaults.split,
        protect=defaults.protect,
        follow_form=defaults.follow_form,
        newlines=defaults.newlines,
    )


def read_messages(
    messages: Any, place: str = "messages", kinds: Collection[str] = ("text",)
) -> tuple[str, str]:
    """Return the joined system messages, and the last user message.

    messages: value of the request's field.
    place: name of the field.
    kinds: types of parts that hold texts.

    Raises InvalidParameter.
    """
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise _invalid(place, "an array of objects with role and content is needed")
    system = [
        _text_of(message.get("content"), f"{place}.[{number}].content", kinds)
        for number, message in enumerate(messages)
        if message.get("role") in ("system", "developer")
    ]
    users = [number for number, message in enumerate(messages) if message.get("role") == "user"]
    if not users:
        raise _invalid(place, "there is no message of the role user")
    text = _text_of(messages[users[-1]].get("content"), f"{place}.[{users[-1]}].content", kinds)
    if not text:
        raise _invalid(f"{place}.[{users[-1]}].content", "the text is empty")
    return "\n".join(system), text


def _text_of(content: Any, place: str, kinds: Collection[str]) -> str:
    """Return the content of a message, which is a text or an array of text parts."""
    if isinstance(content, str):
        return content
    # an invalid part becomes {}, which has no type
    parts = (
        [part if isinstance(part, dict) else {} for part in content] if isinstance(content, list) else [{}]
    )
    texts = [part.get("text") for part in parts if part.get("type") in kinds]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise _invalid(place, "it is a text, or an array of parts of the type text")
    return "\n".join(map(str, texts))


def _invalid(parameter: str, message: str) -> InvalidParameter:
    return InvalidParameter(parameter, f"Invalid value for '{parameter}': {message}.")
