"""The rules of the routing by confidence, and their budgets: which sentences a second model may answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.answers.routing.doubts import Doubts
from engine.errors import ConfigError
from engine.repository.catalogue import ModelRoute
from engine.repository.loading import ModelInfo, ServiceSettings
from engine.repository.upstreams.settings import ROUTING, number, read_tables
from engine.text.codes import short

MOST_CREDIT: Final = 100.0  # sentences that quiet hours may leave for a busy one
FAILURES: Final = 3  # failed requests in a row after which the second model is left alone
PAUSE_SECONDS: Final = 30.0
ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Rule:
    """Routing of one direction.

    source, target: codes of the languages.
    second: name of the model for sentences in doubt.
    doubts: limits of the first model's answers.
    share: largest share of all sentences that the second model answers.
    requests: largest number of sentences a second; None: no limit.
    timeout: longest time of an answer of the second model, in seconds.
    first: name of the first model; "": any other model.
    """

    source: str
    target: str
    second: str
    doubts: Doubts
    share: float = 0.2
    requests: float | None = None
    timeout: float = 10.0
    first: str = ""

    def fits(self, model: str) -> bool:
        """Return whether answers of a model are routed."""
        return model == self.first if self.first else model != self.second


# lowest and highest value of the numbers of a rule
NUMBER_ENTRIES: Final[Mapping[str, tuple[float, float]]] = {
    "score": (-100.0, 0.0),
    "repeated": (0.0, 1.0),
    "missed": (0.0, 1.0),
    "share": (0.0, 1.0),
    "requests": (0.001, 1e6),
    "timeout": (0.1, 3_600.0),
}
OF_DOUBTS: Final = ("score", "repeated", "missed")
MODEL_ENTRIES: Final = ("first", "second")


def read_rules(path: Path | None, processes: int = 1) -> tuple[Rule, ...]:
    """Read the rules of a TOML file: tables such as [routing."de:en"].

    path: file with the settings of upstreams; None: there are no rules.
    processes: number of processes that share the budgets.

    Raises ConfigError that names the entry and the remedy.
    """
    if path is None:
        return ()
    tables = read_tables(path).get(ROUTING, {})
    if not isinstance(tables, dict):
        raise ConfigError(f'{path}: {ROUTING} must have tables such as [{ROUTING}."de:en"]')
    rules = [_rule(f"{path}: [{ROUTING}.{name!r}]", name, table) for name, table in tables.items()]
    return tuple(
        replace(rule, requests=rule.requests / processes) if rule.requests else rule for rule in rules
    )


def known_rules(settings: ServiceSettings, names: Collection[str]) -> tuple[Rule, ...]:
    """Read the rules of settings. Raises ConfigError also if a rule names a model that is not served.

    settings: settings of a service.
    names: names of its models.
    """
    rules = read_rules(settings.upstreams, settings.frontends) if settings.frontends else ()
    for rule in () if settings.awaited else rules:
        for name in filter(None, (rule.first, rule.second)):
            if name not in names:
                raise ConfigError(
                    f"the routing from {rule.source} to {rule.target} names the model {name!r}, which is "
                    f"not served; there are: {', '.join(names)}"
                )
    return rules


def _rule(place: str, direction: str, table: Any) -> Rule:
    """Read one table. Raises ConfigError.

    place: file and name of the table, for messages.
    """
    source, colon, target = direction.partition(":")
    if not (source and colon and target) or not isinstance(table, dict):
        raise ConfigError(f'{place} must be a table for a direction, such as [{ROUTING}."de:en"]')
    if unknown := sorted(set(table) - {*NUMBER_ENTRIES, *MODEL_ENTRIES}):
        raise ConfigError(
            f"{place}: unknown entry {unknown[0]!r}; known are {', '.join((*MODEL_ENTRIES, *NUMBER_ENTRIES))}"
        )
    for name in ("second", "score"):
        if name not in table:
            raise ConfigError(f"{place}: {name} is missing; `convoy calibrate` proposes a score")
    for name, value in table.items():
        _check_entry(place, name, value)
    doubts = Doubts(**{name: table[name] for name in OF_DOUBTS if name in table})
    others = {name: value for name, value in table.items() if name not in OF_DOUBTS}
    rule = Rule(short(source), short(target), doubts=doubts, **others)
    if rule.first == rule.second:
        raise ConfigError(f"{place}: first and second are both {rule.first!r}: name two models")
    return rule


def _check_entry(place: str, name: str, value: Any) -> None:
    """Raise ConfigError if an entry has a wrong value."""
    if name in MODEL_ENTRIES:
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{place}: {name} must be the name of a model")
        return
    number(*NUMBER_ENTRIES[name])(f"{place}: {name}", value)


class RouteBudget:
    """The second model of a rule, with the rest of the budget. Any thread may call the methods.

    The share is kept over all sentences so far: N sentences admit at most 1 + share x N of them.
    """

    def __init__(self, rule: Rule, clock: Callable[[], float] = time.monotonic) -> None:
        """Make a full budget.

        rule: rule of the direction.
        clock: function that returns the time in seconds.
        """
        self.rule, self._clock = rule, clock
        self._lock = threading.Lock()
        self._credit = 1.0  # sentences that the share allows
        self._burst = max(1.0, rule.requests or 0.0)
        self._ready, self._counted = self._burst, clock()  # sentences that the rate allows, and since when
        self._failures, self._paused = 0, -float("inf")

    @property
    def name(self) -> str:
        return self.rule.second

    @property
    def doubts(self) -> Doubts:
        return self.rule.doubts

    @property
    def timeout(self) -> float:
        return self.rule.timeout

    def admit(self, sentences: int, doubted: int) -> int:
        """Return how many sentences in doubt the budget allows, and take these from it.

        sentences: number of sentences that the first model answered.
        doubted: number of sentences in doubt.
        """
        with self._lock:
            now = self._clock()
            self._credit = min(MOST_CREDIT, self._credit) + self.rule.share * sentences
            allowed = self._credit
            if self.rule.requests is not None:
                gained = (now - self._counted) * self.rule.requests
                self._ready, self._counted = min(self._burst, self._ready + gained), now
                allowed = min(allowed, self._ready)
            if now < self._paused or not self.rule.share:
                return 0
            count = min(doubted, int(allowed + ROUNDING))
            self._credit -= count
            self._ready -= count
            return count

    def finish(self, *, answered: bool) -> None:
        """Record the end of a request. After FAILURES in a row the second model is left alone for a while.

        answered: whether the second model gave an answer in time.
        """
        with self._lock:
            self._failures = 0 if answered else self._failures + 1
            if self._failures >= FAILURES:
                self._paused = self._clock() + PAUSE_SECONDS


class Router:
    """The budgets of all rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """rules: rules of the settings, one for each direction."""
        self._budgets = {(rule.source, rule.target): RouteBudget(rule) for rule in rules}

    def budget_of(self, route: ModelRoute) -> RouteBudget | None:
        """Return the budget of the second model of a route, None if its answers are not routed."""
        if not self._budgets or len(route.legs) != 1:
            return None
        (leg,) = route.legs
        budget = self._budgets.get((leg.source, leg.target))
        return budget if budget and leg.info.task == "translate" and budget.rule.fits(leg.info.name) else None

    def second_of(self, route: ModelRoute, models: Callable[[], Sequence[ModelInfo]]) -> ModelInfo | None:
        """Return the model that is asked for sentences in doubt of a route; None: there is none.

        route: route of a request.
        models: function that returns the models.
        """
        budget = self.budget_of(route)
        return next((info for info in models() if info.name == budget.name), None) if budget else None
