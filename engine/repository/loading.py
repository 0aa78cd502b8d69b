"""Opens bundles as models: executors, engine, text side and description.

`facts_of` reads the description of a bundle without its weights; `open_model` reads the weights.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from safetensors import SafetensorError, safe_open

from engine.answers.directions import Directions, directions_of, open_side, toward
from engine.answers.text_model import TextModel
from engine.backends import BACKENDS, LaneSize, Placement, usual_beam_size
from engine.bundle.bundle import Bundle, open_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.manifest import MANIFEST, REMEDY, WEIGHTS, Provenance
from engine.bundle.shortlist import SHORTLIST
from engine.errors import BundleError, ConfigError, InvalidRequest
from engine.executors import open_executors, precision_of, uses_shortlist
from engine.schedule.any_engine import AnyEngine
from engine.schedule.engine import Engine, EngineSettings
from engine.schedule.stats import Observer
from engine.text.tokenizers.placeholder_words import read_placeholder_words
from engine.text.tokenizers.tokenizer import Tokenizer, open_tokenizer
from engine.types import DecodeOptions, Limits

logger = logging.getLogger(__name__)

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of all models.

    placement: device, precision and lanes; models without a shortlist ignore its setting of shortlists.
    queue_tokens, encode_tokens: fields of EngineSettings.
    beam_size: beam size in place of the models' defaults.
    verify: whether to compare the hashes of every bundle's files.
    languages: codes of languages; models of other languages are left out. Empty: all.
    budget: largest sum of bytes of all models in memory, which are loaded at their first use; None: load all
        models at the start.
    strict: whether a damaged bundle in a folder is an error; otherwise it is left out with a warning.
    ceiling: memory in bytes that models may take without a budget: as long as all fit, all are loaded at the
        start; otherwise it is the budget. None: no limit.
    awaited: whether models are added later, so that there may be none at the start.
    upstreams: file with models of other servers and with the routing by confidence; None: there are none.
    frontends: number of processes that share the budgets of the routing; 0: texts are not routed.
    """

    placement: Placement = Placement()
    queue_tokens: int = 65_536
    encode_tokens: int = 2_048
    beam_size: int | None = None
    verify: bool = True
    languages: tuple[str, ...] = ()
    budget: int | None = None
    strict: bool = False
    ceiling: int | None = None
    awaited: bool = False
    upstreams: Path | None = None
    frontends: int = 1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Description of a model.

    options: default decoding options.
    placeholders: largest number of protected phrases in one sentence.
    load_seconds: duration of the load; 0 before it.
    device: device that the model runs on.
    sources, targets: all languages of the model, `source` and `target` first.
    digest: digest of the bundle's files.
    provenance: origin of a fetched model; None: it was not fetched.
    precision_reason: reason for the precision; "" if a setting decides it.
    remote: host and port of the server that texts are sent to; "" for a model of this server.
    prefers: pairs of languages that a remote model answers although a local model could; "*" is any.
    """

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
    provenance: Provenance | None = None
    precision_reason: str = ""
    remote: str = ""
    prefers: tuple[tuple[str, str], ...] = ()

    @property
    def arithmetic(self) -> str:
        """Precision, with the reason in parentheses."""
        return f"{self.precision} ({self.precision_reason})" if self.precision_reason else self.precision

    @property
    def directions(self) -> Directions:
        return Directions(self.sources or (self.source,), self.targets or (self.target,))

    def is_preferred(self, source: str | None, target: str | None) -> bool:
        """Return whether a remote model is preferred for a direction; None as a language fits "*" only."""
        return any(first in ("*", source) and last in ("*", target) for first, last in self.prefers)

    @property
    def is_demonstration(self) -> bool:
        return self.provenance is not None and self.provenance.is_demonstration


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Description of a model that is read without its weights.

    cost: estimated bytes of memory when it is loaded.
    """

    path: Path
    info: ModelInfo
    cost: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory with its engine."""

    facts: ModelFacts
    text: TextModel
    engine: AnyEngine

    @property
    def info(self) -> ModelInfo:
        return self.facts.info


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Functions that open models by the paths of their bundles.

    facts: function that reads the facts of a model without its weights; raises BundleError.
    open: function that opens a model; raises BundleError.
    clean: function that removes the temporary files of an evicted model, by its name.
    answered: whether opened models need no canary.
    """

    facts: Callable[[Path], ModelFacts]
    open: Callable[[Path], LoadedModel]
    clean: Callable[[str], None] = lambda _: None
    answered: bool = False


