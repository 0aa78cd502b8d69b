"""The decisions of a repository: uses that are granted or wait, models to load and models to unload.

Pure: nothing here loads or waits. Each call returns the actions to take, as `Acts`;
`engine.repository.repository` performs them.
First come, first served: where a call waits for memory, the models that must go for it take no later calls.
A model in use never goes; of the others the least recently used goes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """Of a model. Its memory counts in all but the first."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


@dataclass(eq=False, slots=True)
class Ticket:
    """A use of models, all at once, that is asked for; or the unloading of one.

    names: the models.
    unload: whether the one model is to be unloaded.
    granted: whether the models may be used, or the one is gone.
    """

    names: tuple[str, ...]
    unload: bool = False
    granted: bool = False


@dataclass(slots=True)
class Acts:
    """What is to be done: tickets to tell, models to load (then call `finish_load` or `fail_load`), models to
    unload (then call `finish_unload`)."""

    granted: list[Ticket] = field(default_factory=list)
    failed: list[Ticket] = field(default_factory=list)
    load: list[str] = field(default_factory=list)
    unload: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Model:
    """What is known of a model.

    cost: bytes.
    users: tickets in use.
    used: when last, in calls.
    """

    cost: int
    state: State = State.UNLOADED
    users: int = 0
    used: int = 0


class Budget:
    """Not safe for threads by itself."""

    def __init__(self, costs: Mapping[str, int], limit: int | None, loaded: Iterable[str] = ()) -> None:
        """Begin with some models loaded.

        costs: bytes of each model, by name.
        limit: bytes of all loaded models together; None: any.
        loaded: names of the models that are in memory already.
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
        """Add one more model.

        name: the model's name.
        cost: bytes of the model in memory.
        loaded: whether it is in memory already.
        """
        self._models[name] = _Model(cost, State.LOADED if loaded else State.UNLOADED)

    def remove(self, name: str) -> None:
        """Forget a model that is not loaded, and that nobody will ask for."""
        assert self.state(name) is State.UNLOADED
        del self._models[name]

    def state(self, name: str) -> State:
        return self._models[name].state

    def cost(self, name: str) -> int:
        return self._models[name].cost

    def used_bytes(self) -> int:
        """Count the bytes of all models that are loaded, or partly."""
        return sum(model.cost for model in self._models.values() if model.state is not State.UNLOADED)

    def fits(self, names: Iterable[str]) -> bool:
        """Tell whether these could ever be loaded at once."""
        return sum(self._models[name].cost for name in set(names)) <= self.limit

    def recost(self, name: str, cost: int) -> Acts:
        """Set what the model takes from now on."""
        self._models[name].cost = cost
        return self._settle(Acts())

    def ask(self, ticket: Ticket) -> Acts:
        """Grant the ticket at once, or let it wait; only for models that `fits` is true of."""
        acts = Acts()
        if not self._queue and not ticket.unload and self._here(ticket.names):
            self._grant(ticket, acts)
            return acts
        self._queue.append(ticket)
        return self._settle(acts)

    def leave(self, ticket: Ticket) -> Acts:
        """End a use, or stop waiting for the ticket. Call this once for each ticket."""
        if ticket in self._queue:
            self._queue.remove(ticket)
        elif ticket.granted and not ticket.unload:
            for name in set(ticket.names):
                self._models[name].users -= 1
                self._touch(name)
        return self._settle(Acts())

    def finish_load(self, name: str) -> Acts:
        """Note that a model is loaded.

        All who wait for it by now get it, or each load would serve one of them.
        """
        assert self._models[name].state is State.LOADING
        self._models[name].state = State.LOADED
        self._touch(name)
        acts = Acts()
        for ticket in [t for t in self._queue if not t.unload and self._here(t.names)]:
            self._grant(ticket, acts)
        return self._settle(acts)

    def fail_load(self, name: str) -> Acts:
        """Note that a model could not be loaded: waiting tickets fail, the next use tries again."""
        assert self._models[name].state is State.LOADING
        self._models[name].state = State.UNLOADED
        waiting = [ticket for ticket in self._queue if name in ticket.names and not ticket.unload]
        self._queue = [ticket for ticket in self._queue if ticket not in waiting]
        return self._settle(Acts(failed=waiting))

    def finish_unload(self, name: str) -> Acts:
        """Note that a model's memory is free."""
        assert self._models[name].state is State.UNLOADING
        self._models[name].state = State.UNLOADED
        return self._settle(Acts())

    def give_up(self) -> list[Ticket]:
        """Take back all that wait."""
        tickets, self._queue = self._queue, []
        return tickets

    def _settle(self, acts: Acts) -> Acts:
        """Do for each ticket what can be done, in the order in which they came."""
        if not self._queue:
            return acts
        keep, closed = set[str](), set[str]()  # by earlier tickets: models to keep, and those that must go
        waits = False  # an earlier one, for memory
        for ticket in list(self._queue):
            names = set(ticket.names)
            if ticket.unload:
                self._unload(ticket, keep, closed, acts)
            elif names & closed:
                keep |= names
            elif self._here(names):
                self._grant(ticket, acts)
            else:
                missing = [name for name in sorted(names) if self.state(name) is State.UNLOADED]
                keep |= names
                if missing and not waits:
                    lacking = self.used_bytes() + sum(self.cost(name) for name in missing) - self.limit
                    waits = lacking > 0
                    if waits:
                        self._make_room(lacking, keep, closed, acts)
                    else:
                        self._begin(missing, State.LOADING, acts.load)
        return acts

    def _make_room(self, lacking: float, keep: set[str], closed: set[str], acts: Acts) -> None:
        """Choose who goes: if all of them are idle they go now, else they take no later calls."""
        lacking -= sum(m.cost for m in self._models.values() if m.state is State.UNLOADING)
        loaded = [(n, m) for n, m in self._models.items() if m.state is State.LOADED and n not in keep]
        leaving = []
        for name, model in sorted(loaded, key=lambda pair: (pair[1].users > 0, pair[1].used)):
            if lacking <= 0:
                break
            lacking -= model.cost
            leaving.append(name)
        if lacking <= 0 and not any(self._models[name].users for name in leaving):
            self._begin(leaving, State.UNLOADING, acts.unload)
        else:
            closed.update(leaving)

    def _unload(self, ticket: Ticket, keep: set[str], closed: set[str], acts: Acts) -> None:
        (name,) = ticket.names
        model = self._models[name]
        if name not in keep:
            if model.state is State.LOADED and not model.users:
                self._begin([name], State.UNLOADING, acts.unload)
            elif model.state is State.UNLOADED:
                self._grant(ticket, acts)
                return
        closed.add(name)

    def _begin(self, names: list[str], state: State, acts: list[str]) -> None:
        for name in names:
            self._models[name].state = state
            acts.append(name)

    def _here(self, names: Iterable[str]) -> bool:
        return all(self._models[name].state is State.LOADED for name in names)

    def _grant(self, ticket: Ticket, acts: Acts) -> None:
        if ticket in self._queue:
            self._queue.remove(ticket)
        ticket.granted = True
        acts.granted.append(ticket)
        if not ticket.unload:
            for name in set(ticket.names):
                self._models[name].users += 1
                self._touch(name)

    def _touch(self, name: str) -> None:
        self._clock += 1
        self._models[name].used = self._clock
