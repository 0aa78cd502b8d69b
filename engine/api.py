"""The front door: all that `server/` and `cli/` may import of the engine."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine.answer import answer, live
from engine.bundle import PRECISIONS, open_bundle
from engine.chain import Step, stream_through
from engine.compose import Alignment, TextResult, slowest
from engine.directions import AT, asked, directions_of, name_of, toward
from engine.drafts import Partial
from engine.engine import Engine, Observer, Stats
from engine.errors import (
    BundleError,
    Cancelled,
    CheckpointError,
    ConfigError,
    ConvoyError,
    DeadlineExceeded,
    ExecutorFailed,
    InvalidRequest,
    Overloaded,
    Stopping,
    TooLarge,
    UnknownModel,
    WouldBeLate,
)
from engine.executors import BACKENDS
from engine.loading import LoadedModel, ModelInfo, ServiceSettings, bundle_paths, open_model
from engine.plan import TextOptions
from engine.score import TextScore, perplexity, score, score_many
from engine.text.detect import detect
from engine.text.protect import Kept, Marked
from engine.trust import Coverage, Repetition
from engine.types import DecodeOptions, Limits, Timings

__all__ = [
    "BACKENDS",
    "PRECISIONS",
    "Alignment",
    "BundleError",
    "Cancelled",
    "CheckpointError",
    "ConfigError",
    "ConvoyError",
    "Coverage",
    "DeadlineExceeded",
    "DecodeOptions",
    "ExecutorFailed",
    "InvalidRequest",
    "Kept",
    "Language",
    "Limits",
    "Marked",
    "Memory",
    "ModelInfo",
    "Observer",
    "Overloaded",
    "Partial",
    "Repetition",
    "Service",
    "ServiceSettings",
    "Stats",
    "Stopping",
    "TextOptions",
    "TextResult",
    "TextScore",
    "Timings",
    "TooLarge",
    "UnknownModel",
    "WouldBeLate",
    "perplexity",
    "share_threads",
    "slowest",
]

THEN: Final = "+"  # between the names of two models, of which the second reads the first's answers
SAMPLE: Final = 4_000  # characters that decide a text's language
CANARY: Final = "Hallo, 1 2 3."
CANARY_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Language:
    """A language that texts may be translated from or, with no targets, only into. targets: those of one
    model first. pivots: the targets that take two models, each with the language between."""

    code: str
    targets: tuple[str, ...]
    pivots: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a device, in use by anybody and in all."""

    used: int
    total: int


def share_threads(threads: int) -> None:
    """One pool for all ONNX sessions of services with threads=None; once per process, before the first."""
    from engine.executors.onnx import share_threads as share

    share(threads)


