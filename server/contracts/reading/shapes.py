"""The table of shapes: the formats of requests and answers of each reading tool."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.api import InvalidRequest
from server.answering.texts import Translations
from server.http.openapi import FORM, JSON, SERVED
from server.languages import outward

DETECT: Final = "auto"
DETECT_WORDS: Final = frozenset({"", "auto", "auto-detect"})
MAX_ALTERNATIVES: Final = 3  # number of alternatives of DeepLX
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
HTML_WORDS: Final[dict[Any, bool]] = dict.fromkeys((True, "true", "1"), True) | dict.fromkeys(
    (False, "false", "0"), False
)
HTML: Final = {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": False}
CODE: Final = {"type": "string", SERVED: "target", "description": "A code of a language."}
CODE_OR_AUTO: Final = {
    "anyOf": [{"type": "string", SERVED: "auto or none"}, {"type": "null"}],
    "description": 'A code of a language, or "auto".',
}

HCFY_SOURCE: Final = {"anyOf": [{"type": "string", SERVED: "hcfy or none"}, {"type": "null"}]}


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


def _text(values: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a request that is not empty. Raises InvalidRequest without a text or default."""
    value = values.get(name)
    if value in (None, "") and default is not None:
        return default
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"Invalid request: {name} must be a text that is not empty")
    return value


def _source_language(values: dict[str, Any], name: str) -> str:
    """Return the language of the texts: a code of the tool, or DETECT."""
    code = _text(values, name, DETECT)
    return DETECT if code.casefold() in DETECT_WORDS else code


def _text_list(values: dict[str, Any], name: str) -> list[str]:
    """Return a list of texts. Raises InvalidRequest."""
    texts = values.get(name)
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(f"Invalid request: {name} must be an array of texts")
    return texts


def _first_text(values: dict[str, Any], name: str) -> str:
    """Return the first text of a parameter that may be repeated."""
    text = values.get(name)
    return _text({name: text[0] if isinstance(text, list) and text else text}, name)


def _read_deeplx(values: dict[str, Any]) -> ReadingRequest:
    html = values.get("tag_handling") in ("html", "xml")
    source = _source_language(values, "source_lang")
    return ReadingRequest(_text(values, "text"), source, _text(values, "target_lang"), html=html)


