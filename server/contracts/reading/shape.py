"""The parts of the table of shapes: requests of reading tools, and functions that parse their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.api import InvalidRequest
from server.answering.texts import Translations
from server.http.openapi import FORM, JSON, SERVED

DETECT: Final = "auto"
DETECT_WORDS: Final = frozenset({"", "auto", "auto-detect"})
# hcfy's names of languages
CODES_TO_HCFY: Final = {
    "zh": "中文(简体)",
    "zt": "中文(繁体)",
    "en": "英语",
    "ja": "日语",
    "ko": "韩语",
    "fr": "法语",
    "de": "德语",
    "es": "西班牙语",
    "ru": "俄语",
    "it": "意大利语",
    "pt": "葡萄牙语",
    "ar": "阿拉伯语",
    "th": "泰语",
    "vi": "越南语",
    "nl": "荷兰语",
    "pl": "波兰语",
    "tr": "土耳其语",
    "sv": "瑞典语",
    "da": "丹麦语",
    "fi": "芬兰语",
    "cs": "捷克语",
    "el": "希腊语",
    "hu": "匈牙利语",
    "ro": "罗马尼亚语",
    "bg": "保加利亚语",
    "uk": "乌克兰语",
    "et": "爱沙尼亚语",
    "id": "印尼语",
    "hi": "印地语",
}
TEXT: Final = {"type": "string", "minLength": 1}
TEXT_LIST: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}
CODE: Final = {"type": "string", SERVED: "target", "description": "A code of a language."}
CODE_OR_AUTO: Final = {
    "anyOf": [{"type": "string", SERVED: "auto or none"}, {"type": "null"}],
    "description": 'A code of a language, or "auto".',
}


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """The fields of a tool's request.

    texts: one text, or several.
    source: tool's code of the texts' language; "auto": detect the language of each.
    target: tool's code of the language to translate into.
    otherwise: target language for a text that is already in `target`; "": none.
    html: whether texts are HTML.
    named: whether the parts of the answer have names, if the tool can choose.
    """

    texts: str | list[str]
    source: str
    target: str
    otherwise: str = ""
    html: bool = False
    named: bool = False


Read = Callable[[dict[str, Any]], ReadingRequest]
Write = Callable[[ReadingRequest, Translations], Any]


@dataclass(frozen=True, slots=True)
class ToolShape:
    """The formats of a tool's requests and answers.

    name: name of the operation in OpenAPI.
    plugins: names of plug-ins in the settings that include the shape.
    path: path of the route.
    read: function that parses the parameters of a request; raises InvalidRequest.
    write: function that makes the answer.
    fields: OpenAPI schemas of the parameters.
    example: body that the server answers with status 200.
    required: names of required parameters.
    either: schemas of parameters of which one is required, by name.
    methods: HTTP methods.
    kinds: media types of a POST.
    alternatives: number of other answers.
    claim: path of another contract that the tool may use too; "": none.
    claim_field: name in the tool's JSON that the other contract's requests lack.
    repeated: names of parameters that a form or a query string may repeat.
    media: media type of the answer; of another type than JSON, `write` returns its text.
    """

    name: str
    plugins: tuple[str, ...]
    path: str
    read: Read
    write: Write
    fields: Mapping[str, Any]
    example: Mapping[str, Any]
    required: tuple[str, ...]
    either: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ("POST",)
    kinds: tuple[str, ...] = (JSON, FORM)
    alternatives: int = 0
    claim: str = ""
    claim_field: str = ""
    repeated: tuple[str, ...] = ("q",)
    media: str = JSON


def text_of(values: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a request that is not empty.

    values: fields of the request.
    name: name of the field.
    default: value of a missing or empty field; None: the field is required.

    Raises InvalidRequest without a text or default.
    """
    value = values.get(name)
    if value in (None, "") and default is not None:
        return default
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"Invalid request: {name} must be a text that is not empty")
    return value


def source_language(values: dict[str, Any], name: str) -> str:
    """Return the language of the texts: a code of the tool, or DETECT."""
    code = text_of(values, name, DETECT)
    return DETECT if code.casefold() in DETECT_WORDS else code


def text_list(values: dict[str, Any], name: str) -> list[str]:
    """Return a list of texts. Raises InvalidRequest."""
    texts = values.get(name)
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(f"Invalid request: {name} must be an array of texts")
    return texts


def first_text(values: dict[str, Any], name: str) -> str:
    """Return the first text of a parameter that may be repeated."""
    text = values.get(name)
    return text_of({name: text[0] if isinstance(text, list) and text else text}, name)
