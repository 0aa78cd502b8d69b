"""From a bundle to a model that can be asked: its executors, engine, text side and description.

`facts_of` is what is known of a bundle before its weights are read; `open_model` reads them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from safetensors import SafetensorError, safe_open

from engine.backends import check
from engine.bundle import AGAIN, MANIFEST, WEIGHTS, Bundle, open_bundle
from engine.config import ModelConfig
from engine.directions import Directions, directions_of, toward
from engine.engine import Engine, EngineSettings, Observer
from engine.errors import BundleError, ConfigError, InvalidRequest
from engine.executors import Placement, open_executors
from engine.plan import TextModel
from engine.shortlist import SHORTLIST
from engine.stacks import SliceStack, Stack
from engine.text.tokenizer import Tokenizer, open_tokenizer
from engine.types import DecodeOptions, Limits


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How every model is run.

    lanes: (beams, slots) of each. threads: of each ONNX session; None takes the pool of `share_threads`.
    queue_tokens, encode_tokens: see EngineSettings. beam_size: overrides the models' default. verify: compare
    the hashes of every bundle's files. languages: when given, load only the models whose languages are all
    among these codes. shortlist: see `engine.executors.Placement`; models that have none answer without.
    budget: bytes of all models in memory, which are then loaded when first used; None: load all at the start.
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
    shortlist: bool = False
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model is. `options` are its decoding defaults. placeholders: phrases of one sentence that it can
    keep. load_seconds: what opening it took, 0 before that. device: where it runs. sources, targets: all
    languages of a model, `source` and `target` first. digest: of the bundle's files."""

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
    digest: str = ""

    @property
    def directions(self) -> Directions:
        return Directions(self.sources or (self.source,), self.targets or (self.target,))


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model without its weights. cost: bytes that it takes when loaded, estimated."""

    path: Path
    info: ModelInfo
    cost: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model behind its engine."""

    facts: Facts
    text: TextModel
    engine: Engine

    @property
    def info(self) -> ModelInfo:
        return self.facts.info


def bundle_paths(path: Path) -> list[Path]:
    """The path itself when it is a bundle, else the bundles in it."""
    if (path / MANIFEST).exists() or not path.is_dir():
        return [path]
    found = sorted(entry.parent for entry in path.glob(f"*/{MANIFEST}"))
    if not found:
        raise BundleError(f"{path}: neither a bundle nor a folder of bundles (no {MANIFEST} in it)")
    return found


def open_bundles(paths: Sequence[Path], settings: ServiceSettings, *, verify: bool) -> list[Bundle]:
    """The bundles at these paths, each a bundle or a folder of bundles, for the languages that are wanted.

    Raises BundleError or ConfigError that names the remedy, also where there is none or a name twice.
    """
    bundles = [open_bundle(p, verify=verify) for path in paths for p in bundle_paths(Path(path))]
    if wanted := set(settings.languages):
        bundles = [bundle for bundle in bundles if not directions_of(bundle).within(wanted).empty]
        if not bundles:
            raise BundleError(f"no model is for the languages {sorted(wanted)} alone: add others to them")
    if not bundles:
        raise BundleError("no models to load: give the path of a bundle or of a folder of bundles")
    if settings.shortlist and not any(SHORTLIST in bundle.files() for bundle in bundles):
        raise BundleError("no model has a shortlist; run: convoy shortlist BUNDLE PAIRS")
    paths_of: dict[str, Path] = {}
    for bundle in bundles:
        if bundle.name in paths_of:
            both = f"{paths_of[bundle.name]} and {bundle.path}"
            raise BundleError(f"two bundles have the name {bundle.name!r}: {both}; leave one out")
        paths_of[bundle.name] = bundle.path
    return bundles


def facts_of(bundle: Bundle, settings: ServiceSettings) -> Facts:
    """Of the weights only the header is read. Raises BundleError or ConfigError that names the remedy."""
    check(settings.backend, settings.device, settings.precision)
    return _facts(bundle, settings, open_tokenizer(bundle))


