"""Options of an answer: what a caller may set, checked against the abilities of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

from engine.errors import InvalidRequest, TooLarge
from engine.text.newlines import MODES
from engine.types import DecodeOptions, Limits, option

if TYPE_CHECKING:  # commands read the options before they load anything heavy
    from engine.answers.text_model import TextModel

OPTIONS: Final = frozenset(f.name for f in fields(DecodeOptions))
STRATEGIES: Final = ("truncate", "parts", "refine")
PREFIX_CHARACTERS_PER_TOKEN: Final = 16
# decoding options that are made of texts and of the model's languages
TEXTUAL_OPTIONS: Final = frozenset({"prefix", "free_prefix", "quotas"})


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How texts are answered. Callers may set the fields with a sentence, some for one task only.

    decode: overrides of the model's DecodeOptions by field name.
    alternatives: number of further hypotheses; the beam grows with them unless `decode` names a beam_size.
    numerals: code of the language that amounts are written in; "": the target language.
    wraps: whether an answer is wrapped as its source; the first answer of a pivot is not.
    """

    decode: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = option("", "Text that the answer begins with.")
    alternatives: int = 0
    alignment: bool = option(False, "Also answer the cross-attention of each sentence.")
    split: bool = option(
        True, "Translate sentence by sentence; off: each text is one source.", task="translate"
    )
    truncate: bool = option(
        False, "Shorten a text that must stay whole and is too long; otherwise it is refused."
    )
    strategy: str | None = option(
        None,
        "How to summarize a text that is too long: truncate reads its beginning; parts joins the summaries "
        "of its parts; refine summarizes those again until one is left. Otherwise the text is refused.",
        task="summarize",
        values=STRATEGIES,
    )
    coverage: bool = option(False, "Also answer which source words nothing attended to.")
    # by the bundle's dictionary of such words, where it has one
    replace_unk: bool = option(
        False, "Replace unknown words by the source words that they attend to most.", task="translate"
    )
    ignore: tuple[str, ...] = option((), "Phrases to keep as they are, as whole words.", task="translate")
    glossary: Mapping[str, str] = option(
        dict,
        "Source phrases with their translations, also with capitals: `station|stations`; `=IT`: exact.",
        task="translate",
    )
    protect: bool = option(
        False,
        "Keep addresses, numbers, emoji and fields of formats (%s, {name}) as they are; read words in "
        "CAPITALS in small letters, and clauses between dashes one by one.",
        task="translate",
    )
    local_numbers: bool = option(
        False,
        "Write amounts as the target language does (1.234,56 € as €1,234.56); with protect.",
        task="translate",
    )
    numerals: str = ""
    wraps: bool = True
    follow_form: bool = option(
        False, "Give the answer the capitals and final marks of its source.", task="translate"
    )
    newlines: str = option(
        "keep",
        "Line breaks within a paragraph: keep ends a sentence at each; join reads the lines as one; auto "
        "reads long lines as one that go on in small letters, and wraps the answer again.",
        task="translate",
        values=MODES,
    )
    raw: bool = option(
        False,
        "The model reads each text as it is, as one source, and its answer stays as it is: split, protect, "
        "local_numbers, follow_form and newlines do not count.",
        task="translate",
    )

    @property
    def cuts(self) -> bool:
        """Whether a text that is too long is cut into parts."""
        return self.strategy in ("parts", "refine")


# defaults of commands and HTTP requests, by task
USUAL_OPTIONS: Final[Mapping[str, TextOptions]] = {
    "translate": TextOptions(protect=True, follow_form=True, newlines="auto"),
    "summarize": TextOptions(split=False),
}


class OfferedOption(NamedTuple):
    """A field of TextOptions that callers may set.

    kind: type of the values.
    default: value of an option that the caller leaves out.
    help: description of the option.
    values: valid values; empty: all values of the type.
    """

    name: str
    kind: Any
    default: Any
    help: str
    values: tuple[str, ...] = ()


