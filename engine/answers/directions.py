"""Models of several languages: which they translate between, and the name of one direction of theirs.

A direction other than the usual one is asked for as "NAME@SOURCE:TARGET", wherever a model may be named.
Languages are offered by codes of two letters where there are such, and asked for by either.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.bundle import Bundle
from engine.errors import UnknownModel
from engine.plan import TextModel
from engine.text.codes import listed, short
from engine.text.marian import Marian

AT: Final = "@"  # between a model's name and a direction
TO: Final = ":"  # between its two languages


@dataclass(frozen=True, slots=True)
class Directions:
    """All languages of a model, the usual ones first: any source goes with any other target."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def within(self, codes: Collection[str]) -> Directions:
        """Those of the languages that are among `codes`."""
        wanted = {short(code) for code in codes}
        sources = tuple(code for code in self.sources if code in wanted)
        return Directions(sources, tuple(code for code in self.targets if code in wanted))

    @property
    def empty(self) -> bool:
        return not (self.sources and self.targets)

    def fit(self, source: str | None, target: str | None) -> bool:
        """Whether there is a direction with these; None: any."""
        source, target = source and short(source), target and short(target)
        if source is not None and source == target and max(len(self.sources), len(self.targets)) > 1:
            return False
        return source in (None, *self.sources) and target in (None, *self.targets)


@dataclass(frozen=True, slots=True)
class Language:
    """A language that texts may be translated from or, with no targets, only into. targets: those of one
    model first. pivots: the targets that take two models, each with the language between."""

    code: str
    targets: tuple[str, ...]
    pivots: tuple[tuple[str, str], ...] = ()


def directions_of(bundle: Bundle) -> Directions:
    """Languages of a bundle; its own source and target first."""
    sources = listed((bundle.source, *bundle.text.get("sources", ())))
    targets = listed((bundle.target, *bundle.text.get("languages", ())))
    return Directions(tuple(sources), tuple(targets))


def languages_of(models: Sequence[Directions]) -> list[Language]:
    """Every language of translating models, in their order."""
    targets: dict[str, list[str]] = {}
    for directions in models:
        for source in directions.sources:
            into = targets.setdefault(source, [])
            for target in directions.targets:
                if target not in into and directions.fit(source, target):
                    into.append(target)
                targets.setdefault(target, [])
    found = []
    for code, into in targets.items():
        pivots: dict[str, str] = {}
        for between in into:
            for last in targets[between]:
                if last != code and last not in into:
                    pivots.setdefault(last, between)
        found.append(Language(code, (*into, *pivots), tuple(pivots.items())))
    return found


def name_of(model: str, directions: Directions, source: str | None, target: str | None) -> str:
    """The name of a model's direction: its own where that is the usual one."""
    usual = directions.sources[0], directions.targets[0]
    wanted = short(source or usual[0]), short(target or usual[1])
    return model if wanted == usual else f"{model}{AT}{wanted[0]}{TO}{wanted[1]}"


def asked(model: str, directions: Directions, languages: str) -> tuple[str, str]:
    """Source and target of the "SOURCE:TARGET" in a name. Raises UnknownModel."""
    source, to, target = languages.partition(TO)
    if not to or not directions.fit(source, target):
        raise UnknownModel(
            f"model {model!r} does not translate {languages!r}; it does from "
            f"{', '.join(directions.sources)} to {', '.join(directions.targets)}"
        )
    return short(source), short(target)


def toward(model: TextModel, source: str, target: str) -> TextModel:
    """The same model for another of its directions, by the codes that `Directions` has."""
    tokenizer = model.tokenizer
    if isinstance(tokenizer, Marian):
        own = listed(tokenizer.languages)
        if target in own:
            tokenizer = tokenizer.into(own[target])
    return replace(model, source=source, target=target, tokenizer=tokenizer)
