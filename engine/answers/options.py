"""How texts are answered: what a caller may ask for, checked against what a model can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from engine.answers.text_model import TextModel
from engine.errors import InvalidRequest, TooLarge
from engine.types import DecodeOptions, Limits

OPTIONS: Final = frozenset(f.name for f in fields(DecodeOptions))
# truncate: the beginning of a text is read. parts: a text is cut at sentence borders, and the summaries of
# the parts are joined. refine: likewise, and the joined summaries are summarized until one part is left
STRATEGIES: Final = ("truncate", "parts", "refine")
# options that are made of texts and of the model's languages
PREFIX_CHARACTERS_PER_TOKEN: Final = 16
TEXTUAL_OPTIONS: Final = frozenset({"prefix", "free_prefix", "quotas"})


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How texts are answered.

    decode: overrides of the model's DecodeOptions by field name.
    prefix: text that the first sentence's target begins with.
    alternatives: number of further hypotheses; the beam grows with them unless `decode` names a beam_size.
    alignment: whether the result has the attention of each sentence.
    split: whether a text is translated sentence by sentence; off, each text is one source. Summaries never
        split.
    truncate: whether a source that is too long is shortened (the result says so) instead of refused.
    strategy: how a text that is too long for one source is summarized (STRATEGIES); None: as `truncate` says.
    coverage: whether the result says which source words nothing attended to.
    replace_unk: whether an unknown target word becomes the source word that it attends to most, by the
        bundle's dictionary of such words or as it stands.
    ignore: phrases that stay as they are, to the letter and as whole words.
    glossary: source phrase to the target phrase in its place, to the letter and as whole words.
    protect: whether whatever is no word stays as it is (`engine.text.placeables`), as far as the model has
        placeholders; a model without placeholders refuses `ignore` and `glossary`.
    local_numbers: whether protected amounts are written as a language does: the target's, or `numerals`.
    numerals: code of the language that amounts are written in; "": the target language.
    follow_form: whether capitals and final marks follow the source (`engine.text.form`), and a sentence in
        capitals is read in small letters.
    raw: whether the model reads each text as it is, as one source, and its answer stays as it is; then split,
        protect, local_numbers and follow_form do not count.
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
    raw: bool = False

    @property
    def cuts(self) -> bool:
        """Whether a text that is too long is cut into parts."""
        return self.strategy in ("parts", "refine")


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """TextOptions with the defaults of a model, checked against what the model can do.

    decode: decoding options of each source.
    prefix: token ids that the first sentence's target begins with.
    split: whether a text is translated sentence by sentence.
    alignment: whether the caller wants the alignment, whatever `decode` asks.
    coverage: whether the caller wants to know which source words got no attention.
    replace_unk: whether unknown target words become source words.
    protect: whether whatever is no word stays as it is.
    follow_form: whether capitals and final marks follow the source.
    """

    decode: DecodeOptions
    prefix: tuple[int, ...] = ()
    split: bool = True
    alignment: bool = False
    coverage: bool = False
    replace_unk: bool = False
    protect: bool = False
    follow_form: bool = False


def resolve(model: TextModel, options: TextOptions) -> ResolvedOptions:
    """Resolve options against a model. Raises InvalidRequest on what the model can not do."""
    tokenizer, begin = model.tokenizer, model.tokenizer.beginning
    decode = decode_options(model.defaults, model.limits, options, begin)
    if options.strategy not in (None, *STRATEGIES):
        raise InvalidRequest(f"strategy {options.strategy!r} is none of {', '.join(STRATEGIES)}")
    replaces, translates = options.replace_unk or model.replace_unk, model.task == "translate"
    if replaces and not tokenizer.replaces_unk:
        raise InvalidRequest("only models with dictionaries of words can replace_unk: leave it out")
    prefix = (*begin, *tokenizer.encode_target(options.prefix)) if options.prefix else begin
    # here, as a text that is answered without the model comes to no engine; the engine checks what comes to
    # it by other ways: scores, and requests of other processes
    (replace(decode, prefix=prefix) if options.prefix else decode).check(model.limits)
    attends = decode.alignment or not options.coverage
    return ResolvedOptions(
        decode=decode if attends else replace(decode, alignment=True),
        prefix=prefix,
        split=options.split and translates and not options.raw,
        alignment=decode.alignment,
        coverage=options.coverage,
        replace_unk=replaces,
        protect=options.protect and translates and not options.raw,
        follow_form=options.follow_form and translates and not options.raw,
    )


def decode_options(
    defaults: DecodeOptions, limits: Limits, options: TextOptions, begin: tuple[int, ...] = ()
) -> DecodeOptions:
    """Return a model's decoding defaults with the caller's, but for the prefix; their values are not checked.

    defaults, limits: of the model.
    options: the caller's.
    begin: tokens that every target begins with.

    Raises InvalidRequest on unknown ones, and TooLarge on a prefix that no target could begin with.
    """
    unknown = sorted(set(options.decode) - OPTIONS)
    if unknown:
        raise InvalidRequest(
            f"unknown decoding options {unknown}; known are {sorted(OPTIONS - TEXTUAL_OPTIONS)}"
        )
    if TEXTUAL_OPTIONS & set(options.decode):
        raise InvalidRequest("give the prefix as text, not among the decoding options")
    longest = PREFIX_CHARACTERS_PER_TOKEN * limits.target
    if len(options.prefix) > longest:  # before it is read: a long one takes seconds
        raise TooLarge(f"the prefix has {len(options.prefix)} characters; this model takes at most {longest}")
    if options.alternatives < 0:
        raise InvalidRequest("alternatives must not be negative")
    check_text(options.prefix)
    values = {"n_best": 1} | dict(options.decode)
    values["n_best"] = max(values["n_best"], options.alternatives + 1)
    values["alignment"] = options.alignment or values.get("alignment", defaults.alignment)
    if "beam_size" not in values:
        values["beam_size"] = max(defaults.beam_size, values["n_best"])
    if 0 < options.alternatives >= values["beam_size"]:
        least = options.alternatives + 1
        raise InvalidRequest(f"{options.alternatives} alternatives need a beam_size of at least {least}")
    return replace(defaults, **values, prefix=begin, free_prefix=len(begin))


def check_text(text: str) -> None:
    """Raise InvalidRequest on a text that is no Unicode: half of a surrogate pair may come out of JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the text holds half of a surrogate pair: send valid Unicode") from None
