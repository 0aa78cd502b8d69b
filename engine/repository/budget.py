"""The decisions of a repository: which uses are granted, which models to load and which to unload.

Nothing here loads or waits. Methods return the `Actions` to take, and `engine.repository.repository` performs
them. Tickets are served in order: if one waits for memory, the models to unload for it get no later tickets.
A model in use is never unloaded; of the other models the least recently used one is unloaded first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """State of a model. Its memory counts in all states except UNLOADED."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


@dataclass(eq=False, slots=True)
class Ticket:
    """A request to use models at the same time, or to unload one.

    names: names of the models.
    unload: whether to unload the model.
    granted: whether the models may be used, or the model is unloaded.
    """

    names: tuple[str, ...]
    unload: bool = False
    granted: bool = False


@dataclass(slots=True)
class Actions:
    """Actions to take.

    granted: tickets that are granted now.
    failed: tickets whose models could not be loaded.
    load: models to load; `finish_load` or `fail_load` has to follow.
    unload: models to unload; `finish_unload` has to follow.
    """

    granted: list[Ticket] = field(default_factory=list)
    failed: list[Ticket] = field(default_factory=list)
    load: list[str] = field(default_factory=list)
    unload: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Model:
    """A model.

    cost: bytes in memory.
    users: number of granted tickets.
    used: value of the budget's clock at the last use.
    """

    cost: int
    state: State = State.UNLOADED
    users: int = 0
    used: int = 0