def bundle_paths(path: Path) -> list[Path]:
    """Return the path itself if it is a bundle, otherwise the bundles in this folder. Raises BundleError."""
    if (path / MANIFEST).exists() or not path.is_dir():
        return [path]
    bundles = bundles_in(path)
    if not bundles:
        raise BundleError(
            f"{path}: neither a bundle nor a folder of bundles (no {MANIFEST} in it); make one with "
            "`convoy convert`"
        )
    return bundles


def bundles_at(path: Path) -> list[Path]:
    """Return the path itself if it is a bundle, otherwise the bundles in this folder; there may be none."""
    return [path] if (path / MANIFEST).exists() else bundles_in(path)


def bundles_in(folder: Path) -> list[Path]:
    """Return the bundles of a folder, without hidden folders, in which bundles are written."""
    entries = (entry.parent for entry in folder.glob(f"*/{MANIFEST}"))
    return sorted(path for path in entries if not path.name.startswith("."))


def within(bundle: Bundle, languages: Collection[str]) -> bool:
    """Return whether a bundle has a direction between some languages; True for an empty collection."""
    return not languages or not directions_of(bundle).within(set(languages)).empty


def open_bundles(paths: Sequence[Path], settings: ServiceSettings, *, verify: bool) -> list[Bundle]:
    """Open the bundles for the languages of the settings.

    paths: paths of bundles, or of folders of bundles.
    settings: settings of all models.
    verify: whether to compare the hashes of every bundle's files.

    A damaged bundle in a folder is left out (`undamaged`). Raises BundleError or ConfigError that names the
    remedy, also if no bundle is left or two have the same name.
    """
    may_be_none = settings.awaited or settings.upstreams is not None
    list_paths = bundles_at if may_be_none else bundle_paths
    found = [p for path in paths for p in list_paths(Path(path))]
    bundles = undamaged(found, paths, settings, lambda path: open_bundle(path, verify=verify))
    selection = [bundle for bundle in bundles if within(bundle, settings.languages)]
    if bundles and not selection and not may_be_none:
        codes = sorted(set(settings.languages))
        raise BundleError(f"no model is for the languages {', '.join(codes)} alone: add others to them")
    bundles = selection
    if not bundles and not may_be_none:
        raise BundleError("no models to load: give the path of a bundle or of a folder of bundles")
    if settings.placement.shortlist and not any(SHORTLIST in bundle.files() for bundle in bundles):
        raise BundleError("no model has a shortlist; run: convoy shortlist BUNDLE PAIRS")
    _check_names(bundles)
    return bundles


def _check_names(bundles: Iterable[Bundle]) -> None:
    """Raise BundleError if two bundles have the same name."""
    paths_of: dict[str, Path] = {}
    for bundle in bundles:
        if bundle.name in paths_of:
            both = f"{paths_of[bundle.name]} and {bundle.path}"
            raise BundleError(f"two bundles have the name {bundle.name!r}: {both}; leave one out")
        paths_of[bundle.name] = bundle.path


def undamaged(
    found: Sequence[Path], paths: Sequence[Path], settings: ServiceSettings, read: Callable[[Path], Read]
) -> list[Read]:
    """Read bundles, and leave out damaged bundles of folders with a warning.

    found: paths of the bundles.
    paths: paths in the settings; a damaged bundle among them is an error.
    settings: settings of all models; with `strict` every damaged bundle is an error.
    read: function that reads a bundle.

    Raises BundleError on such an error, and if all bundles are damaged.
    """
    whole, named = list[Read](), set(map(Path, paths))
    fault: BundleError | None = None
    for path in found:
        try:
            whole.append(read(path))
        except BundleError as error:
            if settings.strict or path in named:
                raise
            logger.warning("%s is not served: %s", path, error)
            fault = error
    if fault and not whole:
        raise fault
    return whole


def facts_of(bundle: Bundle, settings: ServiceSettings) -> ModelFacts:
    """Read the facts of a bundle, with the header of its weights only.

    Raises BundleError or ConfigError that names the remedy.
    """
    return _facts(bundle, settings, open_tokenizer(bundle))


def costs_of(bundles: Sequence[Bundle], settings: ServiceSettings) -> list[int]:
    """Return the bytes of each model in memory; damaged bundles count nothing."""
    costs = []
    for bundle in bundles:
        with suppress(BundleError):
            costs.append(facts_of(bundle, settings).cost)
    return costs


def check_budget(facts: Sequence[ModelFacts], budget: int | None) -> None:
    """Raise ConfigError if no model fits into the budget."""
    if budget is None or not facts:
        return
    smallest = min(facts, key=lambda one: one.cost)
    if smallest.cost > budget:
        raise ConfigError(
            f"no model fits in the budget of {budget >> 20} MiB; the smallest, {smallest.info.name!r}, takes "
            f"about {smallest.cost >> 20} MiB: raise model_budget"
        )


