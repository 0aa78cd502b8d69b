"""The model that a command runs, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.backends import Placement, processors, usual_precision


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that answers, and where it runs.

    model: folder of a bundle, or the name of a server's model; None: the only one there is.
    precision: precision of its weights; None: the usual one.
    backend, device: where it runs.
    threads: threads of the numeric library; None: all cores.
    source, target: languages that the model must be for; None: any.
    shortlist: whether only likely tokens are looked at; None: as the bundle says.
    fast: whether beam size, precision and shortlist serve speed where nothing else is asked for.
    """

    model: Path | None
    precision: str | None = None
    backend: str = "onnx"
    device: str = "cpu"
    threads: int | None = None
    source: str | None = None
    target: str | None = None
    shortlist: bool | None = None
    fast: bool = False

    def placement(self) -> Placement:
        """Return where the model runs, with the default precision and number of threads filled in."""
        return Placement(
            self.backend,
            self.device,
            self.precision or usual_precision(self.device, fast=self.fast),
            self.threads or processors(),
            shortlist=self.shortlist,
            fast=self.fast,
        )