class Budget:
    """Memory budget of a repository. Not thread-safe."""

    def __init__(self, costs: Mapping[str, int], limit: int | None, loaded: Iterable[str] = ()) -> None:
        """Begin with some models loaded.

        costs: bytes of each model, by name.
        limit: largest sum of bytes of all loaded models; None: no limit.
        loaded: names of models that are in memory already.
        """
        self._models = {name: _Model(cost) for name, cost in costs.items()}
        for name in loaded:
            self._models[name].state = State.LOADED
        self.limit = math.inf if limit is None else limit
        self._queue: list[Ticket] = []
        self._clock = 0

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def add(self, name: str, cost: int, *, loaded: bool) -> None:
        """Add a model.

        name: name of the model.
        cost: bytes of the model in memory.
        loaded: whether the model is in memory already.
        """
        self._models[name] = _Model(cost, State.LOADED if loaded else State.UNLOADED)

    def remove(self, name: str) -> None:
        """Remove a model that is not loaded and that no ticket will name."""
        assert self.state(name) is State.UNLOADED
        del self._models[name]

    def state(self, name: str) -> State:
        return self._models[name].state

    def cost(self, name: str) -> int:
        return self._models[name].cost

    def used_bytes(self) -> int:
        """Return the bytes of all models that are loaded, loading or unloading."""
        return sum(model.cost for model in self._models.values() if model.state is not State.UNLOADED)

    def fits(self, names: Iterable[str]) -> bool:
        """Return whether models fit into the limit together."""
        return sum(self._models[name].cost for name in set(names)) <= self.limit

    def recost(self, name: str, cost: int) -> Actions:
        """Set the bytes of a model."""
        self._models[name].cost = cost
        return self._settle(Actions())

    def acquire(self, ticket: Ticket) -> Actions:
        """Grant a ticket or let it wait. Its models must fit into the limit."""
        actions = Actions()
        if not self._queue and not ticket.unload and self._all_loaded(ticket.names):
            self._grant(ticket, actions)
            return actions
        self._queue.append(ticket)
        return self._settle(actions)

    def release(self, ticket: Ticket) -> Actions:
        """End the use of a ticket, or stop waiting for it. Call this once for each ticket."""
        if ticket in self._queue:
            self._queue.remove(ticket)
        elif ticket.granted and not ticket.unload:
            for name in set(ticket.names):
                self._models[name].users -= 1
                self._touch(name)
        return self._settle(Actions())

    def finish_load(self, name: str) -> Actions:
        """Note that a model is loaded.

        All tickets that wait for it are granted, because otherwise each load would serve one ticket.
        """
        assert self._models[name].state is State.LOADING
        self._models[name].state = State.LOADED
        self._touch(name)
        actions = Actions()
        for ticket in [t for t in self._queue if not t.unload and self._all_loaded(t.names)]:
            self._grant(ticket, actions)
        return self._settle(actions)

    def fail_load(self, name: str) -> Actions:
        """Note that a model could not be loaded: waiting tickets fail, and the next one tries again."""
        assert self._models[name].state is State.LOADING
        self._models[name].state = State.UNLOADED
        waiting = [ticket for ticket in self._queue if name in ticket.names and not ticket.unload]
        self._queue = [ticket for ticket in self._queue if ticket not in waiting]
        return self._settle(Actions(failed=waiting))

    def finish_unload(self, name: str) -> Actions:
        """Note that the memory of a model is free."""
        assert self._models[name].state is State.UNLOADING
        self._models[name].state = State.UNLOADED
        return self._settle(Actions())

    def withdraw_all(self) -> list[Ticket]:
        """Remove and return all waiting tickets."""
        tickets, self._queue = self._queue, []
        return tickets

    def _settle(self, actions: Actions) -> Actions:
        """Add the actions for the waiting tickets, in their order: grant, load and unload."""
        if not self._queue:
            return actions
        # models that earlier tickets need, and models that are to be unloaded for them
        keep, closed = set[str](), set[str]()
        waits = False  # whether an earlier ticket waits for memory
        for ticket in list(self._queue):
            names = set(ticket.names)
            if ticket.unload:
                self._unload(ticket, keep, closed, actions)
            elif names & closed:
                keep |= names
            elif self._all_loaded(names):
                self._grant(ticket, actions)
            else:
                missing = [name for name in sorted(names) if self.state(name) is State.UNLOADED]
                keep |= names
                if missing and not waits:
                    lacking = self.used_bytes() + sum(self.cost(name) for name in missing) - self.limit
                    waits = lacking > 0
                    if waits:
                        self._make_room(lacking, keep, closed, actions)
                    else:
                        self._begin(missing, State.LOADING, actions.load)
        return actions

    def _make_room(self, lacking: float, keep: set[str], closed: set[str], actions: Actions) -> None:
        """Choose models to unload. If all are idle, unload them now; otherwise they get no later tickets.

        lacking: bytes by which the models to load exceed the limit.
        keep: names of models that waiting tickets need.
        closed: names of models that get no later tickets; models are added to it.
        actions: actions to take; models to unload are added to it.
        """
        lacking -= sum(m.cost for m in self._models.values() if m.state is State.UNLOADING)
        loaded = [(n, m) for n, m in self._models.items() if m.state is State.LOADED and n not in keep]
        leaving = []
        for name, model in sorted(loaded, key=lambda pair: (pair[1].users > 0, pair[1].used)):
            if lacking <= 0:
                break
            lacking -= model.cost
            leaving.append(name)
        if lacking <= 0 and not any(self._models[name].users for name in leaving):
            self._begin(leaving, State.UNLOADING, actions.unload)
        else:
            closed.update(leaving)

    def _unload(self, ticket: Ticket, keep: set[str], closed: set[str], actions: Actions) -> None:
        """Unload the model of a ticket if it is idle and not in `keep`, or close it to later tickets."""
        (name,) = ticket.names
        model = self._models[name]
        if name not in keep:
            if model.state is State.LOADED and not model.users:
                self._begin([name], State.UNLOADING, actions.unload)
            elif model.state is State.UNLOADED:
                self._grant(ticket, actions)
                return
        closed.add(name)

    def _begin(self, names: list[str], state: State, actions: list[str]) -> None:
        for name in names:
            self._models[name].state = state
            actions.append(name)

    def _all_loaded(self, names: Iterable[str]) -> bool:
        return all(self._models[name].state is State.LOADED for name in names)

    def _grant(self, ticket: Ticket, actions: Actions) -> None:
        """Grant a ticket, and count it as a user of its models."""
        if ticket in self._queue:
            self._queue.remove(ticket)
        ticket.granted = True
        actions.granted.append(ticket)
        if not ticket.unload:
            for name in set(ticket.names):
                self._models[name].users += 1
                self._touch(name)

    def _touch(self, name: str) -> None:
        self._clock += 1
        self._models[name].used = self._clock


def too_large(names: Iterable[str], cost: int, limit: int) -> str:
    """Return the error that models need more memory than the budget has.

    names: names of the models.
    cost: bytes of all of them.
    limit: bytes of the budget.
    """
    them = " and ".join(repr(name) for name in names)
    return f"{them}: about {cost >> 20} MiB of memory, the budget is {limit >> 20} MiB: raise model_budget"
