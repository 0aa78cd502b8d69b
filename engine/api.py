"""The front door: all that `server/` and `cli/` may import of the engine."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from safetensors import safe_open

from engine.aio import generate_group
from engine.bundle import MANIFEST, PRECISIONS, WEIGHTS, Bundle, open_bundle
from engine.compose import Alignment, Plan, TextModel, TextOptions, TextResult, compose, plan, slowest
from engine.engine import Engine, EngineSettings, Observer, Stats
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
)
from engine.executors import BACKENDS, Placement, open_executors
from engine.stream import stream
from engine.text.detect import detect
from engine.text.tokenizer import open_tokenizer
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
    "DeadlineExceeded",
    "DecodeOptions",
    "ExecutorFailed",
    "InvalidRequest",
    "Language",
    "Limits",
    "ModelInfo",
    "Observer",
    "Overloaded",
    "Service",
    "ServiceSettings",
    "Stats",
    "Stopping",
    "TextOptions",
    "TextResult",
    "Timings",
    "TooLarge",
    "UnknownModel",
    "share_threads",
    "slowest",
]

INLINE: Final = 2_000  # characters that are split and tokenized in the event loop itself; more go to a thread
SAMPLE: Final = 4_000  # characters that decide a text's language
CANARY: Final = "Hallo, 1 2 3."
CANARY_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How every model is run.

    lanes: (beams, slots) of each. threads: of each ONNX session; None takes the pool of `share_threads`.
    queue_tokens, encode_tokens: see EngineSettings. beam_size: overrides the models' default. verify: compare
    the hashes of every bundle's files.
    """

    backend: str = "onnx"
    device: str = "cpu"
    precision: str = "fp32"
    threads: int | None = 1
    lanes: tuple[tuple[int, int], ...] = ((1, 32), (5, 32), (16, 8))
    queue_tokens: int = 65_536
    encode_tokens: int = 2_048
    beam_size: int | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is. `options` are its decoding defaults."""

    name: str
    task: str
    source: str
    target: str
    architecture: str
    parameters: int
    limits: Limits
    precision: str
    backend: str
    options: DecodeOptions


@dataclass(frozen=True, slots=True)
class Language:
    """A language that texts may be translated from or, with no targets, only into."""

    code: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Model:
    info: ModelInfo
    text: TextModel
    engine: Engine


def share_threads(threads: int) -> None:
    """One pool for all ONNX sessions of services with threads=None; once per process, before the first."""
    from engine.executors.onnx import share_threads as share

    share(threads)


class Service:
    """Loaded models by name, each behind its own engine. Methods may be called from any thread."""

    def __init__(self, models: Sequence[_Model]) -> None:
        self._models = {model.info.name: model for model in models}

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
        bundles = [
            open_bundle(p, verify=settings.verify) for path in paths for p in _bundle_paths(Path(path))
        ]
        if not bundles:
            raise BundleError("no models to load: give the path of a bundle or of a folder of bundles")
        paths_of: dict[str, Path] = {}
        for bundle in bundles:
            if bundle.name in paths_of:
                both = f"{paths_of[bundle.name]} and {bundle.path}"
                raise BundleError(f"two bundles have the name {bundle.name!r}: {both}; leave one out")
            paths_of[bundle.name] = bundle.path
        return cls([_open(b, settings, observe(b.name) if observe else None) for b in bundles])

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
            into = targets.setdefault(info.source, [])
            if info.target not in into:
                into.append(info.target)
            targets.setdefault(info.target, [])
        return [Language(code, tuple(into)) for code, into in targets.items()]

    def pick(
        self, task: str, source: str | None = None, target: str | None = None, model: str | None = None
    ) -> str:
        """Name of the first model for a task and languages (None: any), or `model` when it is for them.

        Raises UnknownModel that says what there is.
        """
        infos = self.models()
        if model is not None and model not in self._models:
            raise UnknownModel(f"no model {model!r}; loaded are: {', '.join(self._models)}")
        for info in infos:
            if (
                (model is None or info.name == model)
                and info.task == task
                and source in (None, info.source)
                and target in (None, info.target)
            ):
                return info.name
        wanted = f"{task} from {source or 'any language'} to {target or 'any language'}"
        if model is not None:
            raise UnknownModel(f"model {model!r} can't {wanted}")
        known = ", ".join(f"{i.name} ({i.task} {i.source} to {i.target})" for i in infos)
        raise UnknownModel(f"no model can {wanted}; loaded are: {known}")

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Languages of the translating models, most likely first, with confidences from 0 to 100."""
        return detect(text[:SAMPLE], [language.code for language in self.languages()])

    async def run(
        self,
        model: str,
        texts: Sequence[str],
        options: TextOptions | None = None,
        deadline: float = math.inf,
    ) -> list[TextResult]:
        """Answer texts as one group: all are accepted or none. deadline: a time.monotonic().

        Raises the errors of `plan` and of the engine. Cancelling the awaiting task cancels the group.
        """
        chosen, wish = self._model(model), options or TextOptions()
        long = sum(map(len, texts)) > INLINE

        def prepare() -> list[Plan]:
            return [plan(chosen.text, text, wish) for text in texts]

        plans = await asyncio.to_thread(prepare) if long else prepare()
        results = await generate_group(chosen.engine, [job for p in plans for job in p.jobs], deadline)

        def finish() -> list[TextResult]:
            rest = iter(results)
            return [compose(chosen.text, p, [next(rest) for _ in p.jobs]) for p in plans]

        return await asyncio.to_thread(finish) if long else finish()

    def run_many(
        self,
        model: str,
        texts: Iterable[str],
        options: TextOptions | None = None,
        on_done: Callable[[int], object] | None = None,
    ) -> Iterator[TextResult]:
        """Answer texts in input order, in bounded memory and with the engine's queue kept full.

        on_done: told how many more texts have been answered. An error names the number of its text, counted
        from 1. Leaving the iterator cancels what is in flight.
        """
        chosen = self._model(model)
        for result in stream(chosen.engine, chosen.text, texts, options or TextOptions()):
            if on_done:
                on_done(1)
            yield result

    async def canary(self, model: str, deadline: float = math.inf) -> None:
        """Really answer a short text. Raises what `run` raises, and ExecutorFailed on a senseless score."""
        chosen = self._model(model).text
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

    def _model(self, name: str) -> _Model:
        if name not in self._models:
            raise UnknownModel(f"no model {name!r}; loaded are: {', '.join(self._models)}")
        return self._models[name]


