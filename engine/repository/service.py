"""The service: models by name, each with its own engine while it is loaded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from engine.answers.answer import answer, live
from engine.answers.compose import TextResult
from engine.answers.directions import Language, languages_of
from engine.answers.drafts import Partial
from engine.answers.options import TextOptions
from engine.answers.pivot import Stage, stream_through
from engine.answers.placeholders import PlaceholderChoice, choose_placeholders
from engine.answers.routing.routed import Second, answer_routed
from engine.answers.score import TextScore, score, score_many
from engine.answers.stream import Outcomes, answers_of
from engine.errors import UnknownModel
from engine.repository.canary import canary
from engine.repository.catalogue import (
    Leg,
    ModelRoute,
    check_options,
    choose_route,
    find_info,
    parse_route,
    purpose,
)
from engine.repository.figures import DeviceFigures, RepositoryEntry, device_figures
from engine.repository.folders import Folders
from engine.repository.loading import LoadedModel, ModelInfo, ServiceSettings
from engine.repository.opening import open_repository
from engine.repository.repository import Repository
from engine.repository.routing import Router, Rule, known_rules
from engine.repository.upstreams.fallback import (
    Texts,
    each_or_fall_back,
    run_or_fall_back,
    stream_or_fall_back,
)
from engine.repository.upstreams.markers import marked_for, unmarked
from engine.schedule.stats import Observer, Stats
from engine.schedule.workers import Workers
from engine.text.detect import Detection, detect, surely_other
from engine.text.placeables.masked_text import MarkedText


class Service:
    """Models by name, each with its own engine while it is loaded. Any thread may call the methods."""

    def __init__(self, repository: Repository, folders: Folders, rules: Sequence[Rule] = ()) -> None:
        """Make a service of models that are not started.

        repository: models.
        folders: folders of the models.
        rules: rules of the routing by confidence.
        """
        self.repository, self._folders = repository, folders
        self.router = Router(rules)
        self.workers: Workers | None = None  # of a server, for its long texts

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        settings: ServiceSettings | None = None,
        observe: Callable[[str], Observer] | None = None,
        *,
        lazily: bool = False,
    ) -> Service:
        """Load bundles, or only read their facts: a model is then loaded at its first use.

        paths: paths of bundles, or of folders of bundles.
        settings: settings of all models; None: the defaults.
        observe: function that makes the observer of a model by name.
        lazily: only read the facts, as with a budget.

        Raises BundleError or ConfigError that names the remedy.
        """
        settings = settings or ServiceSettings()
        repository, folders = open_repository(paths, settings, observe, lazily=lazily)
        return cls(repository, folders, known_rules(settings, [one.info.name for one in repository.facts()]))

    def start(self) -> None:
        self.repository.start()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Accept no more requests, and wait for the engines to stop.

        drain: accepted requests are finished; after the timeout they are answered with Stopping.
        timeout: longest wait in seconds.

        Returns whether all accepted requests were finished.
        """
        return self.repository.stop(drain=drain, timeout=timeout)

    def models(self) -> list[ModelInfo]:
        return [facts.info for facts in self.repository.facts()]

    def languages(self) -> list[Language]:
        """Return the languages of all translation models, in the order of the models."""
        return list(languages_of(tuple(i.directions for i in self.models() if i.task == "translate")))

    def pick(
        self,
        task: str,
        source: str | None = None,
        target: str | None = None,
        model: str | None = None,
        *,
        characters: int = 0,
    ) -> ModelRoute:
        """Pick the first model for a task and languages, otherwise the first two models with a pivot.

        task: "translate", "summarize" or "language-model".
        source, target: codes of languages; None: any.
        model: name of a model or route; it must serve the task and the languages. None: any model.
        characters: length of the longest text; the first summarizer that can probably read it is picked.

        Raises UnknownModel with a list of the models.
        """
        if model is None:
            return choose_route(self.models(), task, source, target, characters)
        route = self.route(model)
        if not route.serves(task, source, target):
            raise UnknownModel(f"model {model!r} can't {purpose(task, source, target)}")
        return route.in_direction(source, target)

    def check_options(self, options: TextOptions) -> None:
        """Raise InvalidRequest if no translation model can satisfy some options."""
        check_options(self.models(), options)

    def route(self, name: str) -> ModelRoute:
        """Return the route of a model's name, or of two names joined by "+". Raises UnknownModel."""
        return parse_route(self.models(), name)

    def choose_placeholders(
        self, model: str, vocabulary: int, texts: Sequence[str], count: int
    ) -> PlaceholderChoice:
        """Choose words of a loaded model's source vocabulary as placeholders; decodes about 1,000 sentences.

        model: name of the model.
        vocabulary: number of source tokens of the model.
        texts: sentences of the model's source language; may be empty.
        count: number of words to choose.
        """
        loaded = self.repository.loaded[model]
        return asyncio.run(choose_placeholders(loaded.engine, loaded.text, vocabulary, texts, count))

    def detect(self, text: str, among: Sequence[str] | None = None) -> Detection:
        """Rank languages by the probability that a text is written in them.

        text: text of any length.
        among: codes of languages to choose from; None: the languages of the translation models.
        """
        if among is not None:
            return detect(text, among)
        return detect(text, [language.code for language in self.languages()], self._known_shares)

    def surely_other(self, text: str, language: str) -> str | None:
        """Return the language of a text that is surely not in the given language; None in any doubt."""
        return surely_other(text, language, [known.code for known in self.languages()])

    def _known_shares(self, words: Sequence[str]) -> dict[str, float]:
        """Return the least share of words in the vocabularies for a language, by language.

        Empty while a translation model is not in memory.
        """
        loaded, shares = self.repository.loaded, dict[str, float]()
        for info in (one for one in self.models() if one.task == "translate"):
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

        model: route, or name of a route.
        texts: texts of any length.
        options: options of the answers; None: the defaults.
        deadline: time.monotonic() after which the group fails.

        Raises the errors of `plan` and of the engine. Cancelling the awaiting task cancels the group.
        """
        answer_by = partial(self._answer, options=options or TextOptions(), deadline=deadline)
        return await run_or_fall_back(answer_by, self._route(model), self.models, texts)

    async def _answer(
        self, route: ModelRoute, texts: Texts, options: TextOptions, deadline: float, *, routed: bool = True
    ) -> list[TextResult]:
        """Answer texts by the models of a route; with a rule, sentences in doubt by a second model."""
        budget = self.router.budget_of(route) if routed else None
        async with self._use_async(route, deadline) as stages:
            if budget is None:
                results = await answer(stages, marked_for(route, texts), options, deadline)
                return unmarked(route, texts, results)
            (leg,), languages = route.legs, [language.code for language in self.languages()]

            async def ask(texts: Texts, options: TextOptions, deadline: float) -> list[TextResult]:
                second = self.pick("translate", leg.source, leg.target, budget.name)
                return await self._answer(second, texts, options, deadline, routed=False)

            return await answer_routed(stages[0], texts, options, deadline, Second(budget, ask, languages))

    async def stream(
        self,
        model: str | ModelRoute,
        texts: Sequence[str | MarkedText],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> AsyncGenerator[Partial | list[TextResult]]:
        """Answer texts like `run`, and yield the certain beginnings of answers while they grow.

        model: route, or name of a route. The beginnings are of the last model's answers.
        texts, options, deadline: parameters of `run`.

        Yields a Partial for each longer beginning (fewer for a slow consumer), then the list of results.
        Closing the iterator (aclose) cancels the group. Routed texts have no beginnings.
        """

        answer_by = partial(self._answer, options=options or TextOptions(), deadline=deadline)

        async def stream_by(route: ModelRoute, texts: Texts) -> AsyncGenerator[Partial | list[TextResult]]:
            if self.router.budget_of(route):
                yield await answer_by(route, texts)
                return
            async with (
                self._use_async(route, deadline) as stages,
                aclosing(live(stages, texts, options or TextOptions(), deadline)) as events,
            ):
                async for event in events:
                    yield event

        route = self._route(model)
        async with aclosing(stream_or_fall_back(stream_by, answer_by, route, self.models, texts)) as events:
            async for event in events:
                yield event

    def run_many(
        self,
        model: str | ModelRoute,
        texts: Iterable[str | MarkedText],
        options: TextOptions | None = None,
        on_done: Callable[[int], object] | None = None,
    ) -> Iterator[TextResult]:
        """Yield the answers of texts in input order and in bounded memory; the engine's queue is kept full.

        model: route, or name of a route.
        texts: texts, read as needed.
        options: options of the answers; None: the defaults.
        on_done: function that is called with the number of newly answered texts.

        Errors name the number of the text, counted from 1. Closing the iterator cancels requests in flight.
        """
        options = options or TextOptions()
        if options.strategy == "refine":  # the rounds of a text depend on each other
            outcomes: Outcomes = (asyncio.run(self.run(model, [text], options))[0] for text in texts)
        else:
            outcomes = self.run_each(model, ((text, options) for text in texts))
        yield from answers_of(outcomes, on_done)

    def run_each(
        self, model: str | ModelRoute, texts: Iterable[tuple[str | MarkedText, TextOptions]]
    ) -> Outcomes:
        """Yield the answer or the error of each text, like `run_many`.

        model: route, or name of a route.
        texts: texts with their options, read as needed.
        """
        route = self._route(model)
        with self._use(route) as stages:
            answer_by = partial(stream_through, stages)
            yield from each_or_fall_back(answer_by, self.run_each, route, self.models, texts)

    async def score(
        self,
        model: str | ModelRoute,
        texts: Sequence[str],
        sources: Sequence[str] | None = None,
        deadline: float = math.inf,
    ) -> list[TextScore]:
        """Score texts as one group: all are accepted or none.

        model: route of one model, or its name.
        texts: texts to score; each is one target.
        sources: source of each text; None for a language model.
        deadline: time.monotonic() after which the group fails.

        Raises UnknownModel on a route of two models, and the errors of `engine.answers.score.score`.
        Cancelling the awaiting task cancels the group.
        """
        async with self._use_async(self._route(model, legs=1), deadline) as (stage,):
            return await score(stage.engine, stage.text, texts, sources, deadline)

    def score_many(self, model: str, pairs: Iterable[tuple[str, str | None]]) -> Iterator[TextScore]:
        """Score (text, source) pairs in input order and in bounded memory, like `run_many`."""
        with self._use(self._route(model, legs=1)) as (stage,):
            yield from score_many(stage.engine, stage.text, pairs)

    async def canary(self, model: str, deadline: float = math.inf) -> None:
        """Answer a short text. Raises the errors of `run`, and ExecutorFailed if the score is not finite."""
        async with self._use_async(self._route(model, legs=1), deadline) as (stage,):
            await canary(stage.engine, stage.text, deadline)

    def stats(self) -> dict[str, Stats]:
        return self.repository.stats()

    def healthy(self) -> bool:
        """Return whether the engine of every loaded model runs and accepts requests."""
        return self.repository.healthy

    def device_lost(self) -> bool:
        """Return whether a device is lost: this process can't use it any more and should end."""
        return self.repository.device_lost

    def stall_seconds(self) -> float:
        """Return the seconds since the start of the longest current turn of an engine."""
        return self.repository.stall_seconds

    def repository_entries(self) -> dict[str, RepositoryEntry]:
        """Return the state of each model by name."""
        return self.repository.entries()

    def load(self, name: str) -> ModelInfo:
        """Load a model if it is not in memory. Blocks.

        Raises UnknownModel, BundleError, ConfigError, ExecutorFailed if it can't answer, and Unavailable if
        it is larger than the budget.
        """
        find_info(self.models(), name)
        return self.repository.load(name)

    def unload(self, name: str) -> ModelInfo:
        """Unload a model after its requests have been answered; a later use loads it again. Blocks.

        Raises UnknownModel.
        """
        find_info(self.models(), name)
        return self.repository.unload(name)

    def reload(self, name: str, replaced: Callable[[], None] | None = None) -> ModelInfo:
        """Open a model's bundle again for new requests; requests in flight finish with the old model.

        name: name of the model.
        replaced: function that is called when new requests get the new model.

        Blocks until the old model has finished; both models are in memory for that time. For a model that is
        not loaded, only the facts are read. Raises UnknownModel, BundleError or ConfigError, and
        ExecutorFailed if the new model can't answer; the old model is then still served.
        """
        find_info(self.models(), name)
        return self.repository.reload(name, replaced)

    def rescan_folders(self) -> None:
        """Add models of new bundles in the served folders, and remove models of missing bundles.

        Blocks while models are loaded; for one thread at a time. Bundles that can't be served are logged.
        """
        self._folders.rescan(self.repository)

    def _route(self, model: str | ModelRoute, legs: int = 2) -> ModelRoute:
        """Return a route, parsed from a name if necessary. Raises UnknownModel on more than `legs` models."""
        route = self.route(model) if isinstance(model, str) else model
        if len(route.legs) > legs:
            raise UnknownModel(f"{route.name!r} is two models, one after the other: name one of them")
        return route

    @contextmanager
    def _use(self, route: ModelRoute) -> Iterator[list[Stage]]:
        """Keep the models of a route loaded. During a reload, users of the old model finish with it."""
        with self.repository.using([leg.info.name for leg in route.legs]) as models:
            yield _stages(route.legs, models, None)

    @asynccontextmanager
    async def _use_async(self, route: ModelRoute, deadline: float) -> AsyncIterator[list[Stage]]:
        """Asynchronous version of `_use`."""
        async with self.repository.awaiting([leg.info.name for leg in route.legs], deadline) as models:
            yield _stages(route.legs, models, self.workers)

    def devices(self) -> dict[str, DeviceFigures]:
        """Return the state of each GPU with a model, by name of the GPU."""
        return device_figures(device for info in self.models() for device in info.device.split(","))


def _stages(legs: Sequence[Leg], models: Mapping[str, LoadedModel], workers: Workers | None) -> list[Stage]:
    pairs = [(leg, models[leg.info.name]) for leg in legs]
    return [Stage(model.engine, leg.toward(model.text), workers) for leg, model in pairs]
