"""The fields of /v2/translate: parsing, validation, and their description in OpenAPI."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict

from engine.api import InvalidRequest
from server.http.openapi import SERVED, lenient, request_of
from server.http.schemas import validate

MAX_TAG_NAMES: Final = 1_000
MAX_NAMED_GLOSSARIES: Final = 5  # of one request
MAX_TAG_NAME_CHARACTERS: Final = 1_024
MAX_TAG_NAMES_CHARACTERS: Final = 65_536  # of a list of names in one text, with commas


def _names(value: Any, most: int = MAX_TAG_NAMES) -> Any:
    """Return the names in a list: an array in JSON, a text with commas in a form."""
    count = value.count(",") + 1 if isinstance(value, str) else len(value) if isinstance(value, list) else 0
    if count > most:  # checked before the names are split
        raise ValueError(f"at most {most} names")
    if isinstance(value, str) and len(value) > MAX_TAG_NAMES_CHARACTERS:
        raise ValueError(f"at most {MAX_TAG_NAMES_CHARACTERS} characters, or an array of names")
    names = value.split(",") if isinstance(value, str) else value
    return [name.strip() for name in names if name.strip()] if _all_texts(names) else names


def _all_texts(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(part, str) for part in parts)


TagName = Annotated[str, Field(max_length=MAX_TAG_NAME_CHARACTERS)]


def _schema_of_names(most: int) -> JsonDict:
    """Return the JSON schema of a list of names."""
    name: JsonDict = {"type": "string", "maxLength": MAX_TAG_NAME_CHARACTERS}
    text: JsonDict = {
        "type": "string",
        "maxLength": MAX_TAG_NAMES_CHARACTERS,
        "description": "With commas between them.",
    }
    return {"anyOf": [{"type": "array", "items": name, "maxItems": most}, text]}


Names = Annotated[list[TagName], BeforeValidator(_names), WithJsonSchema(_schema_of_names(MAX_TAG_NAMES))]
GlossaryNames = Annotated[
    list[TagName],
    BeforeValidator(partial(_names, most=MAX_NAMED_GLOSSARIES)),
    WithJsonSchema(_schema_of_names(MAX_NAMED_GLOSSARIES)),
]


def _splitting_word(value: Any) -> Any:
    """Return a boolean or integer of `split_sentences` as DeepL's text: "0" or "1"."""
    if isinstance(value, bool | int):
        return str(int(value))
    return {"true": "1", "false": "0"}.get(value, value) if isinstance(value, str) else value


SplittingWord = BeforeValidator(_splitting_word)
SENTENCE_SPLITTING: Final[JsonDict] = {
    "anyOf": [
        {"type": "string", "enum": ["0", "1", "nonewlines", ""]},
        {"type": "integer", "enum": [0, 1]},
        {"type": "boolean"},
        {"type": "null"},
    ]
}


class DeepLRequest(BaseModel):
    """Fields of /v2/translate, without `text`, `target_lang` and `source_lang`.

    Answers warn about unknown fields.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    context: str = Field("", description="Accepted; the models read a text by itself.")
    split_sentences: Annotated[Literal["0", "1", "nonewlines"] | None, SplittingWord] = Field(
        None,
        description="0: each text is one sentence. Default 1; nonewlines with tag_handling=html.",
        json_schema_extra=SENTENCE_SPLITTING,
    )
    preserve_formatting: bool = Field(False, description="Keep case at the start and marks at the end.")
    # "more" and "less" are valid values, refused with DeepL's own error
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] = Field(
        "default", json_schema_extra={"enum": ["default", "prefer_more", "prefer_less", ""]}
    )
    model_type: str | None = None
    tag_handling: Literal["xml", "html"] | None = Field(
        None, json_schema_extra={"anyOf": [{"type": "string", "enum": ["xml", "html", ""]}, {"type": "null"}]}
    )
    outline_detection: bool = Field(True, description="XML: find the tags that split by the structure.")
    splitting_tags: Names = []
    non_splitting_tags: Names = []
    ignore_tags: Names = Field([], description="Tags whose content is not translated.")
    glossary_id: str | None = Field(None, description="One of /v2/glossaries; needs `source_lang`.")
    glossary_ids: GlossaryNames = Field([], description="Several; the first that has a phrase counts.")
    show_billed_characters: bool = True
    partial: bool = Field(
        False,
        description="Convoy's own: translate the texts that can be; others have a `message` and no text.",
    )


READ: Final = frozenset((*DeepLRequest.model_fields, "text", "target_lang", "source_lang"))
BOOLEANS: Final = frozenset({"preserve_formatting", "outline_detection", "show_billed_characters", "partial"})
UNMET: Final = {"context": "has no effect: the models read a text by itself"}


TRANSLATE_FIELDS: Final = {
    "text": {
        "anyOf": [
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            {"type": "string", "minLength": 1},
        ],
        "description": "Texts; in a form, `text` several times.",
    },
    "target_lang": {"type": "string", SERVED: "deepl target"},
    "source_lang": {
        "anyOf": [{"type": "string", SERVED: "deepl source"}, {"type": "null"}],
        "description": "Default: detected for each text.",
    },
} | lenient(DeepLRequest.model_json_schema()["properties"], null=True)


TRANSLATE_BODY: Final = request_of(
    TRANSLATE_FIELDS,
    ["text", "target_lang"],
    {"text": ["Guten Morgen!"], "source_lang": "DE", "target_lang": "EN-GB"},
    repeated=("text",),
)


def texts_of(values: dict[str, Any]) -> list[str]:
    """Return the texts of a request. Raises InvalidRequest when there are none, or other values."""
    texts = values.get("text")
    if not texts:
        raise InvalidRequest("Parameter 'text' not specified.")
    texts = [texts] if isinstance(texts, str) else texts
    if not _all_texts(texts):
        raise InvalidRequest("Value for 'text' not supported: send an array of strings.")
    return list(texts)


def validated_fields(values: dict[str, Any]) -> DeepLRequest:
    """Return the validated fields of a request; null, and "" in the place of a text, are as if absent.

    Raises InvalidRequest, in DeepL's words where it has them.
    """
    fields = validate(
        DeepLRequest, {name: value for name, value in values.items() if value not in (None, "")}
    )
    if fields.formality in ("more", "less"):
        raise InvalidRequest("'formality' is not supported for given 'target_lang'.")
    if fields.glossary_id and fields.glossary_ids:
        raise InvalidRequest("Parameters 'glossary_id' and 'glossary_ids' can't be used together.")
    return fields