class Service:
    """Loaded models by name, each behind its own engine. Methods may be called from any thread."""

    def __init__(self, models: Sequence[LoadedModel]) -> None:
        self._models = {model.info.name: model for model in models}
        self._users = Counter[Engine]()  # calls under way
        self._change = threading.Condition()  # guards both
        self._reloading = threading.Lock()

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        settings: ServiceSettings | None = None,
        observe: Callable[[str], Observer] | None = None,
    ) -> Service:
        """Load bundles; a path is a bundle or a folder of bundles. observe: makes the observer of a model.

        Raises BundleError or ConfigError that names the remedy; then nothing was started.
        """
        settings = settings or ServiceSettings()
        bundles = [open_bundle(p, verify=settings.verify) for path in paths for p in bundle_paths(Path(path))]
        if wanted := set(settings.languages):
            bundles = [bundle for bundle in bundles if not directions_of(bundle).within(wanted).empty]
            if not bundles:
                raise BundleError(f"no model is for the languages {sorted(wanted)} alone: add others to them")
        if not bundles:
            raise BundleError("no models to load: give the path of a bundle or of a folder of bundles")
        paths_of: dict[str, Path] = {}
        for bundle in bundles:
            if bundle.name in paths_of:
                both = f"{paths_of[bundle.name]} and {bundle.path}"
                raise BundleError(f"two bundles have the name {bundle.name!r}: {both}; leave one out")
            paths_of[bundle.name] = bundle.path
        return cls([open_model(b, settings, observe(b.name) if observe else None) for b in bundles])

    def start(self) -> None:
        for model in self._models.values():
            model.engine.start()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Take nothing more and wait for the engines' threads, at most `timeout` seconds in all.

        drain: finish what was accepted; what takes too long is answered with Stopping. Returns whether
        everything accepted was finished.
        """
        until = None if timeout is None else time.monotonic() + timeout
        engines = [model.engine for model in self._models.values()]
        for engine in engines:  # none may go on accepting while another drains
            engine.stop(drain=drain, timeout=0)
        for engine in engines:
            engine.stop(drain=drain, timeout=None if until is None else max(0.0, until - time.monotonic()))
        left = [s for s in self.stats().values() if s.waiting_requests or any(s.active)]
        for engine in engines:
            engine.stop(drain=False, timeout=0)
        return drain and not left

    def models(self) -> list[ModelInfo]:
        return [model.info for model in self._models.values()]

    def languages(self) -> list[Language]:
        """Every language of the translating models, in the order of loading."""
        targets: dict[str, list[str]] = {}
        for info in (i for i in self.models() if i.task == "translate"):
            for source in info.directions.sources:
                into = targets.setdefault(source, [])
                for target in info.directions.targets:
                    if target not in into and info.directions.fit(source, target):
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

    def pick(
        self, task: str, source: str | None = None, target: str | None = None, model: str | None = None
    ) -> str:
        """Name of the first model for a task and languages (None: any), or `model` when it is for them.

        Where no model translates between two given languages but two do, one after the other, their names
        with "+" between; `model` may be such a name. Raises UnknownModel that says what there is.
        """
        if model is not None:
            chain = self._chain(model)
            first, last = chain[0].info, chain[-1].info
            fits = first.directions.fit(source, target if last is first else None)
            if not (first.task == last.task == task and fits and last.directions.fit(None, target)):
                raise UnknownModel(f"model {model!r} can't {_wanted(task, source, target)}")
            return model if last is not first else name_of(model, first.directions, source, target)
        infos = [info for info in self.models() if info.task == task]
        for info in infos:
            if info.directions.fit(source, target):
                return name_of(info.name, info.directions, source, target)
        if task == "translate" and source and target and source != target:
            for info in (i for i in infos if source in i.directions.sources):
                for after in infos:
                    for between in info.directions.targets:
                        if info.directions.fit(source, between) and after.directions.fit(between, target):
                            begin = name_of(info.name, info.directions, source, between)
                            return begin + THEN + name_of(after.name, after.directions, between, target)
        known = ", ".join(f"{i.name} ({i.task} {i.source} to {i.target})" for i in self.models())
        raise UnknownModel(f"no model can {_wanted(task, source, target)}; loaded are: {known}")

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Languages of the translating models, most likely first, with confidences from 0 to 100."""
        return detect(text[:SAMPLE], [language.code for language in self.languages()])

    async def run(
        self,
        model: str,
        texts: Sequence[str | Marked],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> list[TextResult]:
        """Answer texts as one group: all are accepted or none. deadline: a time.monotonic(). model: a name,
        or two with "+" between, of which the second reads the first's answers.

        Raises the errors of `plan` and of the engine. Cancelling the awaiting task cancels the group.
        """
        with self._used(model) as steps:
            return await answer(steps, texts, options or TextOptions(), deadline)

    async def stream(
        self,
        model: str,
        texts: Sequence[str | Marked],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> AsyncGenerator[Partial | list[TextResult]]:
        """Like `run`, and tells what is certain by then: each Partial is a beginning of its text's answer,
        longer than the one before. In the end the results.

        A slow consumer gets fewer of them. Of two models only the second's answers are told. Leaving the
        iterator (aclose) cancels the group.
        """
        with self._used(model) as steps:
            async with aclosing(live(steps, texts, options or TextOptions(), deadline)) as news:
                async for event in news:
                    yield event

    def run_many(
        self,
        model: str,
        texts: Iterable[str | Marked],
        options: TextOptions | None = None,
        on_done: Callable[[int], object] | None = None,
    ) -> Iterator[TextResult]:
        """Answer texts in input order, in bounded memory and with the engine's queue kept full.

        on_done: told how many more texts have been answered. An error names the number of its text, counted
        from 1. Leaving the iterator cancels what is in flight.
        """
        with self._used(model) as steps:
            for result in stream_through(steps, texts, options or TextOptions()):
                if on_done:
                    on_done(1)
                yield result

    async def score(
        self,
        model: str,
        texts: Sequence[str],
        sources: Sequence[str] | None = None,
        deadline: float = math.inf,
    ) -> list[TextScore]:
        """How probable each text is, as one group: all are accepted or none. deadline: a time.monotonic().

        A language model takes no sources; other models score each text as the whole target of its source.
        Raises the errors of `engine.score.score`. Cancelling the awaiting task cancels the group.
        """
        self._model(model)
        with self._used(model) as (chosen,):
            return await score(chosen.engine, chosen.text, texts, sources, deadline)

    def score_many(self, model: str, pairs: Iterable[tuple[str, str | None]]) -> Iterator[TextScore]:
        """Score (text, source) pairs in input order and in bounded memory, like `run_many`."""
        self._model(model)
        with self._used(model) as (chosen,):
            yield from score_many(chosen.engine, chosen.text, pairs)

    async def canary(self, model: str, deadline: float = math.inf) -> None:
        """Really answer a short text. Raises what `run` raises, and ExecutorFailed on a senseless score."""
        chosen = self._model(model).text
        if not chosen.limits.attention:  # a language model
            (scored,) = await self.score(model, [CANARY], None, deadline)
            if not math.isfinite(scored.total):
                raise ExecutorFailed(f"model {model!r} scores with {scored.total}")
            return
        floor = max(CANARY_TOKENS, chosen.defaults.min_length)
        options = TextOptions(decode={"max_length": min(floor, chosen.limits.target)})
        (result,) = await self.run(model, [CANARY], options, deadline)
        if not math.isfinite(result.score):
            raise ExecutorFailed(f"model {model!r} answers with the score {result.score}")

    def stats(self) -> dict[str, Stats]:
        return {name: model.engine.stats() for name, model in self._models.items()}

    def healthy(self) -> bool:
        """Whether every engine's thread runs and takes requests."""
        return all(model.engine.healthy for model in self._models.values())

    def _model(self, name: str) -> LoadedModel:
        if name in self._models:
            return self._models[name]
        base, at, languages = name.rpartition(AT)
        if not at or base not in self._models:
            raise UnknownModel(f"no model {name!r}; loaded are: {', '.join(self._models)}")
        model = self._models[base]
        source, target = asked(base, model.info.directions, languages)
        one = replace(model.info, name=name, source=source, target=target, sources=(), targets=())
        return replace(model, info=one, text=toward(model.text, source, target))

    def _chain(self, name: str) -> list[LoadedModel]:
        """The model of a name, or the two of a name like "de-en+en-fr"."""
        first, then, last = (name, "", "") if name in self._models else name.partition(THEN)
        found = [self._model(one) for one in ([first, last] if then else [first])]
        ends, begins = found[0].info, found[-1].info
        fit = ends.task == begins.task == "translate" and ends.target == begins.source
        if then and not fit:
            raise UnknownModel(f"model {name!r}: the second does not translate from the first one's target")
        return found

    @contextmanager
    def _used(self, name: str) -> Iterator[list[Step]]:
        """The steps of a model's name. A reload lets whoever is in here finish with the old model."""
        with self._change:
            steps = [Step(model.engine, model.text) for model in self._chain(name)]
            self._users.update(step.engine for step in steps)
        try:
            yield steps
        finally:
            with self._change:
                self._users.subtract(step.engine for step in steps)
                self._change.notify_all()

    def reload(self, name: str) -> ModelInfo:
        """Open a model's bundle anew and let new requests have it; those under way finish with the old one.

        Blocks for as long as that takes, and for that long there are two. Raises UnknownModel, BundleError
        or ConfigError, and ExecutorFailed when the new one can't answer; then the old one goes on.
        """
        with self._reloading:
            old = self._model(name)
            fresh = old.again()
            if fresh.info.name != name:
                raise BundleError(f"the bundle of {name!r} is now one of {fresh.info.name!r}: start anew")
            fresh.engine.start()
            try:
                asyncio.run(Service([fresh]).canary(name))
            except BaseException:
                fresh.engine.stop(drain=False)
                raise
            with self._change:
                self._models = self._models | {name: fresh}
                self._change.wait_for(lambda: not self._users[old.engine])
                del self._users[old.engine]
            old.engine.stop()
        return fresh.info

    def memory(self) -> dict[str, Memory]:
        """Of each GPU that a model is on, by its name."""
        devices = {model.info.device for model in self._models.values()}
        return {device: _memory(device) for device in sorted(devices) if device.startswith("cuda")}


def _wanted(task: str, source: str | None, target: str | None) -> str:
    return f"{task} from {source or 'any language'} to {target or 'any language'}"


def _memory(device: str) -> Memory:
    from engine.executors.torch import memory_of

    return Memory(*memory_of(device))
