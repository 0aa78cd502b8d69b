"""The flags of a command about its texts: the model that answers, and how it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.backends import Placement, processors, usual_precision

if TYPE_CHECKING:
    from engine.api import TextOptions


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


@dataclass(frozen=True, slots=True)
class AnswerFlags:
    """How texts are answered: the fields of TextOptions that commands have flags for.

    By default translations are protected and follow the form of their sources, as a server does it.
    """

    decode: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    split: bool = True
    truncate: bool = False
    replace_unk: bool = False
    strategy: str | None = None
    protect: bool = True
    follow_form: bool = True
    local_numbers: bool = False
    raw: bool = False

    def options(self) -> TextOptions:
        from engine.api import TextOptions

        return TextOptions(
            self.decode,
            prefix=self.prefix,
            split=self.split,
            truncate=self.truncate,
            strategy=self.strategy,
            replace_unk=self.replace_unk,
            protect=self.protect,
            follow_form=self.follow_form,
            local_numbers=self.local_numbers,
            raw=self.raw,
        )
