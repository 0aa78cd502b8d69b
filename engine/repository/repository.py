"""The models of a service: loaded at their first use, and unloaded when other models need the memory.

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

from engine.errors import BundleError, ConvoyError, DeadlineExceeded, Stopping, Unavailable, UnknownModel
from engine.repository.budget import Actions, Budget, State, Ticket, too_large
from engine.repository.canary import canary
from engine.repository.figures import NO_STATS, RepositoryEntry, add_totals
from engine.repository.heap import trim_heap
from engine.repository.loading import LoadedModel, ModelFacts, ModelInfo, ModelSource
from engine.schedule.any_engine import AnyEngine
from engine.schedule.stats import Stats

logger = logging.getLogger(__name__)

Models = dict[str, LoadedModel]


class Repository:
    """Models for many callers at once.

    loaded: models in memory by name; the mapping is replaced, never changed.
    """

    def __init__(
        self,
        facts: Sequence[ModelFacts],
        source: ModelSource,
        limit: int | None = None,
        loaded: Sequence[LoadedModel] = (),
        *,
        eager: bool = False,
    ) -> None:
        """Begin with some models loaded.

        facts: facts of every model.
        source: functions that read facts and open models.
        limit: largest sum of bytes of all loaded models; None: no limit.
        loaded: models that are open already.
        eager: load an added model at once if it fits beside those in memory.
        """
        self._eager = eager or limit is None
        self._facts = {one.info.name: one for one in facts}
        self._source = source
        self.loaded: Models = {model.info.name: model for model in loaded}
        self._facts |= {name: model.facts for name, model in self.loaded.items()}
        self._budget = Budget({n: f.cost for n, f in self._facts.items()}, limit, self.loaded)
        self._limit = limit
        self._change = threading.Condition(threading.RLock())  # guards all attributes
        self._waiting: dict[Ticket, Future[Exception | None]] = {}
        self._in_use: dict[Ticket, Models] = {}
        self._users = Counter[AnyEngine]()  # number of tickets that use each engine
        self._engines = {name: [model.engine] for name, model in self.loaded.items()}  # newest last
        self._past = dict.fromkeys(self._facts, NO_STATS)  # totals of stopped engines
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
        """Return the statistics of every model; totals include earlier loads of the model."""
        with self._change:
            return {name: self._stats(name) for name in self._facts}

    def _stats(self, name: str) -> Stats:
        total = self._past[name]
        for engine in self._engines.get(name, ()):
            total = add_totals(total, engine.stats())
        return total

    @property
    def healthy(self) -> bool:
        """Whether the repository accepts requests, and the engine of every loaded model runs."""
        started = self._open and not self._closed
        return started and all(model.engine.healthy for model in self.loaded.values())

    @property
    def device_lost(self) -> bool:
        """Whether this process can't use the device of a model any more."""
        return any(model.engine.device_lost for model in self.loaded.values())

    @property
    def stall_seconds(self) -> float:
        """Seconds since the start of the longest current turn of an engine."""
        with self._change:
            return max((e.stall_seconds for some in self._engines.values() for e in some), default=0.0)

    def start(self) -> None:
        self._open = True
        for model in self.loaded.values():
            model.engine.start()

    def stop(self, *, drain: bool, timeout: float | None) -> bool:
        """Stop all engines and wait for running loads, see `Service.stop`."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        with self._change:
            self._closed = True
            waiting = [self._waiting.pop(t) for t in self._budget.withdraw_all() if t in self._waiting]
            engines = [engine for some in self._engines.values() for engine in some]
        for future in waiting:
            future.set_result(Stopping())
        for engine in engines:  # no engine may accept requests while another one drains
            engine.stop(drain=drain, timeout=0)
        for engine in engines:
            engine.stop(drain=drain, timeout=_seconds_until(until))
        busy = [s for s in (engine.stats() for engine in engines) if s.waiting_requests or any(s.active)]
        for engine in engines:
            engine.stop(drain=False, timeout=0)
        for thread in list(self._threads):  # a running load can't be cancelled
            thread.join(_seconds_until(until))
        return drain and not busy and not waiting

    @contextmanager
    def using(self, names: Sequence[str], deadline: float = math.inf) -> Iterator[Models]:
        """Load models if necessary, and keep them loaded to the end of the context.

        names: names of the models.
        deadline: time.monotonic() until which loading may take.

        Raises DeadlineExceeded, Unavailable if a model can't be loaded, and Stopping.
        """
        ticket = Ticket(tuple(names))
        future = self.acquire(ticket)
        try:
            if future:
                wait_for_futures([future], _seconds_until(deadline))
            yield self.claim_models(ticket, future)
        finally:
            self.release(ticket)

    @asynccontextmanager
    async def awaiting(self, names: Sequence[str], deadline: float = math.inf) -> AsyncIterator[Models]:
        """Asynchronous version of `using`."""
        ticket = Ticket(tuple(names))
        future = self.acquire(ticket)
        try:
            if future:
                await asyncio.wait([asyncio.wrap_future(future)], timeout=_seconds_until(deadline))
            yield self.claim_models(ticket, future)
        finally:
            self.release(ticket)

    def load(self, name: str) -> ModelInfo:
        """Load a model. Blocks. Raises the errors of loading."""
        try:
            with self.using([name]) as models:
                return models[name].info
        except Unavailable as error:
            raise error.__cause__ or error from None  # the cause is the error of loading

    def unload(self, name: str) -> ModelInfo:
        """Unload a model as soon as it is not in use; a later use loads it again. Blocks."""
        info = self._facts[name].info
        future = self.acquire(Ticket((name,), unload=True))
        if future and (error := future.result()):
            raise error
        return info

    def add(self, path: Path) -> ModelInfo:
        """Add a model. It is loaded and has answered a canary first without a memory limit, or if it fits.

        Raises BundleError if the name is taken, Unavailable while a removed model of that name still answers,
        ConfigError, ExecutorFailed, and Stopping.
        """
        facts = self._source.facts(path)
        name = facts.info.name
        with self._change:
            if name in self._facts:
                raise BundleError(f"{path}: there is a model {name!r} already; give the bundle another name")
            if name in self._budget:
                raise Unavailable(f"{path}: the removed model {name!r} still answers those who use it")
        self._check_facts(name, facts)
        at_once = self._eager and self._budget.used_bytes() + facts.cost <= self._budget.limit
        fresh = self._start_and_try(self._source.open(path)) if at_once else None
        with self._change:
            self._budget.add(name, facts.cost, loaded=fresh is not None)
            self._past.setdefault(name, NO_STATS)
            self._facts = self._facts | {name: facts}
            if fresh:
                self._add_loaded(name, fresh)
        return self._facts[name].info

    def remove(self, name: str) -> None:
        """Remove a model for new requests; requests in flight finish first."""
        with self._change:
            self._facts = {other: facts for other, facts in self._facts.items() if other != name}
            future = self.acquire(Ticket((name,), unload=True))

            def forget(_: object = None) -> None:
                self._budget.remove(name)

            if future:
                future.add_done_callback(forget)
            else:
                forget()

    def reload(self, name: str, replaced: Callable[[], None] | None = None) -> ModelInfo:
        """Open the bundle of a model again, see `Service.reload`."""
        with self._reloading:
            while True:  # repeated if the state changes before the lock is held
                if self._budget.state(name) is State.UNLOADING:
                    self.unload(name)
                if self._budget.state(name) is not State.UNLOADED:
                    return self._reload_loaded(name, replaced)
                fresh = self._check_facts(name, self._source.facts(self._facts[name].path))
                with self._change:
                    if self._budget.state(name) is State.UNLOADED:
                        self._set_facts(name, fresh)
                        return fresh.info

    def _reload_loaded(self, name: str, replaced: Callable[[], None] | None) -> ModelInfo:
        """Open the bundle of a loaded model again; returns when the old model is not in use any more."""
        with self.using([name]) as models:
            old, fresh = models[name], self._open_model(name)
            with self._change:
                self._add_loaded(name, fresh)
                if replaced:
                    replaced()
                self._change.wait_for(lambda: self._users[old.engine] <= 1)  # one user is this reload
        old.engine.stop()
        with self._change:
            self._retire(name, old.engine)
        return fresh.info

    def _open_model(self, name: str) -> LoadedModel:
        """Open and start a model that answers a canary. Raises BundleError, ConfigError or ExecutorFailed."""
        model = self._source.open(self._facts[name].path)
        self._check_facts(name, model.facts)
        return self._start_and_try(model)

    def _start_and_try(self, model: LoadedModel) -> LoadedModel:
        """Start the engine of a model, which must answer a canary, unless it is remote or has answered."""
        model.engine.start()
        try:
            if not (self._source.answered or model.info.remote):
                asyncio.run(canary(model.engine, model.text))
        except BaseException:
            model.engine.stop(drain=False)
            raise
        return model

    def _check_facts(self, name: str, facts: ModelFacts) -> ModelFacts:
        """Return the facts. Raises BundleError if the model has another name or exceeds the budget."""
        if facts.info.name != name:
            raise BundleError(f"the bundle of {name!r} is now one of {facts.info.name!r}: restart the server")
        if self._limit is not None and facts.cost > self._limit:
            raise BundleError(too_large([name], facts.cost, self._limit))
        return facts

    def acquire(self, ticket: Ticket) -> Future[Exception | None] | None:
        """Request the models of a ticket. `release` has to follow.

        Returns None if they are loaded, otherwise a future. Raises UnknownModel, Unavailable and Stopping.
        """
        with self._change:
            if self._closed and not all(name in self.loaded for name in ticket.names):
                raise Stopping()
            if not ticket.unload and (gone := [name for name in ticket.names if name not in self._facts]):
                raise UnknownModel(f"no model {gone[0]!r} any more: its bundle was taken out of its folder")
            if self._limit is not None and not ticket.unload and not self._budget.fits(ticket.names):
                cost = sum(self._budget.cost(name) for name in set(ticket.names))
                raise Unavailable(too_large(ticket.names, cost, self._limit))
            self._perform(self._budget.acquire(ticket))
            return None if ticket.granted else self._waiting.setdefault(ticket, Future())

    def claim_models(self, ticket: Ticket, future: Future[Exception | None] | None) -> Models:
        """Return the models of a ticket.

        ticket: ticket that was passed to `acquire`.
        future: result of `acquire`.

        Raises the errors of loading, and DeadlineExceeded if the models are not loaded yet.
        """
        with self._change:
            if future and not future.done():
                names = " and ".join(ticket.names)
                raise DeadlineExceeded(f"the deadline passed while {names} waited to be loaded")
            if future and (error := future.result()):
                raise error
            return self._in_use[ticket]

    def release(self, ticket: Ticket) -> None:
        """End the use of a ticket's models, or stop waiting for them."""
        with self._change:
            self._waiting.pop(ticket, None)
            for model in self._in_use.pop(ticket, {}).values():
                self._users[model.engine] -= 1
            self._change.notify_all()
            self._perform(self._budget.release(ticket))

    def _perform(self, actions: Actions) -> None:
        """Perform the actions of the budget. Callers hold the lock."""
        for ticket in actions.granted:
            if not ticket.unload:
                self._in_use[ticket] = {name: self.loaded[name] for name in ticket.names}
                self._users.update(model.engine for model in self._in_use[ticket].values())
            if future := self._waiting.pop(ticket, None):
                future.set_result(None)
        for names, target in ((actions.load, self._load), (actions.unload, self._unload)):
            for name in names:
                thread = threading.Thread(target=target, args=(name,), name=f"repository {name}", daemon=True)
                self._threads = {t for t in self._threads if t.is_alive()} | {thread}
                thread.start()

    def _load(self, name: str) -> None:
        """Load a model. Runs in a thread of its own."""
        try:
            fresh = self._open_model(name)
            with self._change:
                self._add_loaded(name, fresh)
                self._perform(self._budget.finish_load(name))
            logger.info("loaded %s in %.1f seconds: %s", name, fresh.info.load_seconds, fresh.info.arithmetic)
        except Exception as error:
            bug = None if isinstance(error, ConvoyError) else error
            logger.error("%s could not be loaded: %s", name, error, exc_info=bug)  # noqa: TRY400
            with self._change:
                self._counts[name, "failure"] += 1
                self._faults[name] = str(error)
                actions = self._budget.fail_load(name)
                for ticket in actions.failed:
                    failure = Unavailable(f"model {name!r} could not be loaded; the server's log says why")
                    failure.__cause__ = error
                    self._waiting.pop(ticket).set_result(failure)
                self._perform(actions)

    def _unload(self, name: str) -> None:
        """Unload a model. Runs in a thread of its own."""
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
        gc.collect()  # engines and modules refer to each other
        trim_heap()
        self._source.clean(name)
        with self._change:
            self._perform(self._budget.finish_unload(name))

    def _add_loaded(self, name: str, fresh: LoadedModel) -> None:
        """Make an open model the current one. Raises Stopping if the repository is closed."""
        if self._closed:
            fresh.engine.stop(drain=False)
            raise Stopping()
        self.loaded = self.loaded | {name: fresh}
        self._engines.setdefault(name, []).append(fresh.engine)
        self._counts[name, "load"] += 1
        self._faults.pop(name, None)
        self._set_facts(name, fresh.facts)

    def _set_facts(self, name: str, facts: ModelFacts) -> None:
        if name in self._facts:
            self._facts[name] = facts
        self._perform(self._budget.recost(name, facts.cost))

    def _retire(self, name: str, engine: AnyEngine) -> None:
        """Forget a stopped engine, and add its totals, without queue and slots, to the model's totals."""
        self._engines[name].remove(engine)
        self._past[name] = add_totals(add_totals(self._past[name], engine.stats()), NO_STATS)
        del self._users[engine]


def _seconds_until(deadline: float) -> float | None:
    """Return the seconds until a deadline; None: there is none."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())
