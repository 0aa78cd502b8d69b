"""The front door: all that `server/` and `cli/` may import of the engine."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine.answer import answer, live
from engine.backends import BACKEND_HELP, BACKENDS, DEVICE_HELP, PRECISION_HELP, PRECISIONS
from engine.budget import State
from engine.bundle import Bundle, open_bundle
from engine.canary import canary
from engine.chain import Step, stream_through
from engine.compose import Alignment, TextResult, slowest
from engine.directions import AT, Language, asked, languages_of, name_of, toward
from engine.drafts import Partial
from engine.engine import Observer, Stats
from engine.errors import (
    BundleError,
    Cancelled,
    CheckpointError,
    ConfigError,
    ConvoyError,
    DeadlineExceeded,
    DeviceLost,
    ExecutorFailed,
    InvalidRequest,
    Overloaded,
    Stopping,
    TooLarge,
    Unavailable,
    UnknownModel,
    WouldBeLate,
)
from engine.loading import LoadedModel, ModelInfo, ServiceSettings, facts_of, open_bundles, open_model
from engine.plan import TextOptions
from engine.score import TextScore, perplexity, score, score_many
from engine.shelf import Shelf, Shelved, Source
from engine.text.codes import short
from engine.text.detect import detect
from engine.text.protect import Kept, Marked
from engine.trust import Coverage, Repetition
from engine.types import DecodeOptions, Limits, Timings

__all__ = [
    "BACKEND_HELP",
    "BACKENDS",
    "DEVICE_HELP",
    "PRECISION_HELP",
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
    "DeviceLost",
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
    "Shelved",
    "State",
    "Stats",
    "Stopping",
    "TextOptions",
    "TextResult",
    "TextScore",
    "Timings",
    "TooLarge",
    "Unavailable",
    "UnknownModel",
    "WouldBeLate",
    "perplexity",
    "share_threads",
    "short",
    "slowest",
]

THEN: Final = "+"  # between the names of two models, of which the second reads the first's answers
SAMPLE: Final = 4_000  # characters that decide a text's language


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
    """Models by name, each behind its own engine when it is loaded. Methods may be called from any thread."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        settings: ServiceSettings | None = None,
        observe: Callable[[str], Observer] | None = None,
    ) -> Service:
        """Load bundles, or with a budget only learn what they are; a path is a bundle or a folder of bundles.

        observe: makes the observer of a model. Raises BundleError or ConfigError that names the remedy; then
        nothing was started.
        """
        settings = settings or ServiceSettings()
        lazily = settings.budget is not None
        bundles = open_bundles(paths, settings, verify=settings.verify and not lazily)

        def opened(bundle: Bundle) -> LoadedModel:
            return open_model(bundle, settings, observe(bundle.name) if observe else None)

        def read(path: Path) -> Bundle:
            return open_bundle(path, verify=settings.verify)

        source = Source(lambda path: facts_of(read(path), settings), lambda path: opened(read(path)))
        if lazily:
            return cls(Shelf([facts_of(bundle, settings) for bundle in bundles], source, settings.budget))
        loaded = [opened(bundle) for bundle in bundles]
        return cls(Shelf([model.facts for model in loaded], source, loaded=loaded))

    def start(self) -> None:
        self.shelf.start()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Take nothing more and wait for the engines' threads, at most `timeout` seconds in all.

        drain: finish what was accepted; what takes too long is answered with Stopping. Returns whether
        everything accepted was finished.
        """
        return self.shelf.stop(drain=drain, timeout=timeout)

    def models(self) -> list[ModelInfo]:
        return self.shelf.infos()

    def languages(self) -> list[Language]:
        """Every language of the translating models, in the order of loading."""
        return languages_of([info.directions for info in self.models() if info.task == "translate"])

    def pick(
        self, task: str, source: str | None = None, target: str | None = None, model: str | None = None
    ) -> str:
        """Name of the first model for a task and languages (None: any), or `model` when it is for them.

        Where no model translates between two given languages but two do, one after the other, their names
        with "+" between; `model` may be such a name. Raises UnknownModel that says what there is.
        """
        if model is not None:
            chain = self._chain(model)
            first, last = chain[0], chain[-1]
            fits = first.directions.fit(source, target if last is first else None)
            if not (first.task == last.task == task and fits and last.directions.fit(None, target)):
                raise UnknownModel(f"model {model!r} can't {_wanted(task, source, target)}")
            return model if last is not first else name_of(model, first.directions, source, target)
        infos = [info for info in self.models() if info.task == task]
        for info in infos:
            if info.directions.fit(source, target):
                return name_of(info.name, info.directions, source, target)
        if task == "translate" and source and target and source != target:
            for info in (i for i in infos if i.directions.fit(source, None)):
                for after in infos:
                    for between in info.directions.targets:
                        if info.directions.fit(source, between) and after.directions.fit(between, target):
                            begin = name_of(info.name, info.directions, source, between)
                            return begin + THEN + name_of(after.name, after.directions, between, target)
        known = ", ".join(f"{i.name} ({i.task} {i.source} to {i.target})" for i in self.models())
        raise UnknownModel(f"no model can {_wanted(task, source, target)}; there are: {known}")

    def behind(self, model: str) -> list[ModelInfo]:
        """The models that a name asks for, as they are loaded: without the languages that it may choose.

        Raises UnknownModel."""
        return [self._info(_base(info)) for info in self._chain(model)]

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
        async with self._awaited(model, deadline) as steps:
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
        async with (
            self._awaited(model, deadline) as steps,
            aclosing(live(steps, texts, options or TextOptions(), deadline)) as news,
        ):
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
        self._one(model)
        async with self._awaited(model, deadline) as (chosen,):
            return await score(chosen.engine, chosen.text, texts, sources, deadline)

    def score_many(self, model: str, pairs: Iterable[tuple[str, str | None]]) -> Iterator[TextScore]:
        """Score (text, source) pairs in input order and in bounded memory, like `run_many`."""
        self._one(model)
        with self._used(model) as (chosen,):
            yield from score_many(chosen.engine, chosen.text, pairs)

    async def canary(self, model: str, deadline: float = math.inf) -> None:
        """Really answer a short text. Raises what `run` raises, and ExecutorFailed on a senseless score."""
        self._one(model)
        async with self._awaited(model, deadline) as (chosen,):
            await canary(chosen.engine, chosen.text, deadline)

    def stats(self) -> dict[str, Stats]:
        return self.shelf.stats()

    def healthy(self) -> bool:
        """Whether the engine's thread of every loaded model runs and takes requests."""
        return self.shelf.healthy

    def lost(self) -> bool:
        """Whether a device is lost: this process can't use it again and should end."""
        return self.shelf.lost

    def shelved(self) -> dict[str, Shelved]:
        """How each model is kept."""
        return self.shelf.shelved()

    def load(self, name: str) -> ModelInfo:
        """Bring a model into memory, if it is not there. Blocks.

        Raises UnknownModel, BundleError, ConfigError, ExecutorFailed when it can't answer, and Unavailable
        when it is larger than the budget.
        """
        self._info(name)
        return self.shelf.load(name)

    def unload(self, name: str) -> ModelInfo:
        """Free a model's memory, if it is there, when the requests that use it have been answered. Blocks.

        A later use loads it again. Raises UnknownModel.
        """
        self._info(name)
        return self.shelf.unload(name)

    def reload(self, name: str) -> ModelInfo:
        """Open a model's bundle anew and let new requests have it; those under way finish with the old one.

        Blocks for as long as that takes, and for that long there are two. Of a model that is not loaded only
        the facts are read. Raises UnknownModel, BundleError or ConfigError, and ExecutorFailed when the new
        one can't answer; then the old one goes on.
        """
        self._info(name)
        return self.shelf.reload(name)

    def _info(self, name: str) -> ModelInfo:
        for info in self.models():
            if info.name == name:
                return info
        known = ", ".join(info.name for info in self.models())
        raise UnknownModel(f"no model {name!r}; there are: {known}")

    def _one(self, name: str) -> ModelInfo:
        """Of a model, or of one of its directions."""
        base, at, languages = name.rpartition(AT)
        if not at or all(info.name != base for info in self.models()):
            return self._info(name)
        info = self._info(base)
        source, target = asked(base, info.directions, languages)
        return replace(info, name=name, source=source, target=target, sources=(), targets=())

    def _chain(self, name: str) -> list[ModelInfo]:
        """The model of a name, or the two of a name like "de-en+en-fr"."""
        known = any(info.name == name for info in self.models())
        first, then, last = (name, "", "") if known else name.partition(THEN)
        found = [self._one(one) for one in ([first, last] if then else [first])]
        ends, begins = found[0], found[-1]
        fit = ends.task == begins.task == "translate" and ends.target == begins.source
        if then and not fit:
            raise UnknownModel(f"model {name!r}: the second does not translate from the first one's target")
        return found

    @contextmanager
    def _used(self, name: str) -> Iterator[list[Step]]:
        """The steps of a model's name. A reload lets whoever is in here finish with the old model."""
        chain = self._chain(name)
        with self.shelf.using([_base(info) for info in chain]) as models:
            yield _steps(chain, models)

    @asynccontextmanager
    async def _awaited(self, name: str, deadline: float) -> AsyncIterator[list[Step]]:
        """As `_used`, in an event loop."""
        chain = self._chain(name)
        async with self.shelf.awaiting([_base(info) for info in chain], deadline) as models:
            yield _steps(chain, models)

    def memory(self) -> dict[str, Memory]:
        """Of each GPU that a model is on, by its name."""
        devices = {device for info in self.models() for device in info.device.split(",")}
        return {device: _memory(device) for device in sorted(devices) if device.startswith("cuda")}


def _base(info: ModelInfo) -> str:
    """The name of the model that a direction is one of; models of one direction have no languages beside."""
    return info.name if info.sources else info.name.rpartition(AT)[0]


def _steps(chain: Sequence[ModelInfo], models: Mapping[str, LoadedModel]) -> list[Step]:
    found = []
    for info in chain:
        model = models[_base(info)]
        text = model.text if info.sources else toward(model.text, info.source, info.target)
        found.append(Step(model.engine, text))
    return found


def _wanted(task: str, source: str | None, target: str | None) -> str:
    return f"{task} from {source or 'any language'} to {target or 'any language'}"


def _memory(device: str) -> Memory:
    from engine.executors.torch import memory_of

    return Memory(*memory_of(device))
