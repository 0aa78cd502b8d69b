"""Request bodies for /docs: the routes read them by themselves, as clients send them in several forms."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

TEXTS: Final = {
    "description": "A text, or in JSON an array of texts.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}
CODES: Final = {
    "source": {"type": "string", "description": 'Language code, or "auto".', "examples": ["de"]},
    "target": {"type": "string", "description": "Language code.", "examples": ["en"]},
    "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
}


def body_of(model: type[BaseModel] | None = None, codes: tuple[str, ...] = ()) -> dict[str, Any]:
    """OpenAPI of a body with `q`, some `codes` and the fields of `model`; JSON and form alike."""
    schema: dict[str, Any] = {"type": "object", "required": ["q"], "properties": {"q": TEXTS}}
    schema["properties"] |= {name: CODES[name] for name in codes}
    schema["required"] += [name for name in codes if name != "format"]
    if model is not None:
        schema["properties"]["alternatives"] = {"type": "integer", "minimum": 0, "default": 0}
        schema["properties"] |= model.model_json_schema()["properties"]
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
