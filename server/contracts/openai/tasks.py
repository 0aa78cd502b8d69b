"""Fields of OpenAI's requests.

`model` is the name of a model, which determines the task; or it is "convoy", and a system message names the
task: "Translate from German to English", "Translate to English" (the source is detected), "Summarize".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, WithJsonSchema

from server.answering.chats import ANY_MODEL, MAX_STOP_CHARACTERS, MAX_STOPS, Chat, stop_texts
from server.errors import Refusal
from server.http.parameters import body_of, parse_json
from server.http.schemas import NO_BOOLEAN, validate
from server.http.unread import unread_of
from server.state import state_of

# values of unsupported parameters that are accepted, because they request nothing
UNSUPPORTED: Final[dict[str, tuple[Any, ...]]] = {
    "audio": (None,),
    "best_of": (None, 0, 1),
    "echo": (None, False),
    "function_call": (None, "none", "auto"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "web_search_options": (None,),
}
# the same for /v1/responses
UNSUPPORTED_OF_RESPONSES: Final[dict[str, tuple[Any, ...]]] = {
    "background": (None, False),
    "conversation": (None,),
    "previous_response_id": (None,),
    "prompt": (None,),
    "text": (None, {}, {"format": {"type": "text"}}),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
}
# parameters that have no effect although a client may need them, with the warnings
UNMET: Final = {"top_logprobs": "has no effect: only the tokens of the answer have probabilities"}
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
    | {"prompt_cache_retention", "include", "reasoning", "truncation"}
)


def _null_as_one(value: Any) -> Any:
    return 1 if value is None else value


def _null_if_unlimited(value: Any) -> Any:
    """Return None for 0 and -1: clients that limit nothing send them."""
    return None if type(value) is int and value in (0, -1) else value


MAX_LOGPROBS: Final = 5  # as OpenAI's
LENGTH_SCHEMA: Final = {"anyOf": [{"type": "integer", "minimum": -1}, {"type": "null"}]}
STOP_TEXT: Final = {"type": "string", "maxLength": MAX_STOP_CHARACTERS}
STOP_SCHEMA: Final = {
    "anyOf": [STOP_TEXT, {"type": "array", "items": STOP_TEXT, "maxItems": MAX_STOPS}, {"type": "null"}]
}
StopText = Annotated[str, Field(max_length=MAX_STOP_CHARACTERS)]
Length = Annotated[
    int | None, Field(ge=1), BeforeValidator(_null_if_unlimited), NO_BOOLEAN, WithJsonSchema(LENGTH_SCHEMA)
]


class StreamOptions(BaseModel):
    include_usage: StrictBool = Field(False, description="Add a chunk with the numbers of tokens.")


class CommonFields(BaseModel):
    """Fields of all requests for texts. Answers warn about unknown fields."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = Field(
        None,
        description=f'A model of /v1/models, or "{ANY_MODEL}" where a message names languages; optional '
        "where only one model can be meant.",
    )
    temperature: Annotated[float | None, NO_BOOLEAN] = Field(
        None, ge=0, le=2, description="Changes nothing: the search is exact."
    )
    top_p: Annotated[float | None, NO_BOOLEAN] = Field(None, ge=0, le=1, description="Changes nothing.")
    stream: StrictBool | None = Field(None, description="Answer by server-sent events.")


class CompletionFields(CommonFields):
    """Fields that chats and completions share."""

    n: Annotated[int, Field(ge=1), BeforeValidator(_null_as_one), NO_BOOLEAN] = Field(
        1,
        description="Different answers, best first; there may be fewer.",
        json_schema_extra={"type": ["integer", "null"]},
    )
    max_tokens: Length = Field(
        None, description="Longest translation of a sentence, or summary; 0 and -1: no limit."
    )
    max_completion_tokens: Length = Field(None, description="The same.")
    stop: Annotated[
        tuple[StopText, ...],
        Field(max_length=MAX_STOPS),
        BeforeValidator(stop_texts),
        WithJsonSchema(STOP_SCHEMA),
    ] = Field((), description="Texts that end an answer, which does not contain them.")
    stream_options: StreamOptions | None = None
    logprobs: StrictBool | Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = Field(
        None,
        description="Return the log-probability of each token of the first answer; completions have a number "
        "here, of which 0 means the same.",
    )

    @property
    def scored(self) -> bool:
        """Whether answers have log-probabilities."""
        return self.logprobs is not None and self.logprobs is not False

    def chat(self, system: str = "") -> Chat:
        """Return the request that the fields and a system message describe."""
        length = self.max_completion_tokens or self.max_tokens
        return Chat(self.model or "", system, self.n, length, self.stop)


class ResponseFields(CommonFields):
    """Fields of /v1/responses."""

    instructions: str | None = Field(None, description="They may name languages, like a system message.")
    max_output_tokens: Length = Field(
        None, description="Longest translation of a sentence, or summary; 0 and -1: no limit."
    )

    def chat(self, system: str = "") -> Chat:
        """Return the request that the fields and a system message describe."""
        return Chat(self.model or "", system, max_tokens=self.max_output_tokens)


READ: Final = frozenset(
    {"messages", "prompt"} | set(CompletionFields.model_fields) | set(UNSUPPORTED) | set(UNMET) | IDLE
)


async def read_values(request: Request, unsupported: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return the raw fields of a request.

    request: request of the client.
    unsupported: values that request nothing, by name of an unsupported parameter.

    Raises Refusal and InvalidRequest.
    """
    values = parse_json(await body_of(request, state_of(request).settings.body_limit))
    for name, idle in unsupported.items():
        if values.get(name) not in idle:
            message = f"Unsupported parameter: '{name}' is not supported by these models."
            raise Refusal("unsupported_parameter", message, parameter=name)
    return values


async def read_fields(request: Request) -> tuple[dict[str, Any], CompletionFields]:
    """Return the fields of a chat or of completions, raw and validated. Raises Refusal and InvalidRequest."""
    values = await read_values(request, UNSUPPORTED)
    return values, validate(CompletionFields, values)


def warnings_of(values: Mapping[str, Any], read: Collection[str] = READ) -> dict[str, str]:
    """Return the warnings about fields that nothing reads or that have no effect.

    values: fields of the request.
    read: names of the fields that the route reads.
    """
    unmet = {name: text for name, text in UNMET.items() if values.get(name) not in (None, False, 0)}
    return unread_of(values, read) | unmet
