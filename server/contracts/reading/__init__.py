"""Plug-ins for reading and subtitle tools: shapes.py is the table of formats, made of the parts in shape.py;
routes.py makes the routes.

Users enter this server's address in a tool as one of: DeepLX, Immersive Translate, MTranServer (also Kiss
Translator and hcfy), Google's version 2 and its free form, Apertium (OmegaT), nllb-serve and nllb-api
(Subtitle Edit, Zotero), XUnity.AutoTranslator.
"""

from collections.abc import Collection
from typing import Any, Final

from engine.api import Service
from server.contract import Claim, Codes, Contract, Fault
from server.contracts.reading.routes import reading_router
from server.contracts.reading.shape import CODES_TO_HCFY, DETECT_WORDS
from server.contracts.reading.shapes import SHAPES
from server.languages import outward

TEXT_FIELDS: Final = frozenset({"q", "text", "texts", "text_list", "source_text"})
STATUS_NAMES: Final = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def reading_contracts(plugins: Collection[str]) -> list[Contract]:
    """Return the contract with the routes of some plug-ins, and contracts for other shapes of errors.

    plugins: names from the settings.
    """
    names = frozenset(plugins)
    shapes = [shape for shape in SHAPES if names & set(shape.plugins)]
    if not shapes:
        return []
    claims = [Claim(shape.claim, shape.claim_field, shape.path) for shape in shapes if shape.claim]
    claims += [Claim("/detect", "text", "/mtran/detect")] if "mtran" in names else []
    return [
        Contract(
            (reading_router(names),),
            ("/imme", "/kiss", "/hcfy", "/mtran/*", "/translate/batch", "/nllb/*", "/api/v4/*", "/xunity"),
            open_paths=("/__heartbeat__", "/__lbheartbeat__"),
            claims=tuple(claims),
            text_fields=TEXT_FIELDS,
            codes=_codes,
        ),
        Contract((), ("/deeplx",), _deeplx_error, text_fields=TEXT_FIELDS),
        Contract((), ("/language/translate/*", "/translate_a/*"), _google_error, text_fields=TEXT_FIELDS),
        Contract((), ("/apertium/*",), _apertium_error, text_fields=TEXT_FIELDS),
    ]


def _codes(service: Service) -> Codes:
    """Return the tools' codes of languages, by kind of field."""
    codes = frozenset(outward(language.code) for language in service.languages())
    hcfy = codes | {CODES_TO_HCFY[code] for code in codes & set(CODES_TO_HCFY)}
    pairs = [(language.code, target) for language in service.languages() for target in language.targets]
    return {
        "auto or none": codes | DETECT_WORDS,
        "pair": frozenset(f"{outward(source)}|{outward(target)}" for source, target in pairs),
        "hcfy or none": hcfy | DETECT_WORDS,
    }


def _deeplx_error(fault: Fault) -> dict[str, Any]:
    return {"code": fault.status, "message": fault.message}


def _google_error(fault: Fault) -> dict[str, Any]:
    status = STATUS_NAMES.get(fault.status, "INTERNAL")
    reasons = [{"message": fault.message, "domain": "global", "reason": fault.code or "notFound"}]
    return {"error": {"code": fault.status, "message": fault.message, "errors": reasons, "status": status}}


def _apertium_error(fault: Fault) -> dict[str, Any]:
    return {"status": "error", "code": fault.status, "message": "Error", "explanation": fault.message}