def _write_deeplx(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {
        "code": 200,
        "id": secrets.randbelow(10**10),
        "data": answer.texts[0],
        "alternatives": [] if request.html else answer.results[0].alternatives,
        "source_lang": answer.sources[0].upper(),
        "target_lang": request.target.upper(),
        "method": "Free",
    }


def _read_immersive(values: dict[str, Any]) -> ReadingRequest:
    source = _source_language(values, "source_lang")
    return ReadingRequest(_text_list(values, "text_list"), source, _text(values, "target_lang"))


def _write_immersive(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {
        "translations": [
            {"detected_source_lang": outward(source), "text": text}
            for source, text in zip(answer.sources, answer.texts, strict=True)
        ]
    }


def _read_kiss(values: dict[str, Any]) -> ReadingRequest:
    texts = _text_list(values, "texts") if "texts" in values else _text(values, "text")
    return ReadingRequest(texts, _source_language(values, "from"), _text(values, "to"))


def _write_kiss(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    items = [
        {"text": text, "src": outward(source)}
        for source, text in zip(answer.sources, answer.texts, strict=True)
    ]
    return items[0] if isinstance(request.texts, str) else {"translations": items}


def _read_mtran(values: dict[str, Any]) -> ReadingRequest:
    texts = _text_list(values, "texts") if "texts" in values else _text(values, "text")
    html = values.get("html")
    if html is not None and (type(html) not in (bool, str) or html not in ("", *HTML_WORDS)):
        raise InvalidRequest("Invalid request: html must be true or false")
    html = HTML_WORDS.get(html, False)
    return ReadingRequest(texts, _source_language(values, "from"), _text(values, "to"), html=html)


def _write_mtran(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {"result": answer.texts[0]} if isinstance(request.texts, str) else {"results": answer.texts}


def _read_hcfy(values: dict[str, Any]) -> ReadingRequest:
    names = _text_list(values, "destination")
    target, otherwise = (names + [""])[:2]  # one or two names
    return ReadingRequest(_text(values, "text"), _source_language(values, "source"), target, otherwise)


def _write_hcfy(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    source, target = answer.sources[0], request.target
    return {
        "text": request.texts,
        "from": CODES_TO_HCFY.get(source, source),
        "to": CODES_TO_HCFY.get(target, target),
        "result": answer.texts[0].split("\n"),
    }


def _read_google(values: dict[str, Any]) -> ReadingRequest:
    texts = values.get("q")
    texts = [texts] if isinstance(texts, str) else _text_list(values, "q")
    kind = _text(values, "format", "html")
    if kind not in ("html", "text"):
        raise InvalidRequest("Invalid Value: format is html or text")
    return ReadingRequest(
        texts, _source_language(values, "source"), _text(values, "target"), html=kind == "html"
    )


def _write_google(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"translatedText": text} for text in answer.texts]
    if request.source == DETECT:
        for item, source in zip(items, answer.sources, strict=True):
            item["detectedSourceLanguage"] = outward(source)
    return {"data": {"translations": items}}


def _read_free_google(values: dict[str, Any]) -> ReadingRequest:
    source, target = _source_language(values, "sl"), _text(values, "tl")
    return ReadingRequest(_first_text(values, "q"), source, target, named=values.get("dj") == "1")


def _write_free_google(request: ReadingRequest, answer: Translations) -> Any:
    source = outward(answer.sources[0])
    if request.named:
        return {"sentences": [{"trans": answer.texts[0], "orig": request.texts}], "src": source}
    return [[[answer.texts[0], request.texts, None, None, 1]], None, source, None, None, None, 1, []]


def _read_apertium(values: dict[str, Any]) -> ReadingRequest:
    source, bar, target = _text(values, "langpair").partition("|")
    if not bar or not source or not target:
        raise InvalidRequest("Invalid request: langpair must be two languages, such as de|en")
    return ReadingRequest(_first_text(values, "q"), source, target, html=values.get("deformat") != "txt")


def _write_apertium(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {
        "responseData": {"translatedText": answer.texts[0]},
        "responseDetails": None,
        "responseStatus": 200,
    }


GERMAN: Final = "Guten Morgen!"
SHAPES: Final = (
    ToolShape(
        name="deeplx",
        plugins=("deeplx",),
        path="/deeplx",
        read=_read_deeplx,
        write=_write_deeplx,
        fields={"text": TEXT, "source_lang": CODE_OR_AUTO, "target_lang": CODE},
        required=("text", "target_lang"),
        example={"text": GERMAN, "source_lang": "DE", "target_lang": "EN"},
        alternatives=MAX_ALTERNATIVES,
        claim="/translate",
        claim_field="target_lang",
    ),
    ToolShape(
        name="immersive",
        plugins=("immersive", "mtran"),
        path="/imme",
        read=_read_immersive,
        write=_write_immersive,
        fields={"text_list": TEXT_LIST, "source_lang": CODE_OR_AUTO, "target_lang": CODE},
        required=("text_list", "target_lang"),
        kinds=(JSON,),
        example={"text_list": [GERMAN], "source_lang": "auto", "target_lang": "en"},
    ),
    ToolShape(
        name="kiss",
        plugins=("mtran",),
        path="/kiss",
        read=_read_kiss,
        write=_write_kiss,
        fields={"text": {}, "texts": TEXT_LIST, "from": CODE_OR_AUTO, "to": CODE},
        required=("to",),
        either={"text": TEXT, "texts": TEXT_LIST},
        kinds=(JSON,),
        example={"text": GERMAN, "from": "auto", "to": "en"},
    ),
    ToolShape(
        name="hcfy",
        plugins=("mtran",),
        path="/hcfy",
        read=_read_hcfy,
        write=_write_hcfy,
        fields={"text": TEXT, "destination": TEXT_LIST, "source": HCFY_SOURCE},
        required=("text", "destination"),
        kinds=(JSON,),
        example={"text": GERMAN, "destination": ["英语"], "source": "德语"},
    ),
    ToolShape(
        name="mtran",
        plugins=("mtran",),
        path="/mtran/translate",
        read=_read_mtran,
        write=_write_mtran,
        fields={"text": TEXT, "from": CODE_OR_AUTO, "to": CODE, "html": HTML},
        required=("text", "to"),
        example={"text": GERMAN, "from": "de", "to": "en"},
        claim="/translate",
        claim_field="to",
    ),
    ToolShape(
        name="mtran_batch",
        plugins=("mtran",),
        path="/translate/batch",
        read=_read_mtran,
        write=_write_mtran,
        fields={"texts": TEXT_LIST, "from": CODE_OR_AUTO, "to": CODE, "html": HTML},
        required=("texts", "to"),
        kinds=(JSON,),
        example={"texts": [GERMAN], "from": "de", "to": "en"},
    ),
    ToolShape(
        name="google",
        plugins=("google",),
        path="/language/translate/v2",
        read=_read_google,
        write=_write_google,
        fields={
            "q": {"anyOf": [{"type": "string"}, TEXT_LIST], "description": "A text, or several."},
            "source": CODE_OR_AUTO,
            "target": CODE,
            "format": {
                "anyOf": [{"type": "string", "enum": ["html", "text", ""]}, {"type": "null"}],
                "default": "html",
            },
        },
        required=("q", "target"),
        example={"q": [GERMAN], "target": "en", "format": "text"},
        methods=("GET", "POST"),
    ),
    ToolShape(
        name="google_free",
        plugins=("google",),
        path="/translate_a/single",
        read=_read_free_google,
        write=_write_free_google,
        fields={
            "q": TEXT,
            "sl": CODE_OR_AUTO,
            "tl": CODE,
            "dj": {"description": "1: the parts of the answer have names."},
        },
        required=("q", "tl"),
        example={"q": GERMAN, "sl": "auto", "tl": "en"},
        methods=("GET", "POST"),
    ),
    ToolShape(
        name="apertium",
        plugins=("apertium",),
        path="/apertium/translate",
        read=_read_apertium,
        write=_write_apertium,
        fields={
            "q": TEXT,
            "langpair": {"type": "string", SERVED: "pair", "description": "Two codes, such as de|en."},
            "deformat": {"description": "txt: tags are text. HTML is Apertium's default."},
        },
        required=("q", "langpair"),
        kinds=(FORM,),
        example={"q": GERMAN, "langpair": "de|en"},
        methods=("GET", "POST"),
    ),
)
