"""The models of a service by name, and which of them, or which two, answer a request.

A name is a model's own, or "NAME@SOURCE:TARGET" for another of its directions, or two of these with "+"
between, of which the second reads the first's answers. Names are parsed here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.answers.directions import AT, Directions, name_of, parse_direction, toward
from engine.answers.text_model import TextModel
from engine.errors import UnknownModel
from engine.repository.loading import ModelInfo

TOKEN_CHARACTERS: Final = 4  # of a token of English, about
CHARACTER_VOCABULARY: Final = 400  # a vocabulary of so few tokens is one of characters
PIVOT_SIGN: Final = "+"  # between the names of two models, of which the second reads the first's answers


@dataclass(frozen=True, slots=True)
class Leg:
    """A model, and those of its directions that it was asked for in; the first is meant."""

    info: ModelInfo
    directions: Directions

    @property
    def source(self) -> str:
        return self.directions.sources[0]

    @property
    def target(self) -> str:
        return self.directions.targets[0]

    @property
    def name(self) -> str:
        """The model's own where the direction is its usual one."""
        return name_of(self.info.name, self.info.directions, self.source, self.target)

    def in_direction(self, source: str | None, target: str | None) -> Leg:
        """Return the same in one direction; None: the usual language."""
        return Leg(self.info, Directions((source or self.source,), (target or self.target,)))

    def toward(self, text: TextModel) -> TextModel:
        """Return the model's text side, for this direction."""
        usual = (self.source, self.target) == (text.source, text.target)
        return text if usual else toward(text, self.source, self.target)


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The model that answers, or two, of which the second reads the first's answers."""

    legs: tuple[Leg, ...]

    @property
    def name(self) -> str:
        return PIVOT_SIGN.join(leg.name for leg in self.legs)

    @property
    def infos(self) -> list[ModelInfo]:
        """The models, in the order of their work."""
        return [leg.info for leg in self.legs]

    @property
    def keeps_phrases(self) -> bool:
        """Whether every model has symbols for what must stay as it is."""
        return all(leg.info.placeholders for leg in self.legs)

    def serves(self, task: str, source: str | None, target: str | None) -> bool:
        """Tell whether the route is for a task and languages.

        task: "translate", "summarize" or "language-model".
        source, target: codes of languages; None: any.
        """
        first, last = self.legs[0], self.legs[-1]
        begins = first.directions.fit(source, target if last is first else None)
        return first.info.task == last.info.task == task and begins and last.directions.fit(None, target)

    def in_direction(self, source: str | None, target: str | None) -> ModelRoute:
        """Return a model alone in the direction of these languages (None: the usual one), two as they are."""
        return ModelRoute((self.legs[0].in_direction(source, target),)) if len(self.legs) == 1 else self


def find_info(infos: Sequence[ModelInfo], name: str) -> ModelInfo:
    """Find a model by its own name. Raises UnknownModel."""
    for info in infos:
        if info.name == name:
            return info
    raise UnknownModel(f"no model {name!r}; there are: {', '.join(info.name for info in infos)}")


def find_leg(infos: Sequence[ModelInfo], name: str) -> Leg:
    """Find a model, or one of its directions. Raises UnknownModel."""
    base, at, languages = name.rpartition(AT)
    if not at or all(info.name != base for info in infos):
        info = find_info(infos, name)
        return Leg(info, info.directions)
    info = find_info(infos, base)
    source, target = parse_direction(base, info.directions, languages)
    return Leg(info, Directions((source,), (target,)))


def parse_route(infos: Sequence[ModelInfo], name: str) -> ModelRoute:
    """Parse a name: of a model, or of two such as "de-en+en-fr". Raises UnknownModel."""
    first, then, last = name.partition(PIVOT_SIGN)
    if not then or any(info.name == name for info in infos):
        return ModelRoute((find_leg(infos, name),))
    before, after = find_leg(infos, first), find_leg(infos, last)
    if not (before.info.task == after.info.task == "translate" and before.target == after.source):
        raise UnknownModel(f"model {name!r}: the second does not translate from the first one's target")
    return ModelRoute((before, after))


def choose_route(
    infos: Sequence[ModelInfo], task: str, source: str | None, target: str | None, characters: int = 0
) -> ModelRoute:
    """Choose the first model for a task and languages, else the first two by way of a third language.

    infos: the models, in the order in which they are tried.
    task: "translate", "summarize" or "language-model".
    source, target: codes of languages; None: any.
    characters: length of the longest text; a summarizer that is likely to read so many is preferred.

    Raises UnknownModel that says what there is.
    """
    able = [Leg(info, info.directions) for info in infos if info.task == task]
    fitting = [leg for leg in able if leg.directions.fit(source, target)]
    if fitting:
        most = max(fitting, key=_reads) if task == "summarize" else fitting[0]
        leg = next((leg for leg in fitting if characters <= _reads(leg)), most)
        return ModelRoute((leg.in_direction(source, target),))
    if task == "translate" and source and target and source != target:
        pivots = _pivots(able, source, target)
        if (pivot := next(pivots, None)) is not None:
            return pivot
    listing = ", ".join(f"{i.name} ({i.task} {i.source} to {i.target})" for i in infos)
    raise UnknownModel(f"no model can {purpose(task, source, target)}; there are: {listing}")


def _pivots(able: Sequence[Leg], source: str, target: str) -> Iterator[ModelRoute]:
    """Two models, one after the other, by way of every language that they share."""
    for before in (leg for leg in able if leg.directions.fit(source, None)):
        for after in able:
            for between in before.directions.targets:
                if before.directions.fit(source, between) and after.directions.fit(between, target):
                    legs = before.in_direction(source, between), after.in_direction(between, target)
                    yield ModelRoute(legs)


def _reads(leg: Leg) -> int:
    """How many characters a model is likely to read at once."""
    limits = leg.info.limits
    return limits.source * (1 if limits.vocab <= CHARACTER_VOCABULARY else TOKEN_CHARACTERS)


def purpose(task: str, source: str | None, target: str | None) -> str:
    """Say a task and its languages.

    task: a verb.
    source, target: codes of languages; None: any.
    """
    languages = f" from {source or 'any language'} to {target or 'any language'}"
    return task + languages * bool(source or target)