@cache
def offered_options(task: str) -> Sequence[OfferedOption]:
    """List the options that callers may set for a task: "translate" or "summarize"."""
    kinds, usual = get_type_hints(TextOptions), USUAL_OPTIONS[task]
    return [
        OfferedOption(name, kinds[name], getattr(usual, name), known["help"], known.get("values", ()))
        for name, known in ((f.name, f.metadata) for f in fields(TextOptions))
        if "help" in known and known.get("task", task) == task
    ]


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """TextOptions with the defaults of a model, checked against the abilities of the model.

    decode: decoding options of each source.
    prefix: token ids that the first sentence's target begins with.
    split: whether a text is translated sentence by sentence.
    alignment: whether the result has the alignment; `decode` may need attention for other reasons.
    coverage: whether the result has the coverage of source words.
    replace_unk: whether unknown target words become source words.
    protect: whether numbers, addresses and other placeables stay as they are.
    follow_form: whether capitals and final marks follow the source.
    newlines: treatment of line breaks, see `engine.text.newlines.unwrap`.
    """

    decode: DecodeOptions
    prefix: tuple[int, ...] = ()
    split: bool = True
    alignment: bool = False
    coverage: bool = False
    replace_unk: bool = False
    protect: bool = False
    follow_form: bool = False
    newlines: str = "keep"


def resolve(model: TextModel, options: TextOptions) -> ResolvedOptions:
    """Resolve options against a model. Raises InvalidRequest on options that the model can't satisfy."""
    tokenizer, begin = model.tokenizer, model.tokenizer.beginning
    decode = decode_options(model.defaults, model.limits, options, begin)
    if options.strategy not in (None, *STRATEGIES):
        raise InvalidRequest(f"strategy {options.strategy!r} is none of {', '.join(STRATEGIES)}")
    if options.newlines not in MODES:
        raise InvalidRequest(f"newlines {options.newlines!r} is none of {', '.join(MODES)}")
    replaces = options.replace_unk or model.replace_unk
    reads = model.task == "translate" and not options.raw  # other texts are passed on as they are
    if replaces and not tokenizer.replaces_unk:
        raise InvalidRequest("only models with dictionaries of words can replace_unk: leave it out")
    prefix = (*begin, *tokenizer.encode_target(options.prefix)) if options.prefix else begin
    # the check of the engine is not enough: a text that is answered without the model reaches no engine
    (replace(decode, prefix=prefix) if options.prefix else decode).check(model.limits)
    attends = decode.alignment or not options.coverage
    return ResolvedOptions(
        decode=decode if attends else replace(decode, alignment=True),
        prefix=prefix,
        split=options.split and reads,
        alignment=decode.alignment,
        coverage=options.coverage,
        replace_unk=replaces,
        protect=options.protect and reads,
        follow_form=options.follow_form and reads,
        newlines=options.newlines if reads else "keep",
    )


def decode_options(
    defaults: DecodeOptions, limits: Limits, options: TextOptions, begin: tuple[int, ...] = ()
) -> DecodeOptions:
    """Return a model's decoding options with the caller's overrides, without prefix; values are not checked.

    defaults, limits: decoding options and limits of the model.
    options: options of the caller.
    begin: tokens that every target begins with.

    Raises InvalidRequest on unknown options, and TooLarge on a prefix that is longer than any target.
    """
    unknown = sorted(set(options.decode) - OPTIONS)
    if unknown:
        raise InvalidRequest(
            f"unknown decoding options {unknown}; known are {sorted(OPTIONS - TEXTUAL_OPTIONS)}"
        )
    if TEXTUAL_OPTIONS & set(options.decode):
        raise InvalidRequest("give the prefix as text, not among the decoding options")
    longest = PREFIX_CHARACTERS_PER_TOKEN * limits.target
    if len(options.prefix) > longest:  # checked first, as tokenizing a long prefix takes seconds
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


def check_kept_phrases(options: TextOptions, model: TextModel) -> None:
    """Raise InvalidRequest if a model can't keep phrases, or on a phrase that is no Unicode."""
    translates = model.task == "translate"
    if not (translates and model.placeholders):
        why = "the model has no placeholder symbols" if translates else "only translations keep phrases"
        raise InvalidRequest(f"{why}: leave out ignore, glossary and marked spans")
    for phrase in (*options.ignore, *options.glossary, *options.glossary.values()):
        check_text(phrase)