def _facts(bundle: Bundle, settings: ServiceSettings, tokenizer: Tokenizer) -> ModelFacts:
    """Return the facts of a bundle, given its open tokenizer."""
    config, options, placement = bundle.config, bundle.options, settings.placement
    placement.check()
    beam_size = settings.beam_size
    if beam_size is None:
        beam_size = usual_beam_size(options.beam_size, fast=placement.fast)
    options = replace(options, beam_size=beam_size)
    widest = max(beams for beams, _ in placement.lanes)
    limits = config.limits(widest, shortlisted=uses_shortlist(bundle, placement))
    try:
        options.check(limits)
    except InvalidRequest as error:
        raise ConfigError(
            f"{bundle.path}: its decoding defaults don't fit: {error}; change the lanes"
        ) from error
    directions = directions_of(bundle)
    if settings.languages:
        directions = directions.within(settings.languages)
    precision, reason = precision_of(bundle, placement)
    info = ModelInfo(
        name=bundle.name,
        task=bundle.task,
        source=directions.sources[0],
        target=directions.targets[0],
        architecture=config.architecture,
        parameters=_parameters(bundle.file(WEIGHTS)),
        limits=limits,
        precision=precision,
        backend=placement.backend,
        options=options,
        placeholders=len(tokenizer.placeholders or read_placeholder_words(bundle, tokenizer)),
        device=placement.device,
        sources=directions.sources,
        targets=directions.targets,
        digest=bundle.digest,
        provenance=bundle.provenance,
        precision_reason=reason,
    )
    return ModelFacts(bundle.path, info, _cost(bundle.config, info, placement.lanes))


def open_model(bundle: Bundle, settings: ServiceSettings, observer: Observer | None) -> LoadedModel:
    """Open a bundle with its engine, not started.

    bundle: bundle of the model.
    settings: settings of all models.
    observer: observer of the engine's steps and encodings.

    Raises BundleError or ConfigError that names the remedy.
    """
    began = time.monotonic()
    tokenizer = open_tokenizer(bundle)
    facts = _facts(bundle, settings, tokenizer)
    info = facts.info
    placement = replace(settings.placement, precision=info.precision, shortlist=info.limits.shortlisted)
    executors = open_executors(bundle, placement)
    limits = EngineSettings(settings.queue_tokens, settings.encode_tokens, f"engine {bundle.name}")
    engine = Engine(executors, limits, observer)
    info = replace(info, limits=engine.limits, load_seconds=time.monotonic() - began)
    return LoadedModel(replace(facts, info=info), open_text(bundle, info, tokenizer), engine)


def open_text(bundle: Bundle, info: ModelInfo, tokenizer: Tokenizer | None = None) -> TextModel:
    """Open the text side of a bundle, in the model's usual direction.

    bundle: bundle of the model.
    info: description of the model.
    tokenizer: tokenizer of the bundle, if it is open already.
    """
    text = open_side(bundle, tokenizer or open_tokenizer(bundle), info.options, info.limits)
    return toward(text, info.source, info.target)


def _parameters(path: Path) -> int:
    """Count the numbers in a safetensors file by its header."""
    try:
        with safe_open(path, framework="np") as weights:
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{path}: not a readable safetensors file ({error}); {REMEDY}") from error


SENTENCE_TOKENS: Final = 32  # length of answers for the estimate of caches
SHORTLIST_TOKENS: Final = 4096  # length of a long shortlist
BYTES_OF_INT8: Final = 2  # bytes of an int8 weight: one in the order of a product, one in rows


def _cost(config: ModelConfig, info: ModelInfo, lanes: Sequence[LaneSize]) -> int:
    """Estimate the bytes of a loaded model at ordinary work.

    They are its weights and, for each hypothesis, two rows of scores and the state of each decoder layer.
    """
    int8 = config.quantization != "none" and info.precision == "int8"
    weights = info.parameters * (BYTES_OF_INT8 if int8 else BACKENDS[info.backend].bytes_of(info.precision))
    rows = sum(beams * slots for beams, slots in lanes)
    scored = min(info.limits.vocab, SHORTLIST_TOKENS) if info.limits.shortlisted else info.limits.vocab
    decoders = [one.decoder for one in config.stack_configs if one.decoder is not None]
    # 4 bytes of each float32: scores and state of one hypothesis
    row = 4 * (2 * scored + sum(decoder.state_size(SENTENCE_TOKENS) for decoder in decoders))
    return weights + rows * row
