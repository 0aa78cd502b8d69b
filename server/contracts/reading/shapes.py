"""The table of shapes: the formats of requests and answers of each reading tool."""

from __future__ import annotations

import secrets
from typing import Any, Final

from engine.api import InvalidRequest
from server.answering.texts import Translations
from server.contracts.reading.shape import (
    CODE,
    CODE_OR_AUTO,
    CODES_TO_HCFY,
    DETECT,
    TEXT,
    TEXT_LIST,
    ReadingRequest,
    ToolShape,
    first_text,
    source_language,
    text_list,
    text_of,
)
from server.http.openapi import FORM, JSON, SERVED
from server.languages import outward

MAX_ALTERNATIVES: Final = 3  # number of alternatives of DeepLX
HTML_WORDS: Final[dict[Any, bool]] = dict.fromkeys((True, "true", "1"), True) | dict.fromkeys(
    (False, "false", "0"), False
)
HTML: Final = {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": False}
HCFY_SOURCE: Final = {"anyOf": [{"type": "string", SERVED: "hcfy or none"}, {"type": "null"}]}


def _read_deeplx(values: dict[str, Any]) -> ReadingRequest:
    html = values.get("tag_handling") in ("html", "xml")
    source = source_language(values, "source_lang")
    return ReadingRequest(text_of(values, "text"), source, text_of(values, "target_lang"), html=html)


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
    source = source_language(values, "source_lang")
    return ReadingRequest(text_list(values, "text_list"), source, text_of(values, "target_lang"))


def _write_immersive(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {
        "translations": [
            {"detected_source_lang": outward(source), "text": text}
            for source, text in zip(answer.sources, answer.texts, strict=True)
        ]
    }


def _read_kiss(values: dict[str, Any]) -> ReadingRequest:
    texts = text_list(values, "texts") if "texts" in values else text_of(values, "text")
    return ReadingRequest(texts, source_language(values, "from"), text_of(values, "to"))


def _write_kiss(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    items = [
        {"text": text, "src": outward(source)}
        for source, text in zip(answer.sources, answer.texts, strict=True)
    ]
    return items[0] if isinstance(request.texts, str) else {"translations": items}


def _read_mtran(values: dict[str, Any]) -> ReadingRequest:
    texts = text_list(values, "texts") if "texts" in values else text_of(values, "text")
    html = values.get("html")
    if html is not None and (type(html) not in (bool, str) or html not in ("", *HTML_WORDS)):
        raise InvalidRequest("Invalid request: html must be true or false")
    html = HTML_WORDS.get(html, False)
    return ReadingRequest(texts, source_language(values, "from"), text_of(values, "to"), html=html)


def _write_mtran(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {"result": answer.texts[0]} if isinstance(request.texts, str) else {"results": answer.texts}


def _read_hcfy(values: dict[str, Any]) -> ReadingRequest:
    names = text_list(values, "destination")
    target, otherwise = (names + [""])[:2]  # one or two names
    return ReadingRequest(text_of(values, "text"), source_language(values, "source"), target, otherwise)


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
    texts = [texts] if isinstance(texts, str) else text_list(values, "q")
    kind = text_of(values, "format", "html")
    if kind not in ("html", "text"):
        raise InvalidRequest("Invalid Value: format is html or text")
    return ReadingRequest(
        texts, source_language(values, "source"), text_of(values, "target"), html=kind == "html"
    )


def _write_google(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"translatedText": text} for text in answer.texts]
    if request.source == DETECT:
        for item, source in zip(items, answer.sources, strict=True):
            item["detectedSourceLanguage"] = outward(source)
    return {"data": {"translations": items}}


def _read_free_google(values: dict[str, Any]) -> ReadingRequest:
    source, target = source_language(values, "sl"), text_of(values, "tl")
    return ReadingRequest(first_text(values, "q"), source, target, named=values.get("dj") == "1")


def _write_free_google(request: ReadingRequest, answer: Translations) -> Any:
    source = outward(answer.sources[0])
    if request.named:
        return {"sentences": [{"trans": answer.texts[0], "orig": request.texts}], "src": source}
    return [[[answer.texts[0], request.texts, None, None, 1]], None, source, None, None, None, 1, []]


def _read_apertium(values: dict[str, Any]) -> ReadingRequest:
    source, bar, target = text_of(values, "langpair").partition("|")
    if not bar or not source or not target:
        raise InvalidRequest("Invalid request: langpair must be two languages, such as de|en")
    return ReadingRequest(first_text(values, "q"), source, target, html=values.get("deformat") != "txt")


def _write_apertium(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {
        "responseData": {"translatedText": answer.texts[0]},
        "responseDetails": None,
        "responseStatus": 200,
    }


def _read_nllb_serve(values: dict[str, Any]) -> ReadingRequest:
    given = values.get("source")
    texts = [given] if isinstance(given, str) and given else text_list(values, "source")
    return ReadingRequest(texts, source_language(values, "src_lang"), text_of(values, "tgt_lang"))


def _write_nllb_serve(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    source = answer.sources[0] if request.source == DETECT else request.source
    languages = {"src_lang": source, "tgt_lang": request.target}
    seconds = max(result.timings.encode + result.timings.decode for result in answer.results)
    times = {"time_taken": round(seconds, 3), "time_units": "s"}
    return {"source": request.texts, "translation": answer.texts} | languages | times


def _read_nllb_api(values: dict[str, Any]) -> ReadingRequest:
    return ReadingRequest(
        text_of(values, "text"), source_language(values, "source"), text_of(values, "target")
    )


def _write_nllb_api(request: ReadingRequest, answer: Translations) -> dict[str, Any]:
    return {"result": answer.texts[0]}


def _write_nllb_stream(request: ReadingRequest, answer: Translations) -> str:
    """Return one event; its clients join all events."""
    return "".join(f"data: {line}\n" for line in answer.texts[0].splitlines() or [""]) + "\n"


def _read_xunity(values: dict[str, Any]) -> ReadingRequest:
    return ReadingRequest(text_of(values, "text"), source_language(values, "from"), text_of(values, "to"))


def _write_xunity(request: ReadingRequest, answer: Translations) -> str:
    return answer.texts[0]


GERMAN: Final = "Guten Morgen!"
NLLB_FIELDS: Final = {"text": TEXT, "source": CODE_OR_AUTO, "target": CODE}
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
    ToolShape(
        name="nllb_serve",
        plugins=("nllb",),
        path="/nllb/translate",
        read=_read_nllb_serve,
        write=_write_nllb_serve,
        fields={
            "source": {"anyOf": [TEXT, TEXT_LIST], "description": "A text, or several."},
            "src_lang": CODE_OR_AUTO,
            "tgt_lang": CODE,
        },
        required=("source", "tgt_lang"),
        example={"source": [GERMAN], "src_lang": "deu_Latn", "tgt_lang": "eng_Latn"},
        methods=("GET", "POST"),
        claim="/translate",
        claim_field="tgt_lang",
        repeated=("source",),
    ),
    ToolShape(
        name="nllb_api",
        plugins=("nllb",),
        path="/api/v4/translator",
        read=_read_nllb_api,
        write=_write_nllb_api,
        fields=NLLB_FIELDS,
        required=("text", "target"),
        kinds=(JSON,),
        example={"text": GERMAN, "source": "deu_Latn", "target": "eng_Latn"},
        methods=("GET", "POST"),
    ),
    ToolShape(
        name="nllb_api_stream",
        plugins=("nllb",),
        path="/api/v4/translator/stream",
        read=_read_nllb_api,
        write=_write_nllb_stream,
        fields=NLLB_FIELDS,
        required=("text", "target"),
        example={"text": GERMAN, "source": "deu_Latn", "target": "eng_Latn"},
        methods=("GET",),
        media="text/event-stream",
    ),
    ToolShape(
        name="xunity",
        plugins=("xunity",),
        path="/xunity",
        read=_read_xunity,
        write=_write_xunity,
        fields={"text": TEXT, "from": CODE_OR_AUTO, "to": CODE},
        required=("text", "to"),
        example={"text": GERMAN, "from": "de", "to": "en"},
        methods=("GET",),
        media="text/plain",
    ),
)