def _facts(bundle: Bundle, settings: ServiceSettings, tokenizer: Tokenizer) -> Facts:
    config, options = bundle.config, bundle.options
    if settings.beam_size is not None:
        options = replace(options, beam_size=settings.beam_size)
    widest = max((beams for beams, _ in settings.lanes), default=0)
    limits = config.limits(widest, shortlisted=settings.shortlist and SHORTLIST in bundle.files())
    try:
        options.check(limits)
    except InvalidRequest as error:
        raise ConfigError(
            f"{bundle.path}: its decoding defaults don't fit: {error}; change the lanes"
        ) from error
    spoken = directions_of(bundle)
    if settings.languages:
        spoken = spoken.within(settings.languages)
    info = ModelInfo(
        name=bundle.name,
        task=bundle.task,
        source=spoken.sources[0],
        target=spoken.targets[0],
        architecture=config.architecture,
        parameters=_parameters(bundle.file(WEIGHTS)),
        limits=limits,
        precision=settings.precision,
        backend=settings.backend,
        options=options,
        placeholders=len(tokenizer.placeholders),
        device=settings.device,
        sources=spoken.sources,
        targets=spoken.targets,
        digest=bundle.digest,
    )
    return Facts(bundle.path, info, _cost(bundle.config, info, settings.lanes))


def open_model(bundle: Bundle, settings: ServiceSettings, observer: Observer | None) -> LoadedModel:
    """A bundle with its engine, not started. Raises BundleError or ConfigError that names the remedy."""
    began = time.monotonic()
    tokenizer = open_tokenizer(bundle)
    facts = _facts(bundle, settings, tokenizer)
    place = Placement(
        settings.backend,
        settings.device,
        settings.precision,
        settings.threads,
        settings.lanes,
        facts.info.limits.shortlisted,
    )
    executors = open_executors(bundle, place)
    limits = EngineSettings(settings.queue_tokens, settings.encode_tokens, f"engine {bundle.name}")
    engine = Engine(executors, limits, observer)
    info = replace(facts.info, limits=engine.limits, load_seconds=time.monotonic() - began)
    text = TextModel(
        task=bundle.task,
        source=bundle.source,
        target=bundle.target,
        tokenizer=tokenizer,
        defaults=info.options,
        limits=engine.limits,
        eos=engine.eos,
        name=bundle.name,
    )
    return LoadedModel(replace(facts, info=info), toward(text, info.source, info.target), engine)


def _parameters(path: Path) -> int:
    """Numbers in a safetensors file; only its header is read."""
    try:
        with safe_open(path, framework="np") as weights:
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{path}: not a readable safetensors file ({error}); {AGAIN}") from error


# bytes of memory that a number of the weights takes on each kind of backend, as measured: ONNX Runtime keeps
# an initialiser and a copy of it in the order of its kernels
ONNX_BYTES: Final = {"fp32": 8, "int8": 4}
OTHER_BYTES: Final = {"fp32": 4, "int8": 2}
NARROW: Final = 2  # of fp16 and bf16
TOKENS: Final = 32  # of a sentence; caches grow beyond with answers that are longer


def _cost(config: ModelConfig, info: ModelInfo, lanes: Sequence[tuple[int, int]]) -> int:
    """Bytes of a loaded model at ordinary work: its weights, and of each hypothesis twice its scores of the
    vocabulary, and what each layer of the decoder remembers of it."""
    each = ONNX_BYTES if info.backend.startswith("onnx") else OTHER_BYTES
    rows = sum(beams * slots for beams, slots in lanes)
    row = 4 * (2 * info.limits.vocab + sum(_remembered(one.decoder) for one in config.members or (config,)))
    return info.parameters * each.get(info.precision, NARROW) + rows * row


def _remembered(decoder: Stack | None) -> int:
    """Numbers that a decoder keeps of one hypothesis."""
    if decoder is None:
        return 0
    layers = decoder.layers if isinstance(decoder, SliceStack) else 1
    columns = layers * sum(kernel or 2 * TOKENS for kernel in decoder.kernel_sizes)  # 0: keys and values
    return columns * decoder.embed_dim
