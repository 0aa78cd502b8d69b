"""Names of models and routes, and the choice of a route: one model, or two models for a pivot translation.

A route is the name of a model, "NAME@SOURCE:TARGET" for another of its directions, or two of these joined by
"+". Only this module parses names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.answers.directions import AT, Directions, name_of, parse_direction, toward
from engine.answers.options import TextOptions, decode_options
from engine.answers.text_model import TextModel
from engine.errors import InvalidRequest, UnknownModel
from engine.repository.loading import ModelInfo
from engine.text.codes import short
from engine.text.placeables.masked_text import MarkedText

TOKEN_CHARACTERS: Final = 4  # characters of an English token, about
CHARACTER_VOCABULARY: Final = 400  # a vocabulary with at most this many tokens consists of characters
PIVOT_SIGN: Final = "+"  # joins the names of two models of a pivot translation


@dataclass(frozen=True, slots=True)
class Leg:
    """A model of a route, with the requested directions; the first one is used."""

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
        """Name of the direction; for the usual direction the name of the model."""
        return name_of(self.info.name, self.info.directions, self.source, self.target)

    def in_direction(self, source: str | None, target: str | None) -> Leg:
        """Return the leg for one direction.

        source, target: codes of languages; None: the usual language.
        """
        return Leg(self.info, Directions((source or self.source,), (target or self.target,)))

    def toward(self, text: TextModel) -> TextModel:
        """Return the text side of the model for this direction."""
        usual = (self.source, self.target) == (text.source, text.target)
        return text if usual else toward(text, self.source, self.target)


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """One model, or two models of which the second reads the answers of the first."""

    legs: tuple[Leg, ...]

    @property
    def name(self) -> str:
        return PIVOT_SIGN.join(leg.name for leg in self.legs)

    @property
    def models(self) -> str:
        """Names of the models without their directions, for labels of metrics: their number is small."""
        return PIVOT_SIGN.join(leg.info.name for leg in self.legs)

    @property
    def infos(self) -> list[ModelInfo]:
        """Models in the order of their work."""
        return [leg.info for leg in self.legs]

    @property
    def keeps_phrases(self) -> bool:
        """Whether every model has placeholders for protected phrases."""
        return all(leg.info.placeholders for leg in self.legs)

    @property
    def is_upstream(self) -> bool:
        """Whether one model of another server answers."""
        return len(self.legs) == 1 and bool(self.legs[0].info.remote)

    def marked(
        self, text: str, spans: Sequence[tuple[int, int]], borders: Iterable[int] = ()
    ) -> str | MarkedText:
        """Return a text as the models read it.

        text: text.
        spans: characters [begin, end) that must not change, for models with placeholders.
        borders: places where a format begins or ends, for an upstream, which has no attention.
        """
        kept = tuple(spans) if self.keeps_phrases else ()
        places = tuple(borders) if self.is_upstream else ()
        return MarkedText(text, kept, places) if kept or places else text

    def serves(self, task: str, source: str | None, target: str | None) -> bool:
        """Return whether the route serves a task and languages.

        task: "translate", "summarize" or "language-model".
        source, target: codes of languages; None: any.
        """
        first, last = self.legs[0], self.legs[-1]
        # of two models, only the last one has to write the target language
        begins = first.directions.fit(source, target if last is first else None)
        return first.info.task == last.info.task == task and begins and last.directions.fit(None, target)

    def in_direction(self, source: str | None, target: str | None) -> ModelRoute:
        """Return the route for a direction; a route of two models is returned unchanged.

        source, target: codes of languages; None: the usual language.
        """
        return ModelRoute((self.legs[0].in_direction(source, target),)) if len(self.legs) == 1 else self


def find_info(infos: Sequence[ModelInfo], name: str) -> ModelInfo:
    """Return the model of a name. Raises UnknownModel."""
    for info in infos:
        if info.name == name:
            return info
    raise UnknownModel(f"no model {name!r}; there are: {', '.join(info.name for info in infos)}")


def find_leg(infos: Sequence[ModelInfo], name: str) -> Leg:
    """Return the model, or the direction of a model, of a name. Raises UnknownModel."""
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
    """Choose the first model for a task and languages, otherwise the first two models with a pivot language.

    infos: models in order of preference; shipped demonstrations come after all others.
    task: "translate", "summarize" or "language-model".
    source, target: codes of languages; None: any.
    characters: length of the longest text; the first summarizer that can probably read it is chosen.

    Raises UnknownModel with a list of the models.
    """
    ordered = sorted(infos, key=lambda info: _rank(info, source, target))
    able = [Leg(info, info.directions) for info in ordered if info.task == task]
    fitting = [leg for leg in able if leg.directions.fit(source, target)]
    if fitting:
        most = max(fitting, key=_readable_characters) if task == "summarize" else fitting[0]
        leg = next((leg for leg in fitting if characters <= _readable_characters(leg)), most)
        return ModelRoute((leg.in_direction(source, target),))
    if task == "translate" and source and target and source != target:
        pivots = _pivots(able, source, target)
        if (pivot := next(pivots, None)) is not None:
            return pivot
    listing = ", ".join(f"{i.name} ({i.task} {i.source} to {i.target})" for i in infos)
    raise UnknownModel(f"no model can {purpose(task, source, target)}; there are: {listing}")


def _rank(info: ModelInfo, source: str | None, target: str | None) -> int:
    """Order models: preferred remote ones, local ones, demonstrations, and other remote ones."""
    if info.remote:
        return 0 if info.is_preferred(source and short(source), target and short(target)) else 3
    return 2 if info.is_demonstration else 1


def local_route(models: Callable[[], Sequence[ModelInfo]], route: ModelRoute) -> ModelRoute | None:
    """Return the route of local models for the direction of a route; None if there is none.

    models: function that returns the models in order of preference.
    route: route with a remote model; a route of local models has no other.
    """
    if not any(info.remote for info in route.infos):
        return None
    try:
        local = [info for info in models() if not info.remote]
        return choose_route(local, "translate", route.legs[0].source, route.legs[-1].target)
    except UnknownModel:
        return None


def _pivots(able: Sequence[Leg], source: str, target: str) -> Iterator[ModelRoute]:
    """Yield the routes of two models with each language that they share as the pivot."""
    for before in (leg for leg in able if leg.directions.fit(source, None)):
        for after in able:
            for between in before.directions.targets:
                if before.directions.fit(source, between) and after.directions.fit(between, target):
                    legs = before.in_direction(source, between), after.in_direction(between, target)
                    yield ModelRoute(legs)


def check_options(infos: Sequence[ModelInfo], options: TextOptions) -> None:
    """Raise InvalidRequest if no translation model can satisfy some options.

    infos: models.
    options: options of the caller.
    """
    fault: InvalidRequest | None = None
    for info in infos:
        if info.task != "translate":
            continue
        try:
            decode_options(info.options, info.limits, options).check(info.limits)
        except InvalidRequest as error:
            fault = fault or error
        else:
            return
    if fault:
        raise fault


def _readable_characters(leg: Leg) -> int:
    """Estimate the number of characters that a model can read at once."""
    limits = leg.info.limits
    return limits.source * (1 if limits.vocab <= CHARACTER_VOCABULARY else TOKEN_CHARACTERS)


def purpose(task: str, source: str | None, target: str | None) -> str:
    """Describe a task with its languages, for error messages.

    task: verb of the task.
    source, target: codes of languages; None: any.
    """
    languages = f" from {source or 'any language'} to {target or 'any language'}"
    return task + languages * bool(source or target)
