"""A service for one program, such as a command: its lanes are as wide as the program's requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from engine.answers.compose import TextResult
from engine.answers.options import TextOptions
from engine.answers.stream import answers_of
from engine.backends import LaneSize, Placement, processors, usual_beam_size
from engine.bundle.bundle import open_bundle
from engine.errors import InvalidRequest
from engine.repository.catalogue import ModelRoute
from engine.repository.loading import ServiceSettings, bundle_paths, bundles_at
from engine.repository.service import Service

MAX_LANE_SLOTS: Final = 32
MAX_LANE_ROWS: Final = 2_048  # slots x beams of a lane: bounds its memory
STOP_SECONDS: Final = 10.0  # seconds that the engines have to stop


@contextmanager
def offline_service(
    models: Path | Sequence[Path],
    placement: Placement | None = None,
    decode: Mapping[str, Any] | None = None,
    upstreams: Path | None = None,
) -> Iterator[Service]:
    """Start a service, and stop it at the end. Of several models, each is loaded at its first use.

    Texts are not routed by confidence.

    models: a bundle, or several bundles and folders of bundles.
    placement: backend, device and precision; its lanes are replaced. None: fp32 on all cores.
    decode: decoding options of the requests, by field of `DecodeOptions`.
    upstreams: file with models of other servers; None: there are none.

    Raises BundleError, ConfigError, and InvalidRequest on a beam that is too wide.
    """
    placement = placement or Placement(threads=processors())
    if isinstance(models, Path):
        bundles = [models]
    else:
        list_paths = bundles_at if upstreams else bundle_paths  # there may be none
        bundles = [bundle for path in models for bundle in list_paths(path)]
    settings = offline_settings(bundles, placement, decode or {}, upstreams)
    service = Service.open(bundles, settings, lazily=len(bundles) != 1 or upstreams is not None)
    service.start()
    try:
        yield service
    finally:
        service.stop(drain=False, timeout=STOP_SECONDS)


def run_batches(
    service: Service, route: ModelRoute, batches: Iterable[Iterable[str]], options: TextOptions
) -> Iterator[TextResult]:
    """Yield answers like `Service.run_many`; a batch is answered before the next one is read.

    service: started service.
    route: model, or pair of models.
    batches: texts that arrive together.
    options: options of the answers.
    """
    if options.strategy == "refine":  # each text waits for its answer anyway
        return service.run_many(route, chain.from_iterable(batches), options)
    outcomes = (
        outcome
        for batch in batches
        for outcome in service.run_each(route, ((text, options) for text in batch))
    )
    return answers_of(outcomes)


def offline_settings(
    models: Sequence[Path],
    placement: Placement,
    decode: Mapping[str, Any],
    upstreams: Path | None = None,
) -> ServiceSettings:
    """Return settings with a lane for each model's default beam size and one for the requests' beam size.

    models: folders of the bundles.
    placement: backend, device and precision; its lanes are replaced.
    decode: decoding options of the requests, by field of `DecodeOptions`.
    upstreams: file with models of other servers; None: there are none.

    Raises BundleError, and InvalidRequest on a beam that is too wide.
    """
    defaults = {open_bundle(model, verify=False).options.beam_size for model in models}
    widths = {usual_beam_size(beams, fast=placement.fast) for beams in defaults}
    beams = decode.get("beam_size", max([*widths, decode.get("n_best", 1)]))
    if not 1 <= beams <= MAX_LANE_ROWS:
        raise InvalidRequest(f"beam_size must be between 1 and {MAX_LANE_ROWS}, the rows of the widest lane")
    lanes = [
        LaneSize(width, max(1, min(MAX_LANE_SLOTS, MAX_LANE_ROWS // width)))
        for width in sorted({*widths, beams})
    ]
    return ServiceSettings(replace(placement, lanes=tuple(lanes)), upstreams=upstreams, frontends=0)
