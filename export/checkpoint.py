"""Reading fairseq checkpoints without running what they hold.

`torch.load(weights_only=True)` with a closed list of stand-ins for the classes that such files name
(REFERENCE.md 7). None of the stand-ins does anything but hold what it is given; any other global is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from engine.errors import CheckpointError


class Arguments(dict[str, Any]):
    """Stands for argparse.Namespace: its attributes as a dictionary."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.update(state)


class Ignored(dict[Any, Any]):
    """Stands for training statistics (meters, numpy scalars), which are dropped."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, _: Any) -> None:
        pass


METERS: Final = ("AverageMeter", "TimeMeter", "StopwatchMeter", "SumMeter", "MetersDict")
PLACES: Final = ("meters", "logging.meters")
STAND_INS: Final[dict[str, type]] = {
    "argparse.Namespace": Arguments,
    **{f"fairseq.{at}.{name}": Ignored for name in METERS for at in PLACES},
    "numpy.core.multiarray.scalar": Ignored,
    "numpy._core.multiarray.scalar": Ignored,
    "numpy.dtype": Ignored,
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What inference needs of a checkpoint: options by name, and the state dictionary on the CPU."""

    arguments: dict[str, Any]
    state: dict[str, Tensor]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint of the "args" or "cfg" layout, zip or older format, saved on any device.

    Raises CheckpointError: a refused global by its name, a damaged file, or another layout.
    """
    content = _load(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), Mapping):
        raise CheckpointError(f"{path}: has no 'model' entry, so it is not a fairseq checkpoint")
    state = dict(content["model"])
    if not all(isinstance(n, str) and isinstance(w, Tensor) for n, w in state.items()):
        raise CheckpointError(f"{path}: 'model' must map names to tensors; is it a fairseq checkpoint?")
    return Checkpoint(_arguments(path, content), state)


def _load(path: Path) -> Any:
    allowed: list[Any] = [(kind, name) for name, kind in STAND_INS.items()]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old storages raise deprecation warnings that users can't act on
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damage makes torch raise almost anything
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused:
            raise CheckpointError(
                f"{path}: refers to {refused[1]}, which is not on the list of harmless classes; nothing was "
                "run. Save the checkpoint again without it, or don't trust the file"
            ) from error
        first = str(error).strip().split("\n")[0][:200]
        raise CheckpointError(
            f"{path}: not a readable checkpoint, damaged or incomplete ({type(error).__name__}: {first}); "
            "download or copy it again"
        ) from error


def _arguments(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Options of the model, from `args` or `cfg`; in `cfg` those of the task fill what the model lacks."""
    if isinstance(content.get("args"), Arguments):
        return dict(content["args"])
    cfg = content.get("cfg")
    if not isinstance(cfg, Mapping) or not isinstance(cfg.get("model"), Mapping):
        raise CheckpointError(
            f"{path}: has neither 'args' nor a 'cfg' with a model; is it a fairseq checkpoint?"
        )
    model = dict(cfg["model"])
    task = cfg["task"] if isinstance(cfg.get("task"), Mapping) else {}
    named = {"arch": model.get("_name"), "task": task.get("_name")}
    return {**task, **named, **model}