def _bundle_paths(path: Path) -> list[Path]:
    """The path itself when it is a bundle, else the bundles in it."""
    if (path / MANIFEST).exists() or not path.is_dir():
        return [path]
    found = sorted(entry.parent for entry in path.glob(f"*/{MANIFEST}"))
    if not found:
        raise BundleError(f"{path}: neither a bundle nor a folder of bundles (no {MANIFEST} in it)")
    return found


def _open(bundle: Bundle, settings: ServiceSettings, observer: Observer | None) -> _Model:
    place = Placement(settings.backend, settings.device, settings.precision, settings.threads, settings.lanes)
    executors = open_executors(bundle, place)
    limits = EngineSettings(settings.queue_tokens, settings.encode_tokens, f"engine {bundle.name}")
    engine = Engine(executors, limits, observer)
    options = bundle.options
    if settings.beam_size is not None:
        options = replace(options, beam_size=settings.beam_size)
    try:
        options.check(engine.limits)
    except InvalidRequest as error:
        raise ConfigError(
            f"{bundle.path}: its decoding defaults don't fit: {error}; change the lanes"
        ) from error
    info = ModelInfo(
        name=bundle.name,
        task=bundle.task,
        source=bundle.source,
        target=bundle.target,
        architecture=bundle.config.architecture,
        parameters=_parameters(bundle.file(WEIGHTS)),
        limits=engine.limits,
        precision=settings.precision,
        backend=settings.backend,
        options=options,
    )
    text = TextModel(
        task=bundle.task,
        source=bundle.source,
        target=bundle.target,
        tokenizer=open_tokenizer(bundle),
        defaults=options,
        limits=engine.limits,
        eos=engine.eos,
    )
    return _Model(info, text, engine)


def _parameters(path: Path) -> int:
    """Numbers in a safetensors file; only its header is read."""
    with safe_open(path, framework="np") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
