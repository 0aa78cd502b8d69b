"""The front door: all that `server/` and `cli/` may import of the engine."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

from engine.answers.alignment import Alignment
from engine.answers.answer import answer, live
from engine.answers.borrow import Borrowing, borrow
from engine.answers.canary import canary
from engine.answers.compose import TextResult, slowest
from engine.answers.directions import Language, languages_of
from engine.answers.drafts import Partial
from engine.answers.options import TextOptions
from engine.answers.pivot import Stage, stream_through
from engine.answers.quality import Coverage, Repetition
from engine.answers.score import TextScore, perplexity, score, score_many
from engine.backends import (
    BACKEND_HELP,
    BACKENDS,
    DEVICE_HELP,
    FAST_HELP,
    FAST_LANES,
    PRECISION_HELP,
    PRECISIONS,
    LaneSize,
    Placement,
    processors,
    usual_precision,
)
from engine.bundle.bundle import Bundle, open_bundle
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
from engine.schedule.engine import Observer, Stats
from engine.schedule.slices import Slices, at_once, each, in_slices, one_slice
from engine.shelf.budget import State
from engine.shelf.catalogue import Leg, choose_route, find_info, find_leg, parse_route, purpose
from engine.shelf.figures import DeviceMemory, ShelfEntry, device_memory
from engine.shelf.folders import Folders
from engine.shelf.loading import LoadedModel, ModelInfo, ServiceSettings, facts_of, open_bundles, open_model
from engine.shelf.shelf import ModelSource, Shelf, trim_heap
from engine.text.codes import short
from engine.text.detect import Detection, detect
from engine.text.protect import KeptSpan, MarkedText
from engine.types import OPTION_HELP, DecodeOptions, Limits, Timings

__all__ = [
    "BACKEND_HELP",
    "BACKENDS",
    "DEVICE_HELP",
    "FAST_HELP",
    "FAST_LANES",
    "OPTION_HELP",
    "PRECISION_HELP",
    "PRECISIONS",
    "Alignment",
    "Borrowing",
    "BundleError",
    "Cancelled",
    "CheckpointError",
    "ConfigError",
    "ConvoyError",
    "Coverage",
    "Detection",
    "DeadlineExceeded",
    "DecodeOptions",
    "DeviceLost",
    "DeviceMemory",
    "ExecutorFailed",
    "InvalidRequest",
    "KeptSpan",
    "LaneSize",
    "Language",
    "Limits",
    "MarkedText",
    "ModelInfo",
    "Observer",
    "Overloaded",
    "Partial",
    "Placement",
    "Repetition",
    "Service",
    "ServiceSettings",
    "Slices",
    "ShelfEntry",
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
    "at_once",
    "each",
    "in_slices",
    "one_slice",
    "perplexity",
    "processors",
    "share_threads",
    "short",
    "slowest",
    "trim_heap",
    "usual_precision",
]


def share_threads(backend: str, threads: int) -> None:
    """Give all sessions of services with threads=None one pool of so many; once, before any of them."""
    if BACKENDS[backend].runtime == "onnxruntime":
        from engine.executors.onnx import share_threads as share

        share(threads)


class Service:
    """Models by name, each behind its own engine when it is loaded. Methods may be called from any thread."""

    def __init__(self, shelf: Shelf, folders: Folders) -> None:
        self.shelf, self._folders = shelf, folders

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        settings: ServiceSettings | None = None,
        observe: Callable[[str], Observer] | None = None,
    ) -> Service:
        """Load bundles, or with a budget only learn what they are; a path is a bundle or a folder of bundles.

        observe: makes the observer of a model.

        Raises BundleError or ConfigError that names the remedy; then nothing was started.
        """
        settings = settings or ServiceSettings()
        lazily = settings.budget is not None
        bundles = open_bundles(paths, settings, verify=settings.verify and not lazily)

        def load(bundle: Bundle) -> LoadedModel:
            return open_model(bundle, settings, observe(bundle.name) if observe else None)

        def read(path: Path) -> Bundle:
            return open_bundle(path, verify=settings.verify)

        source = ModelSource(lambda path: facts_of(read(path), settings), lambda path: load(read(path)))
        folders = Folders(paths, {bundle.name: bundle.path for bundle in bundles}, settings.languages)
        if lazily:
            facts = [facts_of(bundle, settings) for bundle in bundles]
            return cls(Shelf(facts, source, settings.budget), folders)
        loaded = [load(bundle) for bundle in bundles]
        return cls(Shelf([model.facts for model in loaded], source, loaded=loaded), folders)

    def start(self) -> None:
        self.shelf.start()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Take nothing more, wait for the engines' threads, and tell whether all that was accepted is done.

        drain: finish what was accepted; what takes too long is answered with Stopping.
        timeout: seconds for all of it.
        """
        return self.shelf.stop(drain=drain, timeout=timeout)

    def models(self) -> list[ModelInfo]:
        return self.shelf.infos()

    def languages(self) -> list[Language]:
        """List every language of the translating models, in the order of loading."""
        return languages_of([info.directions for info in self.models() if info.task == "translate"])

    def pick(
        self,
        task: str,
        source: str | None = None,
        target: str | None = None,
        model: str | None = None,
        *,
        characters: int = 0,
    ) -> str:
        """Name the first model for a task and languages (None: any), or `model` when it is for them.

        Where it takes two models, one after the other, the name is both with "+" between, as `model` may be.

        characters: of the longest text, of summarizers the first that reads so many is picked.

        Raises UnknownModel that says what there is.
        """
        if model is None:
            return choose_route(self.models(), task, source, target, characters).name
        choice = parse_route(self.models(), model)
        if not choice.serves(task, source, target):
            raise UnknownModel(f"model {model!r} can't {purpose(task, source, target)}")
        return choice.in_direction(source, target).name

    def behind(self, model: str) -> list[ModelInfo]:
        """List the models that a name stands for, in the order of their work. Raises UnknownModel."""
        return [leg.info for leg in parse_route(self.models(), model).legs]

    def borrow(self, model: str, vocabulary: int, texts: Sequence[str], count: int) -> Borrowing:
        """Choose words of a loaded model's source vocabulary as placeholders; decodes about 1,000 sentences.

        vocabulary: its tokens.
        texts: sentences of its source language, or none.
        """
        loaded = self.shelf.loaded[model]
        return asyncio.run(borrow(loaded.engine, loaded.text, vocabulary, texts, count))

    def detect(self, text: str, among: Sequence[str] | None = None) -> Detection:
        """Rank languages of the translating models, most likely first; or tell which other one a text is in.

        among: other languages to choose from.
        """
        codes = [language.code for language in self.languages()] if among is None else among
        return detect(text, codes)

    async def run(
        self,
        model: str,
        texts: Sequence[str | MarkedText],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> list[TextResult]:
        """Answer texts as one group: all are accepted or none.

        model: a name, or two with "+" between, of which the second reads the first's answers.
        deadline: a time.monotonic().

        Raises the errors of `plan` and of the engine. Cancelling the awaiting task cancels the group.
        """
        async with self._lend_async(model, deadline) as stages:
            return await answer(stages, texts, options or TextOptions(), deadline)

    async def stream(
        self,
        model: str,
        texts: Sequence[str | MarkedText],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> AsyncGenerator[Partial | list[TextResult]]:
        """Like `run`, and tells what is certain by then: each Partial is a beginning of its text's answer,
        longer than the one before. In the end the results.

        A slow consumer gets fewer of them. Of two models only the second's answers are told. Leaving the
        iterator (aclose) cancels the group.
        """
        async with (
            self._lend_async(model, deadline) as stages,
            aclosing(live(stages, texts, options or TextOptions(), deadline)) as news,
        ):
            async for event in news:
                yield event

    def run_many(
        self,
        model: str,
        texts: Iterable[str | MarkedText],
        options: TextOptions | None = None,
        on_done: Callable[[int], object] | None = None,
    ) -> Iterator[TextResult]:
        """Answer texts in input order, in bounded memory and with the engine's queue kept full.

        on_done: told how many more texts have been answered.

        An error names the number of its text, counted from 1. Leaving the iterator cancels what is in flight.
        """
        if options is not None and options.strategy == "refine":  # a text's rounds follow each other
            for text in texts:
                yield from asyncio.run(self.run(model, [text], options))
                if on_done:
                    on_done(1)
            return
        with self._lend(model) as stages:
            for result in stream_through(stages, texts, options or TextOptions()):
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
        """Tell how probable texts are, as one group: all are accepted or none.

        sources: None for a language model; other models score each text as the whole target of its source.
        deadline: a time.monotonic().

        Raises the errors of `engine.answers.score.score`. Cancelling the awaiting task cancels the group.
        """
        find_leg(self.models(), model)
        async with self._lend_async(model, deadline) as (stage,):
            return await score(stage.engine, stage.text, texts, sources, deadline)

    def score_many(self, model: str, pairs: Iterable[tuple[str, str | None]]) -> Iterator[TextScore]:
        """Score (text, source) pairs in input order and in bounded memory, like `run_many`."""
        find_leg(self.models(), model)
        with self._lend(model) as (stage,):
            yield from score_many(stage.engine, stage.text, pairs)

    async def canary(self, model: str, deadline: float = math.inf) -> None:
        """Answer a short text for real. Raises what `run` raises, and ExecutorFailed on a senseless score."""
        find_leg(self.models(), model)
        async with self._lend_async(model, deadline) as (stage,):
            await canary(stage.engine, stage.text, deadline)

    def stats(self) -> dict[str, Stats]:
        return self.shelf.stats()

    def healthy(self) -> bool:
        """Tell whether the engine's thread of every loaded model runs and takes requests."""
        return self.shelf.healthy

    def device_lost(self) -> bool:
        """Tell whether a device is lost: this process can't use it again and should end."""
        return self.shelf.device_lost

    def shelf_entries(self) -> dict[str, ShelfEntry]:
        """Tell how each model is kept."""
        return self.shelf.entries()

    def load(self, name: str) -> ModelInfo:
        """Bring a model into memory, if it is not there. Blocks.

        Raises UnknownModel, BundleError, ConfigError, ExecutorFailed when it can't answer, and Unavailable
        when it is larger than the budget.
        """
        find_info(self.models(), name)
        return self.shelf.load(name)

    def unload(self, name: str) -> ModelInfo:
        """Free a model's memory, if it is there, when the requests that use it have been answered. Blocks.

        A later use loads it again. Raises UnknownModel.
        """
        find_info(self.models(), name)
        return self.shelf.unload(name)

    def reload(self, name: str) -> ModelInfo:
        """Open a model's bundle anew and let new requests have it; those under way finish with the old one.

        Blocks for as long as that takes, and for that long there are two. Of a model that is not loaded only
        the facts are read. Raises UnknownModel, BundleError or ConfigError, and ExecutorFailed when the new
        one can't answer; then the old one goes on.
        """
        find_info(self.models(), name)
        return self.shelf.reload(name)

    def look(self) -> None:
        """Serve the bundles that were put into the folders of models since, and those no more that were taken
        out. Blocks while new ones are loaded, for one thread at a time; what can't be served is logged."""
        self._folders.look(self.shelf)

    @contextmanager
    def _lend(self, name: str) -> Iterator[list[Stage]]:
        """The stages of a model's name. A reload lets whoever is in here finish with the old model."""
        legs = parse_route(self.models(), name).legs
        with self.shelf.using([leg.info.name for leg in legs]) as models:
            yield _stages(legs, models)

    @asynccontextmanager
    async def _lend_async(self, name: str, deadline: float) -> AsyncIterator[list[Stage]]:
        """As `_lend`, in an event loop."""
        legs = parse_route(self.models(), name).legs
        async with self.shelf.awaiting([leg.info.name for leg in legs], deadline) as models:
            yield _stages(legs, models)

    def memory(self) -> dict[str, DeviceMemory]:
        """Return the memory of each GPU that a model is on, by the GPU's name."""
        return device_memory(device for info in self.models() for device in info.device.split(","))


def _stages(legs: Sequence[Leg], models: Mapping[str, LoadedModel]) -> list[Stage]:
    loaded = [models[leg.info.name] for leg in legs]
    return [Stage(model.engine, leg.toward(model.text)) for leg, model in zip(legs, loaded, strict=True)]
