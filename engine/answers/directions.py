"""The text side of a bundle, and the directions (source and target language) of models of several languages.

Requests name a direction other than the usual one as "NAME@SOURCE:TARGET" wherever they may name a model.
Languages are listed by codes of two letters if they have one; requests may use either code.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from engine.answers.text_model import TextModel
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import Unavailable, UnknownModel
from engine.text.codes import by_short_code, short
from engine.text.known_words import read_known_words
from engine.text.placeables.markup import compile_patterns
from engine.text.tokenizers.characters import CodePoints
from engine.text.tokenizers.mapped_pieces import MappedPieces
from engine.text.tokenizers.marian import Marian
from engine.text.tokenizers.placeholder_words import read_placeholder_words
from engine.text.tokenizers.tokenizer import Tokenizer, open_tokenizer
from engine.text.words import read_words
from engine.types import DecodeOptions, Limits

AT: Final = "@"  # separates the name of a model from a direction
TO: Final = ":"  # separates the two languages of a direction


@dataclass(frozen=True, slots=True)
class Directions:
    """Languages of a model, the usual ones first. Any source goes with any other target."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def within(self, codes: Collection[str]) -> Directions:
        """Return the directions between languages that are among `codes`."""
        languages = {short(code) for code in codes}
        sources = tuple(code for code in self.sources if code in languages)
        return Directions(sources, tuple(code for code in self.targets if code in languages))

    @property
    def empty(self) -> bool:
        return not (self.sources and self.targets)

    def fit(self, source: str | None, target: str | None) -> bool:
        """Return whether there is a direction with these languages.

        source, target: codes of languages; None: any.
        """
        source, target = source and short(source), target and short(target)
        if source is not None and source == target and max(len(self.sources), len(self.targets)) > 1:
            return False
        return source in (None, *self.sources) and target in (None, *self.targets)


@dataclass(frozen=True, slots=True)
class Language:
    """A source language with its targets, or a target language, which has none.

    code: code of the language.
    targets: target languages; first the targets of one model, then the targets through two models.
    pivots: targets that need two models, each with the language between.
    """

    code: str
    targets: tuple[str, ...]
    pivots: tuple[tuple[str, str], ...] = ()


def directions_of(bundle: Bundle) -> Directions:
    """Return the languages of a bundle, its usual source and target first."""
    sources = by_short_code((bundle.source, *bundle.text.get("sources", ())))
    targets = by_short_code((bundle.target, *bundle.text.get("languages", ())))
    return Directions(tuple(sources), tuple(targets))


@lru_cache(maxsize=8)
def languages_of(models: tuple[Directions, ...]) -> tuple[Language, ...]:
    """List the languages of translation models, in the order of the models."""
    targets: dict[str, dict[str, None]] = {}  # ordered sets, as a model may have hundreds of languages
    for directions in models:
        for source in directions.sources:
            into = targets.setdefault(source, {})
            into |= dict.fromkeys(target for target in directions.targets if directions.fit(source, target))
        for target in directions.targets:
            targets.setdefault(target, {})
    languages = []
    for code, into in targets.items():
        pivots: dict[str, str] = {}
        for between in into:
            for last in targets[between].keys() - into.keys() - {code}:
                pivots.setdefault(last, between)
        order = [last for last in targets if last in pivots]
        languages.append(Language(code, (*into, *order), tuple((last, pivots[last]) for last in order)))
    return tuple(languages)


def name_of(model: str, directions: Directions, source: str | None, target: str | None) -> str:
    """Name a direction of a model.

    model: name of the model.
    directions: languages of the model.
    source, target: languages of the direction; None: the usual language.

    The usual direction has the name of the model.
    """
    usual = directions.sources[0], directions.targets[0]
    direction = short(source or usual[0]), short(target or usual[1])
    return model if direction == usual else f"{model}{AT}{direction[0]}{TO}{direction[1]}"


def parse_direction(model: str, directions: Directions, languages: str) -> tuple[str, str]:
    """Read the direction in a name.

    model: name of the model.
    directions: languages of the model.
    languages: "SOURCE:TARGET".

    Returns short codes of source and target. Raises UnknownModel.
    """
    source, to, target = languages.partition(TO)
    if not to or not directions.fit(source, target):
        raise UnknownModel(
            f"model {model!r} does not translate {languages!r}; it does from "
            f"{', '.join(directions.sources)} to {', '.join(directions.targets)}"
        )
    return short(source), short(target)


def toward(model: TextModel, source: str, target: str) -> TextModel:
    """Return a model for another of its directions.

    model: model for any direction.
    source, target: codes of languages in `Directions`.
    """
    tokenizer = model.tokenizer
    if isinstance(tokenizer, Marian):
        code_of = by_short_code(tokenizer.languages)
        if target in code_of:
            tokenizer = tokenizer.into(code_of[target])
    elif isinstance(tokenizer, CodePoints):
        tokenizer = replace(tokenizer, source=source, target=target)
    elif isinstance(tokenizer, MappedPieces):
        code_of = by_short_code(tokenizer.languages)
        tokenizer = tokenizer.between(code_of.get(source, source), code_of.get(target, target))
    return replace(model, source=source, target=target, tokenizer=tokenizer)


def open_side(bundle: Bundle, tokenizer: Tokenizer, defaults: DecodeOptions, limits: Limits) -> TextModel:
    """Open the text side of a bundle, in the bundle's usual direction.

    bundle: bundle of the model.
    tokenizer: tokenizer of the bundle.
    defaults: default decoding options of the model.
    limits: limits of the model.
    """
    compile_patterns()
    return TextModel(
        task=bundle.task,
        source=bundle.source,
        target=bundle.target,
        tokenizer=tokenizer,
        placeholder_words=read_placeholder_words(bundle, tokenizer),
        defaults=defaults,
        limits=limits,
        eos=bundle.config.eos,
        name=bundle.name,
        unk=bundle.config.unk,
        replace_unk=bundle.text.get("replace_unknown") is True,
        truncates=bundle.truncates,
        max_sentence_tokens=bundle.max_sentence_tokens,
        words=read_words(bundle),
        known_words=read_known_words(bundle),
        bundle=(str(bundle.path.absolute()), bundle.digest),
    )


@lru_cache(maxsize=8)
def reopen(
    path: str, digest: str, source: str, target: str, defaults: DecodeOptions, limits: Limits
) -> TextModel:
    """Open a model's text side from its bundle, or return the one that was opened before.

    path: folder of the bundle.
    digest: digest of the bundle's files.
    source, target: languages of the model's direction.
    defaults: default decoding options of the model.
    limits: limits of the model.

    Raises BundleError, and Unavailable if the folder has another bundle meanwhile.
    """
    bundle = open_bundle(Path(path), verify=False)
    if bundle.digest != digest:
        raise Unavailable(f"the bundle {path} was replaced during the request: try again")
    return toward(open_side(bundle, open_tokenizer(bundle), defaults, limits), source, target)
