"""From a bundle to a model that can be asked: its executors, engine, text side and description."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import safe_open

from engine.bundle import MANIFEST, WEIGHTS, Bundle, open_bundle
from engine.directions import Directions, directions_of, toward
from engine.engine import Engine, EngineSettings, Observer
from engine.errors import BundleError, ConfigError, InvalidRequest
from engine.executors import Placement, open_executors
from engine.plan import TextModel
from engine.text.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Limits


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How every model is run.

    lanes: (beams, slots) of each. threads: of each ONNX session; None takes the pool of `share_threads`.
    queue_tokens, encode_tokens: see EngineSettings. beam_size: overrides the models' default. verify: compare
    the hashes of every bundle's files. languages: when given, load only the models whose languages are all
    among these codes.
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
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is. `options` are its decoding defaults. placeholders: phrases of one sentence that
    it can keep. load_seconds: what opening it took. device: where it runs. sources, targets: all languages of
    a model, `source` and `target` first."""

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
    placeholders: int = 0
    load_seconds: float = 0.0
    device: str = "cpu"
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def directions(self) -> Directions:
        return Directions(self.sources or (self.source,), self.targets or (self.target,))


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model behind its engine. again: opens the same bundle anew, from its files as they are then."""

    info: ModelInfo
    text: TextModel
    engine: Engine
    again: Callable[[], LoadedModel]


def bundle_paths(path: Path) -> list[Path]:
    """The path itself when it is a bundle, else the bundles in it."""
    if (path / MANIFEST).exists() or not path.is_dir():
        return [path]
    found = sorted(entry.parent for entry in path.glob(f"*/{MANIFEST}"))
    if not found:
        raise BundleError(f"{path}: neither a bundle nor a folder of bundles (no {MANIFEST} in it)")
    return found


def open_model(bundle: Bundle, settings: ServiceSettings, observer: Observer | None) -> LoadedModel:
    """A bundle with its engine, not started. Raises BundleError or ConfigError that names the remedy."""
    began = time.monotonic()
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
    tokenizer = open_tokenizer(bundle)
    spoken = directions_of(bundle)
    if settings.languages:
        spoken = spoken.within(settings.languages)
    info = ModelInfo(
        name=bundle.name,
        task=bundle.task,
        source=spoken.sources[0],
        target=spoken.targets[0],
        architecture=bundle.config.architecture,
        parameters=_parameters(bundle.file(WEIGHTS)),
        limits=engine.limits,
        precision=settings.precision,
        backend=settings.backend,
        options=options,
        placeholders=len(tokenizer.placeholders),
        load_seconds=time.monotonic() - began,
        device=settings.device,
        sources=spoken.sources,
        targets=spoken.targets,
    )
    text = TextModel(
        task=bundle.task,
        source=bundle.source,
        target=bundle.target,
        tokenizer=tokenizer,
        defaults=options,
        limits=engine.limits,
        eos=engine.eos,
        name=bundle.name,
    )
    text = toward(text, info.source, info.target)

    def again() -> LoadedModel:
        return open_model(open_bundle(bundle.path, verify=settings.verify), settings, observer)

    return LoadedModel(info, text, engine, again)


def _parameters(path: Path) -> int:
    """Numbers in a safetensors file; only its header is read."""
    with safe_open(path, framework="np") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
