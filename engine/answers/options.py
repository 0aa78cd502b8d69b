"""How texts are answered: what a caller may ask for, checked against what a model can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from engine.answers.text_model import TextModel
from engine.errors import InvalidRequest
from engine.types import DecodeOptions

OPTIONS: Final = frozenset(f.name for f in fields(DecodeOptions))
# truncate: its beginning is read. parts: it is cut at sentence borders, and the summaries of the parts are
# joined. refine: likewise, and what was joined is summarized again until one part is left
STRATEGIES: Final = ("truncate", "parts", "refine")
TEXTUAL: Final = frozenset({"prefix", "free_prefix", "quotas"})  # made of texts and of the model's languages


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How texts are answered.

    decode: overrides of the model's DecodeOptions by field name.
    prefix: what the first sentence's target begins with.
    alternatives: further hypotheses wanted; the beam is widened for them unless `decode` names a beam_size.
    split: translate sentence by sentence; off, each text is one source.
    truncate: shorten a source that is too long (the result says so) instead of refusing it. Summaries never
        split.
    strategy: what becomes of a text that is too long for one (STRATEGIES); None: as `truncate` says.
    coverage: say which source words nothing attended to.
    replace_unk: an unknown target word becomes the source word that it attends to most, by the bundle's
        dictionary of such words or as it stands.

    What stays as it is in translations:

    ignore: phrases, to the letter and as whole words.
    glossary: source phrase to target phrase, likewise.
    protect: also addresses, numbers with their signs and units, fields of formats (`%s`, `{name}`), emoji,
        names in networks and words in characters that the model lacks, as far as it has placeholders; without
        them the other two are refused.
    local_numbers: with `protect`, amounts are written as the target language does, or that of `numerals`.
    follow_form: capitals and final marks follow the source (`engine.text.form`), and a sentence in capitals
        is read as if it were none.
    """

    decode: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    alternatives: int = 0
    alignment: bool = False
    split: bool = True
    truncate: bool = False
    strategy: str | None = None
    coverage: bool = False
    replace_unk: bool = False
    ignore: tuple[str, ...] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    local_numbers: bool = False
    numerals: str = ""
    follow_form: bool = False

    @property
    def cuts(self) -> bool:
        """Whether a text that is too long is cut into parts."""
        return self.strategy in ("parts", "refine")


def decode_options(model: TextModel, options: TextOptions) -> DecodeOptions:
    """Return the model's defaults with what was asked for. Raises InvalidRequest on what it can not do."""
    unknown = sorted(set(options.decode) - OPTIONS)
    if unknown:
        raise InvalidRequest(f"unknown decoding options {unknown}; known are {sorted(OPTIONS - TEXTUAL)}")
    if TEXTUAL & set(options.decode):
        raise InvalidRequest("give the prefix as text, not among the decoding options")
    if options.alternatives < 0:
        raise InvalidRequest("alternatives must not be negative")
    check_text(options.prefix)
    values = {"n_best": 1} | dict(options.decode)
    values["n_best"] = max(values["n_best"], options.alternatives + 1)
    values["alignment"] = options.alignment or values.get("alignment", model.defaults.alignment)
    if "beam_size" not in values:
        values["beam_size"] = max(model.defaults.beam_size, values["n_best"])
    if options.alternatives >= values["beam_size"]:
        least = options.alternatives + 1
        raise InvalidRequest(f"{options.alternatives} alternatives need a beam_size of at least {least}")
    begin = model.tokenizer.beginning
    decode = replace(model.defaults, **values, prefix=begin, free_prefix=len(begin))
    decode.check(model.limits)  # here too, so that a text answered without the model is no way around it
    return decode


def check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the text holds half of a surrogate pair: send valid Unicode") from None
