"""The model that a command runs, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.backends import Placement, choose_place, processors, usual_precision


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that answers, and where it runs.

    model: folder of a bundle, or name of a model of the server; None: the only model.
    precision: precision of its weights; None: the default of the device.
    backend: backend that runs it; None: the usual one of the device.
    device: device that runs it.
    threads: threads of the numeric library; None: all cores.
    source, target: languages of the model; None: any.
    shortlist: decode with likely tokens only; None: the setting of the bundle.
    fast: choose defaults of beam size, precision and shortlist for speed.
    upstreams: file with models of other servers; None: there are none.
    """

    model: Path | None
    precision: str | None = None
    backend: str | None = None
    device: str = "cpu"
    threads: int | None = None
    source: str | None = None
    target: str | None = None
    shortlist: bool | None = None
    fast: bool = False
    upstreams: Path | None = None

    @property
    def remote_name(self) -> str | None:
        """Name of a model of another server; None: a bundle, or any model."""
        if self.upstreams is None or self.model is None:
            return None
        from engine.bundle.manifest import MANIFEST

        return None if (self.model / MANIFEST).exists() else str(self.model)

    def placement(self) -> Placement:
        """Return where the model runs, with the default precision and number of threads filled in."""
        on_cpu = self.precision == "int8" or bool(self.shortlist)
        place = choose_place(self.device, self.backend, on_cpu=on_cpu)
        return Placement(
            place.backend,
            place.device,
            self.precision or usual_precision(place.device, fast=self.fast, backend=place.backend),
            self.threads or processors(),
            shortlist=self.shortlist,
            fast=self.fast,
        )
