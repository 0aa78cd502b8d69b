"""A service for one program, such as a command: its lanes are as wide as the program's requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine.backends import LaneSize, Placement, processors, usual_beam_size
from engine.bundle.bundle import open_bundle
from engine.errors import InvalidRequest
from engine.repository.loading import ServiceSettings
from engine.repository.service import Service

MAX_LANE_SLOTS: Final = 32
MAX_LANE_ROWS: Final = 2_048  # slots x beams of a lane: bounds its memory
STOP_SECONDS: Final = 10.0  # seconds that the engines have to stop


@contextmanager
def offline_service(
    model: Path, placement: Placement | None = None, decode: Mapping[str, Any] | None = None
) -> Iterator[Service]:
    """Start a service with one model, and stop it at the end.

    model: the bundle's folder.
    placement: backend, device and precision; its lanes are replaced. None: fp32 on all cores.
    decode: decoding options of the requests, by field of `DecodeOptions`.

    Raises BundleError, ConfigError, and InvalidRequest on a beam that is too wide.
    """
    placement = placement or Placement(threads=processors())
    service = Service.open([model], offline_settings([model], placement, decode or {}))
    service.start()
    try:
        yield service
    finally:
        service.stop(drain=False, timeout=STOP_SECONDS)


def offline_settings(
    models: Sequence[Path], placement: Placement, decode: Mapping[str, Any]
) -> ServiceSettings:
    """Return settings with a lane for each model's default beam size and one for the requests' beam size.

    models: folders of the bundles.
    placement: backend, device and precision; its lanes are replaced.
    decode: decoding options of the requests, by field of `DecodeOptions`.

    Raises BundleError, and InvalidRequest on a beam that is too wide.
    """
    defaults = {open_bundle(model, verify=False).options.beam_size for model in models}
    widths = {usual_beam_size(beams, fast=placement.fast) for beams in defaults}
    beams = decode.get("beam_size", max(*widths, decode.get("n_best", 1)))
    if not 1 <= beams <= MAX_LANE_ROWS:
        raise InvalidRequest(f"beam_size must be between 1 and {MAX_LANE_ROWS}, the rows of the widest lane")
    lanes = [
        LaneSize(width, max(1, min(MAX_LANE_SLOTS, MAX_LANE_ROWS // width)))
        for width in sorted({*widths, beams})
    ]
    return ServiceSettings(replace(placement, lanes=tuple(lanes)))
