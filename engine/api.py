"""The public interface: all names of the engine that `server/` may import."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine.answers.alignment import Alignment
from engine.answers.compose import SentenceVia, TextResult, slowest
from engine.answers.directions import Language
from engine.answers.drafts import Partial
from engine.answers.options import USUAL_OPTIONS, OfferedOption, TextOptions, offered_options
from engine.answers.placeholders import DEFAULT_PLACEHOLDERS, PlaceholderChoice
from engine.answers.quality import Coverage, Repetition
from engine.answers.routing.routed import is_usable
from engine.answers.score import TextScore, perplexity
from engine.backends import (
    BACKEND_HELP,
    BACKENDS,
    DEVICE_HELP,
    FAST_HELP,
    PRECISION_DEFAULT,
    PRECISION_HELP,
    PRECISIONS,
    LaneSize,
    Place,
    Placement,
    choose_place,
    devices,
    processors,
    program_revision,
    program_version,
    usual_lanes,
    usual_precision,
)
from engine.bundle.folder import replacing_file
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
from engine.native import kernels_name
from engine.repository.budget import State
from engine.repository.catalogue import ModelRoute
from engine.repository.figures import DeviceFigures, RepositoryEntry
from engine.repository.heap import trim_heap
from engine.repository.loading import ModelInfo, ServiceSettings, open_bundles
from engine.repository.machine import usual_budget
from engine.repository.offline import offline_service, offline_settings, run_batches
from engine.repository.service import Service
from engine.schedule.places import Places
from engine.schedule.slices import Slices, at_once, each, in_slices, one_slice, slice_figures
from engine.schedule.stats import Observer, Stats, UpstreamStats
from engine.schedule.workers import Workers, run_work
from engine.text.codes import language_of, short
from engine.text.detect import Detection, is_doubtful
from engine.text.language_names import (
    KNOWN_NAMES,
    LANGUAGE_NAMES,
    OTHER_NAMES,
    VARIANTS,
)
from engine.text.placeables.markup import compile_patterns
from engine.text.placeables.masked_text import KeptSpan, MarkedText
from engine.text.placeables.phrases import forms_of
from engine.text.tokenizers.tokenizer import share_tokenizers
from engine.types import NO_TIME, OPTION_BOUNDS, OPTION_HELP, DecodeOptions, Limits, Timings

if TYPE_CHECKING:
    # for annotations only, so not in `__all__`
    from engine.repository.ipc.host import EngineHost as EngineHost  # noqa: PLC0414
    from engine.repository.ipc.service import RemoteService as RemoteService  # noqa: PLC0414

__all__ = [
    "BACKEND_HELP",
    "BACKENDS",
    "DEFAULT_PLACEHOLDERS",
    "DEVICE_HELP",
    "FAST_HELP",
    "KNOWN_NAMES",
    "LANGUAGE_NAMES",
    "NO_TIME",
    "OPTION_BOUNDS",
    "OPTION_HELP",
    "OTHER_NAMES",
    "PRECISION_DEFAULT",
    "PRECISION_HELP",
    "PRECISIONS",
    "USUAL_OPTIONS",
    "VARIANTS",
    "Alignment",
    "PlaceholderChoice",
    "BundleError",
    "Cancelled",
    "CheckpointError",
    "ConfigError",
    "ConvoyError",
    "Coverage",
    "Detection",
    "DeadlineExceeded",
    "DecodeOptions",
    "DeviceFigures",
    "DeviceLost",
    "ExecutorFailed",
    "InvalidRequest",
    "KeptSpan",
    "LaneSize",
    "Language",
    "Limits",
    "MarkedText",
    "ModelInfo",
    "ModelRoute",
    "Observer",
    "OfferedOption",
    "Overloaded",
    "Partial",
    "Place",
    "Placement",
    "Places",
    "Repetition",
    "SentenceVia",
    "Service",
    "ServiceSettings",
    "Slices",
    "Workers",
    "RepositoryEntry",
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
    "UpstreamStats",
    "WouldBeLate",
    "at_once",
    "choose_place",
    "connect_service",
    "each",
    "host_service",
    "forms_of",
    "in_slices",
    "is_doubtful",
    "is_usable",
    "run_batches",
    "run_work",
    "slice_figures",
    "kernels_name",
    "language_of",
    "devices",
    "offered_options",
    "offline_service",
    "offline_settings",
    "one_slice",
    "perplexity",
    "processors",
    "program_revision",
    "program_version",
    "replacing_file",
    "share_texts",
    "share_threads",
    "short",
    "slowest",
    "trim_heap",
    "usual_budget",
    "usual_lanes",
    "usual_precision",
]


def share_threads(backend: str, threads: int) -> None:
    """Share one pool of threads among all sessions of services with threads=None. Call this once, first.

    backend: name of the backend.
    threads: number of threads of the pool.
    """
    if BACKENDS[backend].runtime == "onnxruntime":
        from engine.executors.onnx.sessions import share_threads as share

        share(threads)


def connect_service(paths: Sequence[Path], settings: ServiceSettings) -> RemoteService:
    """Wait for the offer of an engine process, and open the text sides of its models. Raises BundleError.

    paths: paths of the sockets, one for each engine process.
    settings: settings of all models.
    """
    from engine.repository.ipc.service import RemoteService

    return RemoteService.connect(paths, settings)


def share_texts(paths: Sequence[Path], settings: ServiceSettings) -> None:
    """Open what the text sides of models read, once for this process and the processes that it forks.

    paths: paths of bundles, or of folders of bundles.
    settings: settings of all models.

    Does nothing if a bundle can't be opened: the process that loads it reports why.
    """
    compile_patterns()
    with suppress(ConvoyError):
        share_tokenizers(open_bundles(paths, settings, verify=False))


def host_service(service: Service) -> EngineHost:
    """Make a host that offers the models of a started service to front ends, in the running event loop."""
    from engine.repository.ipc.host import EngineHost

    return EngineHost(service)
