"""The models of a service, some of them in memory: loaded when first used, unloaded for others' sake.

`engine.repository.budget` decides which models to load and unload. Each load and each unload runs in its own
thread, so that it delays only the callers that wait for that model. Methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from engine.answers.canary import canary
from engine.errors import (
    BundleError,
    ConvoyError,
    DeadlineExceeded,
    Stopping,
    Unavailable,
    UnknownModel,
)
from engine.repository.budget import Acts, Budget, State, Ticket
from engine.repository.figures import NO_STATS, RepositoryEntry, together
from engine.repository.heap import trim_heap
from engine.repository.loading import LoadedModel, ModelFacts, ModelInfo, ModelSource
from engine.schedule.any_engine import AnyEngine
from engine.schedule.stats import Stats

logger = logging.getLogger(__name__)

Models = dict[str, LoadedModel]


class Repository:
    """Models that are used by many at once.

    loaded: models in memory, by name; the mapping is replaced, never changed.
    """

    def __init__(
        self,
        facts: Sequence[ModelFacts],
        source: ModelSource,
        limit: int | None = None,
        loaded: Sequence[LoadedModel] = (),
    ) -> None:
        """Begin with some models loaded.

        facts: what is known of every model.
        source: reads facts and opens models.
        limit: bytes of all loaded models together; None: any.
        loaded: models that are open already.
        """
        self._facts = {one.info.name: one for one in facts}
        self._source = source
        self.loaded: Models = {model.info.name: model for model in loaded}
        self._facts |= {name: model.facts for name, model in self.loaded.items()}
        self._budget = Budget({n: f.cost for n, f in self._facts.items()}, limit, self.loaded)
        self._limit = limit
        self._change = threading.Condition(threading.RLock())  # guards all of this
        self._waiting: dict[Ticket, Future[Exception | None]] = {}
        self._held: dict[Ticket, Models] = {}
        self._users = Counter[AnyEngine]()  # tickets that hold it
        self._engines = {name: [model.engine] for name, model in self.loaded.items()}  # the newest last
        self._past = dict.fromkeys(self._facts, NO_STATS)  # of engines that have gone
        self._counts = Counter({(name, "load"): 1 for name in self.loaded})
        self._faults: dict[str, str] = {}
        self._threads = set[threading.Thread]()
        self._reloading = threading.Lock()
        self._open, self._closed = False, False

    def facts(self) -> list[ModelFacts]:
        return list(self._facts.values())

    def entries(self) -> dict[str, RepositoryEntry]:
        with self._change:
            return {name: self._entry(name) for name in self._facts}

    def _entry(self, name: str) -> RepositoryEntry:
        loads, failures, evictions = (self._counts[name, what] for what in ("load", "failure", "eviction"))
        state, cost = self._budget.state(name), self._budget.cost(name)
        seconds, fault = self._facts[name].info.load_seconds, self._faults.get(name, "")
        return RepositoryEntry(state, cost, loads, failures, evictions, seconds, fault)

    def stats(self) -> dict[str, Stats]:
        """Return the stats of every model; what only grows goes on growing when a model is loaded anew."""
        with self._change:
            return {name: self._stats(name) for name in self._facts}

    def _stats(self, name: str) -> Stats:
        total = self._past[name]
        for engine in self._engines.get(name, ()):
            total = together(total, engine.stats())
        return total

    @property
    def healthy(self) -> bool:
        """Whether it takes requests, and every loaded model's thread runs."""
        started = self._open and not self._closed
        return started and all(model.engine.healthy for model in self.loaded.values())

    @property
    def device_lost(self) -> bool:
        """Whether a model's device is lost to this process."""
        return any(model.engine.device_lost for model in self.loaded.values())

    @property
    def stall_seconds(self) -> float:
        """Seconds that the longest turn of an engine has taken so far."""
        with self._change:
            return max((e.stall_seconds for some in self._engines.values() for e in some), default=0.0)

    def start(self) -> None:
        self._open = True
        for model in self.loaded.values():
            model.engine.start()

    def stop(self, *, drain: bool, timeout: float | None) -> bool:
        """See `Service.stop`."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        with self._change:
            self._closed = True
            waiting = [self._waiting.pop(t) for t in self._budget.give_up() if t in self._waiting]
            engines = [engine for some in self._engines.values() for engine in some]
        for future in waiting:
            future.set_result(Stopping())
        for engine in engines:  # none may go on accepting while another drains
            engine.stop(drain=drain, timeout=0)
        for engine in engines:
            engine.stop(drain=drain, timeout=_until(until))
        busy = [s for s in (engine.stats() for engine in engines) if s.waiting_requests or any(s.active)]
        for engine in engines:
            engine.stop(drain=False, timeout=0)
        for thread in list(self._threads):  # a load under way can't be cut short
            thread.join(_until(until))
        return drain and not busy and not waiting

    @contextmanager
    def using(self, names: Sequence[str], deadline: float = math.inf) -> Iterator[Models]:
        """Have the models of these names loaded, and keep them so to the end.

        deadline: a time.monotonic().

        Raises DeadlineExceeded when that takes too long, Unavailable when it can't be, and Stopping.
        """
        ticket = Ticket(tuple(names))
        future = self.ask(ticket)
        try:
            if future:
                wait_for_futures([future], _until(deadline))
            yield self.claim_models(ticket, future)
        finally:
            self.leave(ticket)

    @asynccontextmanager
    async def awaiting(self, names: Sequence[str], deadline: float = math.inf) -> AsyncIterator[Models]:
        """Do as `using`, in an event loop."""
        ticket = Ticket(tuple(names))
        future = self.ask(ticket)
        try:
            if future:
                await asyncio.wait([asyncio.wrap_future(future)], timeout=_until(deadline))
            yield self.claim_models(ticket, future)
        finally:
            self.leave(ticket)

    def load(self, name: str) -> ModelInfo:
        """Have a model loaded, as its first use would. Blocks. Raises what loading raises."""
        try:
            with self.using([name]) as models:
                return models[name].info
        except Unavailable as error:
            raise error.__cause__ or error from None

    def unload(self, name: str) -> ModelInfo:
        """Free a model's memory when its users have ended; a later use loads the model again. Blocks."""
        info = self._facts[name].info
        future = self.ask(Ticket((name,), unload=True))
        if future and (error := future.result()):
            raise error
        return info

    def add(self, path: Path) -> ModelInfo:
        """Take in one more model. Where all are kept in memory it is loaded, and has answered, before.

        Raises BundleError where there is one of its name, Unavailable while one of its name that was removed
        still answers, ConfigError, ExecutorFailed, and Stopping.
        """
        facts = self._source.facts(path)
        name = facts.info.name
        with self._change:
            if name in self._facts:
                raise BundleError(f"{path}: there is a model {name!r} already; give the bundle another name")
            if name in self._budget:
                raise Unavailable(f"{path}: the removed model {name!r} still answers those who use it")
        self._check_facts(name, facts)
        fresh = None if self._limit is not None else self._start_and_try(self._source.open(path))
        with self._change:
            self._budget.add(name, facts.cost, loaded=fresh is not None)
            self._past.setdefault(name, NO_STATS)
            self._facts = self._facts | {name: facts}
            if fresh:
                self._add_loaded(name, fresh)
        return self._facts[name].info

    def remove(self, name: str) -> None:
        """Have nobody find a model any more, and forget it when those who use it have ended."""
        with self._change:
            self._facts = {other: facts for other, facts in self._facts.items() if other != name}
            future = self.ask(Ticket((name,), unload=True))

            def forget(_: object = None) -> None:
                self._budget.remove(name)

            if future:
                future.add_done_callback(forget)
            else:
                forget()

    def reload(self, name: str, replaced: Callable[[], None] | None = None) -> ModelInfo:
        """See `Service.reload`. Of a model that is not loaded only the facts are read."""
        with self._reloading:
            while True:
                if self._budget.state(name) is State.UNLOADING:
                    self.unload(name)
                if self._budget.state(name) is not State.UNLOADED:
                    return self._renew(name, replaced)
                fresh = self._check_facts(name, self._source.facts(self._facts[name].path))
                with self._change:
                    if self._budget.state(name) is State.UNLOADED:
                        self._know(name, fresh)
                        return fresh.info

    def _renew(self, name: str, replaced: Callable[[], None] | None) -> ModelInfo:
        with self.using([name]) as models:
            old, fresh = models[name], self._open_model(name)
            with self._change:
                self._add_loaded(name, fresh)
                if replaced:
                    replaced()
                self._change.wait_for(lambda: self._users[old.engine] <= 1)  # but for this
        old.engine.stop()
        with self._change:
            self._retire(name, old.engine)
        return fresh.info

    def _open_model(self, name: str) -> LoadedModel:
        """A model at work that has answered. Raises BundleError, ConfigError, or ExecutorFailed."""
        model = self._source.open(self._facts[name].path)
        self._check_facts(name, model.facts)
        return self._start_and_try(model)

    def _start_and_try(self, model: LoadedModel) -> LoadedModel:
        model.engine.start()
        try:
            if not self._source.answered:
                asyncio.run(canary(model.engine, model.text))
        except BaseException:
            model.engine.stop(drain=False)
            raise
        return model

    def _check_facts(self, name: str, facts: ModelFacts) -> ModelFacts:
        if facts.info.name != name:
            raise BundleError(f"the bundle of {name!r} is now one of {facts.info.name!r}: start anew")
        if self._limit is not None and facts.cost > self._limit:
            raise BundleError(_too_large([name], facts.cost, self._limit))
        return facts

    def ask(self, ticket: Ticket) -> Future[Exception | None] | None:
        """Ask for models; returns what to wait for where they are not there at once. `leave` has to follow.

        Raises UnknownModel, Unavailable and Stopping.
        """
        with self._change:
            if self._closed and not all(name in self.loaded for name in ticket.names):
                raise Stopping()
            if not ticket.unload and (gone := [name for name in ticket.names if name not in self._facts]):
                raise UnknownModel(f"no model {gone[0]!r} any more: its bundle was taken out of its folder")
            if self._limit is not None and not ticket.unload and not self._budget.fits(ticket.names):
                cost = sum(self._budget.cost(name) for name in set(ticket.names))
                raise Unavailable(_too_large(ticket.names, cost, self._limit))
            self._act(self._budget.ask(ticket))
            return None if ticket.granted else self._waiting.setdefault(ticket, Future())

    def claim_models(self, ticket: Ticket, future: Future[Exception | None] | None) -> Models:
        """Have the models that were asked for.

        ticket: of `ask`.
        future: what `ask` has returned.

        Raises what kept them from being loaded, and DeadlineExceeded where they are not there yet.
        """
        with self._change:
            if future and not future.done():
                names = " and ".join(ticket.names)
                raise DeadlineExceeded(f"the deadline passed while {names} waited to be loaded")
            if future and (error := future.result()):
                raise error
            return self._held[ticket]

    def leave(self, ticket: Ticket) -> None:
        """End a use of models, or stop waiting for them."""
        with self._change:
            self._waiting.pop(ticket, None)
            for model in self._held.pop(ticket, {}).values():
                self._users[model.engine] -= 1
            self._change.notify_all()
            self._act(self._budget.leave(ticket))

    def _act(self, acts: Acts) -> None:
        """Do what the budget says. Under the lock, as all below is that has no lock of its own."""
        for ticket in acts.granted:
            if not ticket.unload:
                self._held[ticket] = {name: self.loaded[name] for name in ticket.names}
                self._users.update(model.engine for model in self._held[ticket].values())
            if future := self._waiting.pop(ticket, None):
                future.set_result(None)
        for names, work in ((acts.load, self._load), (acts.unload, self._unload)):
            for name in names:
                thread = threading.Thread(target=work, args=(name,), name=f"repository {name}", daemon=True)
                self._threads = {t for t in self._threads if t.is_alive()} | {thread}
                thread.start()

    def _load(self, name: str) -> None:
        """In a thread of its own."""
        try:
            fresh = self._open_model(name)
            with self._change:
                self._add_loaded(name, fresh)
                self._act(self._budget.finish_load(name))
            logger.info("loaded %s in %.1f seconds", name, fresh.info.load_seconds)
        except Exception as error:
            bug = None if isinstance(error, ConvoyError) else error
            logger.error("%s could not be loaded: %s", name, error, exc_info=bug)  # noqa: TRY400
            with self._change:
                self._counts[name, "failure"] += 1
                self._faults[name] = str(error)
                acts = self._budget.fail_load(name)
                for ticket in acts.failed:
                    failure = Unavailable(f"model {name!r} could not be loaded; the server's log says why")
                    failure.__cause__ = error
                    self._waiting.pop(ticket).set_result(failure)
                self._act(acts)

    def _unload(self, name: str) -> None:
        """In a thread of its own."""
        with self._change:
            model = self.loaded[name]
            self.loaded = {other: entry for other, entry in self.loaded.items() if other != name}
        model.engine.stop()
        with self._change:
            self._retire(name, model.engine)
            self._counts[name, "eviction"] += 1
        logger.info("freed the memory of %s", name)
        model.engine.release()
        del model
        gc.collect()  # engines and modules that hold each other
        trim_heap()
        with self._change:
            self._act(self._budget.finish_unload(name))

    def _add_loaded(self, name: str, fresh: LoadedModel) -> None:
        if self._closed:
            fresh.engine.stop(drain=False)
            raise Stopping()
        self.loaded = self.loaded | {name: fresh}
        self._engines.setdefault(name, []).append(fresh.engine)
        self._counts[name, "load"] += 1
        self._faults.pop(name, None)
        self._know(name, fresh.facts)

    def _know(self, name: str, facts: ModelFacts) -> None:
        if name in self._facts:
            self._facts[name] = facts
        self._act(self._budget.recost(name, facts.cost))

    def _retire(self, name: str, engine: AnyEngine) -> None:
        self._engines[name].remove(engine)
        self._past[name] = together(together(self._past[name], engine.stats()), NO_STATS)
        del self._users[engine]


def _until(deadline: float) -> float | None:
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())


def _too_large(names: Sequence[str], cost: int, limit: int) -> str:
    them = " and ".join(repr(name) for name in names)
    return f"{them}: about {cost >> 20} MiB of memory, the budget is {limit >> 20} MiB: raise model_budget"
