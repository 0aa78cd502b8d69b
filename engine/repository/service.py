"""Models by name, each behind its own engine while it is loaded: what those who serve or run them ask."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

from engine.answers.answer import answer, live
from engine.answers.canary import canary
from engine.answers.compose import TextResult
from engine.answers.directions import Language, languages_of
from engine.answers.drafts import Partial
from engine.answers.options import TextOptions, decode_options
from engine.answers.pivot import Stage, stream_through
from engine.answers.placeholders import PlaceholderChoice, choose_placeholders
from engine.answers.score import TextScore, score, score_many
from engine.answers.stream import Outcomes, answers_of
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import ConfigError, InvalidRequest, UnknownModel
from engine.repository.catalogue import Leg, ModelRoute, choose_route, find_info, parse_route, purpose
from engine.repository.figures import DeviceMemory, RepositoryEntry, device_memory
from engine.repository.folders import Folders
from engine.repository.loading import (
    LoadedModel,
    ModelFacts,
    ModelInfo,
    ModelSource,
    ServiceSettings,
    facts_of,
    open_bundles,
    open_model,
    undamaged,
)
from engine.repository.repository import Repository
from engine.schedule.stats import Observer, Stats
from engine.text.detect import Detection, detect
from engine.text.placeables.masking import MarkedText


class Service:
    """Models by name, each behind its own engine when it is loaded. Methods may be called from any thread."""

    def __init__(self, repository: Repository, folders: Folders) -> None:
        self.repository, self._folders = repository, folders

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        settings: ServiceSettings | None = None,
        observe: Callable[[str], Observer] | None = None,
        *,
        lazily: bool = False,
    ) -> Service:
        """Load bundles, or only read their descriptions: a model is then loaded when it is first used.

        paths: bundles, or folders of bundles.
        settings: how models are placed and run; None: the defaults.
        observe: makes the observer of a model, by its name.
        lazily: only read the descriptions, as with a budget.

        Raises BundleError or ConfigError that names the remedy; then nothing was started.
        """
        settings = settings or ServiceSettings()
        lazily = lazily or settings.budget is not None
        bundles = open_bundles(paths, settings, verify=settings.verify and not lazily)

        def load(bundle: Bundle) -> LoadedModel:
            return open_model(bundle, settings, observe(bundle.name) if observe else None)

        def read(path: Path) -> Bundle:
            return open_bundle(path, verify=settings.verify)

        source = ModelSource(lambda path: facts_of(read(path), settings), lambda path: load(read(path)))
        by_path = {bundle.path: bundle for bundle in bundles}
        if lazily:
            facts = undamaged(list(by_path), paths, settings, lambda p: facts_of(by_path[p], settings))
            _check_budget(facts, settings.budget)
            repository = Repository(facts, source, settings.budget)
        else:
            loaded = undamaged(list(by_path), paths, settings, lambda path: load(by_path[path]))
            facts = [model.facts for model in loaded]
            repository = Repository(facts, source, loaded=loaded)
        return cls(repository, Folders(paths, {one.info.name: one.path for one in facts}, settings.languages))

    def start(self) -> None:
        self.repository.start()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Take nothing more, wait for the engines' threads, and tell whether all that was accepted is done.

        drain: finish what was accepted; what takes too long is answered with Stopping.
        timeout: seconds for all of it.
        """
        return self.repository.stop(drain=drain, timeout=timeout)

    def models(self) -> list[ModelInfo]:
        return [facts.info for facts in self.repository.facts()]

    def languages(self) -> list[Language]:
        """List every language of the translating models, in the order of loading."""
        models = (info.directions for info in self.models() if info.task == "translate")
        return list(languages_of(tuple(models)))

    def pick(
        self,
        task: str,
        source: str | None = None,
        target: str | None = None,
        model: str | None = None,
        *,
        characters: int = 0,
    ) -> ModelRoute:
        """Pick the first model for a task and languages, else the first two by way of a third language.

        task: "translate", "summarize" or "language-model".
        source, target: codes of languages; None: any.
        model: the name to be picked, if it is for that task and these languages.
        characters: length of the longest text; of summarizers the first that reads so many is picked.

        Raises UnknownModel that says what there is.
        """
        if model is None:
            return choose_route(self.models(), task, source, target, characters)
        route = self.route(model)
        if not route.serves(task, source, target):
            raise UnknownModel(f"model {model!r} can't {purpose(task, source, target)}")
        return route.in_direction(source, target)

    def check_options(self, options: TextOptions) -> None:
        """Check options of texts that no model reads. Raises InvalidRequest on what no translating model can
        do."""
        fault: InvalidRequest | None = None
        for info in self.models():
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

    def route(self, name: str) -> ModelRoute:
        """Parse a model's name, or two with "+" between, of which the second reads the first's answers.

        Raises UnknownModel.
        """
        return parse_route(self.models(), name)

    def choose_placeholders(
        self, model: str, vocabulary: int, texts: Sequence[str], count: int
    ) -> PlaceholderChoice:
        """Choose words of a loaded model's source vocabulary as placeholders; decodes about 1,000 sentences.

        model: the model's name.
        vocabulary: number of the model's tokens.
        texts: sentences of the model's source language, or none.
        count: number of words to choose.
        """
        loaded = self.repository.loaded[model]
        return asyncio.run(choose_placeholders(loaded.engine, loaded.text, vocabulary, texts, count))

    def detect(self, text: str, among: Sequence[str] | None = None) -> Detection:
        """Rank languages of the translating models, most likely first; or tell which other one a text is in.

        text: of any length.
        among: other languages to choose from.
        """
        if among is not None:
            return detect(text, among)
        return detect(text, [language.code for language in self.languages()], self._known_shares)

    def _known_shares(self, words: Sequence[str]) -> dict[str, float]:
        """The share of words that all vocabularies which read a language know; nothing while one is not in
        memory."""
        loaded, shares = self.repository.loaded, dict[str, float]()
        for info in self.models():
            if info.task != "translate":
                continue
            if info.name not in loaded:
                return {}
            for source in info.directions.sources:
                share = loaded[info.name].text.known_share(words, source)
                shares[source] = min(shares.get(source, 1.0), share)
        return shares

    async def run(
        self,
        model: str | ModelRoute,
        texts: Sequence[str | MarkedText],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> list[TextResult]:
        """Answer texts as one group: all are accepted or none.

        model: a route, or the name of one.
        texts: sources of any length; options say how they are split.
        options: how to answer; None: as the model's own are.
        deadline: a time.monotonic() by which the answer must be there.

        Raises the errors of `plan` and of the engine. Cancelling the awaiting task cancels the group.
        """
        async with self._lend_async(self._route(model), deadline) as stages:
            return await answer(stages, texts, options or TextOptions(), deadline)

    async def stream(
        self,
        model: str | ModelRoute,
        texts: Sequence[str | MarkedText],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> AsyncGenerator[Partial | list[TextResult]]:
        """Answer texts as `run` does, and tell the certain beginnings of answers while they grow.

        model: a route, or the name of one; of two models only the second's answers are told.
        texts, options, deadline: as `run` has them.

        Yields a Partial for each longer beginning (a slow consumer gets fewer), then the list of results.
        Leaving the iterator (aclose) cancels the group.
        """
        async with (
            self._lend_async(self._route(model), deadline) as stages,
            aclosing(live(stages, texts, options or TextOptions(), deadline)) as news,
        ):
            async for event in news:
                yield event

    def run_many(
        self,
        model: str | ModelRoute,
        texts: Iterable[str | MarkedText],
        options: TextOptions | None = None,
        on_done: Callable[[int], object] | None = None,
    ) -> Iterator[TextResult]:
        """Answer texts in input order, in bounded memory and with the engine's queue kept full.

        model: a route, or the name of one.
        texts: sources, read as they are needed.
        options: how to answer; None: as the model's own are.
        on_done: called with how many more texts have been answered.

        An error names the number of its text, counted from 1. Leaving the iterator cancels what is in flight.
        """
        options = options or TextOptions()
        if options.strategy == "refine":  # a text's rounds follow each other
            outcomes: Outcomes = (asyncio.run(self.run(model, [text], options))[0] for text in texts)
        else:
            outcomes = self.run_each(model, ((text, options) for text in texts))
        yield from answers_of(outcomes, on_done)

    def run_each(
        self, model: str | ModelRoute, texts: Iterable[tuple[str | MarkedText, TextOptions]]
    ) -> Outcomes:
        """Answer texts as `run_many` does, each with its own options; an error stands for its text alone.

        model: a route, or the name of one.
        texts: each with how it is answered, read as they are needed.
        """
        with self._lend(self._route(model)) as stages:
            yield from stream_through(stages, texts)

    async def score(
        self,
        model: str | ModelRoute,
        texts: Sequence[str],
        sources: Sequence[str] | None = None,
        deadline: float = math.inf,
    ) -> list[TextScore]:
        """Tell how probable texts are, as one group: all are accepted or none.

        model: a route of one model, or the name of one.
        texts: targets, each scored whole.
        sources: None for a language model; other models score each text as the whole target of its source.
        deadline: a time.monotonic() by which the answer must be there.

        Raises UnknownModel on a route of two models, and the errors of `engine.answers.score.score`.
        Cancelling the awaiting task cancels the group.
        """
        async with self._lend_async(self._route(model, legs=1), deadline) as (stage,):
            return await score(stage.engine, stage.text, texts, sources, deadline)

    def score_many(self, model: str, pairs: Iterable[tuple[str, str | None]]) -> Iterator[TextScore]:
        """Score (text, source) pairs in input order and in bounded memory, like `run_many`."""
        with self._lend(self._route(model, legs=1)) as (stage,):
            yield from score_many(stage.engine, stage.text, pairs)

    async def canary(self, model: str, deadline: float = math.inf) -> None:
        """Answer a short text for real. Raises what `run` raises, and ExecutorFailed on a senseless score."""
        async with self._lend_async(self._route(model, legs=1), deadline) as (stage,):
            await canary(stage.engine, stage.text, deadline)

    def stats(self) -> dict[str, Stats]:
        return self.repository.stats()

    def healthy(self) -> bool:
        """Tell whether the engine's thread of every loaded model runs and takes requests."""
        return self.repository.healthy

    def device_lost(self) -> bool:
        """Tell whether a device is lost: this process can't use it again and should end."""
        return self.repository.device_lost

    def stall_seconds(self) -> float:
        """Tell for how many seconds an engine's thread has been at the same turn."""
        return self.repository.stall_seconds

    def repository_entries(self) -> dict[str, RepositoryEntry]:
        """Tell how each model is kept."""
        return self.repository.entries()

    def load(self, name: str) -> ModelInfo:
        """Bring a model into memory, if it is not there. Blocks.

        Raises UnknownModel, BundleError, ConfigError, ExecutorFailed when it can't answer, and Unavailable
        when it is larger than the budget.
        """
        find_info(self.models(), name)
        return self.repository.load(name)

    def unload(self, name: str) -> ModelInfo:
        """Free a model's memory, if it is there, when the requests that use it have been answered. Blocks.

        A later use loads it again. Raises UnknownModel.
        """
        find_info(self.models(), name)
        return self.repository.unload(name)

    def reload(self, name: str, replaced: Callable[[], None] | None = None) -> ModelInfo:
        """Open a model's bundle anew for new requests; requests under way finish with the old one.

        name: the model's name.
        replaced: called when new requests get the new one, if it was loaded.

        Blocks for as long as that takes, and for that long there are two. Of a model that is not loaded only
        the facts are read. Raises UnknownModel, BundleError or ConfigError, and ExecutorFailed when the new
        one can't answer; then the old one goes on.
        """
        find_info(self.models(), name)
        return self.repository.reload(name, replaced)

    def rescan_folders(self) -> None:
        """Serve bundles that were put into the folders of models since, and let go of those taken out.

        Blocks while new ones are loaded, for one thread at a time; what can't be served is logged.
        """
        self._folders.rescan(self.repository)

    def _route(self, model: str | ModelRoute, legs: int = 2) -> ModelRoute:
        """The route itself, or parsed from its name; of so many models at most."""
        route = self.route(model) if isinstance(model, str) else model
        if len(route.legs) > legs:
            raise UnknownModel(f"{route.name!r} is two models, one after the other: name one of them")
        return route

    @contextmanager
    def _lend(self, route: ModelRoute) -> Iterator[list[Stage]]:
        """The stages of a route. A reload lets whoever is in here finish with the old model."""
        with self.repository.using([leg.info.name for leg in route.legs]) as models:
            yield _stages(route.legs, models)

    @asynccontextmanager
    async def _lend_async(self, route: ModelRoute, deadline: float) -> AsyncIterator[list[Stage]]:
        """As `_lend`, in an event loop."""
        async with self.repository.awaiting([leg.info.name for leg in route.legs], deadline) as models:
            yield _stages(route.legs, models)

    def memory(self) -> dict[str, DeviceMemory]:
        """Return the memory of each GPU that a model is on, by the GPU's name."""
        return device_memory(device for info in self.models() for device in info.device.split(","))


def _check_budget(facts: Sequence[ModelFacts], budget: int | None) -> None:
    """Raise ConfigError on a budget that no model fits in."""
    smallest = min(facts, key=lambda one: one.cost)
    if budget is not None and smallest.cost > budget:
        raise ConfigError(
            f"no model fits in the budget of {budget >> 20} MiB; the smallest, {smallest.info.name!r}, takes "
            f"about {smallest.cost >> 20} MiB: raise model_budget"
        )


def _stages(legs: Sequence[Leg], models: Mapping[str, LoadedModel]) -> list[Stage]:
    loaded = [models[leg.info.name] for leg in legs]
    return [Stage(model.engine, leg.toward(model.text)) for leg, model in zip(legs, loaded, strict=True)]
