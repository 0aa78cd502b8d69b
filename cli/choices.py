"""What a command is told of its texts: which model answers them, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.api import TextOptions


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model, and where it runs.

    precision: None: the usual one.
    source, target: languages that it must be for; None: any.
    fast: beam size, precision and shortlist are those for speed where nothing else is asked for.
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


@dataclass(frozen=True, slots=True)
class AnswerFlags:
    """How texts are answered: `decode` by field of DecodeOptions; see TextOptions.

    By default translations are protected and follow the form of their sources, as those of a server.
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
        )
