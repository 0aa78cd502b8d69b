"""Read pickled checkpoints without torch, and without running any code in them.

A closed list has stand-ins for the classes in such files (docs/reference.md 7). Any other name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.errors import CheckpointError
from export.importers.downloads import check_download
from export.importers.pickles import Stateful, UnlistedName
from export.importers.torch_files import IgnoredObject, StoredTensor, read_torch_file
from export.importers.weights import Tensor, is_float

State = dict[str, Tensor]  # by the file's names


class Arguments(dict[str, Any], Stateful):
    """Stand-in for argparse.Namespace: its attributes as a dictionary."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.update(state)


class OmegaNode(Stateful):
    """Stand-in for a node of OmegaConf, the type of `cfg` in fairseq 0.10: stores the wrapped value."""

    content: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.content = state["_content"] if "_content" in state else state.get("_val")


NODES: Final = (
    "dictconfig.DictConfig",
    "listconfig.ListConfig",
    *(f"nodes.{kind}Node" for kind in ("Any", "String", "Integer", "Float", "Boolean")),
)
# checkpoints name these types but never call them
BUILTIN_TYPES: Final = ("dict", "list", "tuple", "str", "int", "long", "float", "bool")
METERS: Final = ("AverageMeter", "TimeMeter", "StopwatchMeter", "SumMeter", "MetersDict")
PLACES: Final = ("meters", "logging.meters")
STAND_INS: Final[dict[str, type]] = {
    "argparse.Namespace": Arguments,
    **{f"fairseq.{at}.{name}": IgnoredObject for name in METERS for at in PLACES},
    "numpy.core.multiarray.scalar": IgnoredObject,
    "numpy._core.multiarray.scalar": IgnoredObject,
    "numpy.dtype": IgnoredObject,
    **{f"omegaconf.{name}": OmegaNode for name in NODES},
    "omegaconf.base.ContainerMetadata": IgnoredObject,
    "omegaconf.base.Metadata": IgnoredObject,
    "collections.defaultdict": IgnoredObject,
    "typing.Any": IgnoredObject,
    **{f"{place}.{name}": IgnoredObject for name in BUILTIN_TYPES for place in ("builtins", "__builtin__")},
}
# newer models nest the options of these parts: encoder.embed_dim for encoder_embed_dim
GROUPS: Final = ("encoder", "decoder", "quant_noise")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Options by name, and the state dictionary on the CPU.

    arguments: options of the model and task; also `encoder_version` and `decoder_version`, the layout
        versions in the state dictionary, 1 if absent.
    state: arrays by name.
    """

    arguments: dict[str, Any]
    state: State


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint of the "args" or "cfg" layout, zip or older format, saved on any device.

    Raises CheckpointError for a global that is not on the list, a damaged file, or another layout.
    """
    content = _load(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), Mapping):
        raise CheckpointError(f"{path}: has no 'model' entry, so it is not a fairseq checkpoint")
    state = _checked_tensors(path, content["model"], "'model'")
    return Checkpoint({**_arguments(path, content), **_versions(path, state)}, state)


def _checked_tensors(path: Path, content: Any, what: str) -> State:
    """Return a state dictionary. Raises CheckpointError on an unprintable name or an incomplete tensor."""
    tensors: dict[Any, Any] = dict(content) if isinstance(content, Mapping) else {"": None}
    if not all(isinstance(n, str) and isinstance(w, StoredTensor) for n, w in tensors.items()):
        raise CheckpointError(f"{path}: {what} must map names to tensors; is it the right file?")
    strange = [name for name in tensors if not name.isprintable()]
    if strange:
        raise CheckpointError(f"{path}: holds a weight called {strange[0]!r}; is the file damaged?")
    state = {}
    for name, tensor in tensors.items():
        values = tensor.array()
        if values is None:
            raise CheckpointError(
                f"{path}: {name} is not an ordinary tensor (sparse, quantised or without content)"
            )
        state[name] = values
    return state


def read_state(path: Path) -> State:
    """Read the arrays, by name, of a pickled state dictionary, such as Hugging Face's pytorch_model.bin.

    Raises CheckpointError like `read_checkpoint`.
    """
    return _checked_tensors(path, _load(path), "the file")


def average(checkpoints: Sequence[tuple[Path, Checkpoint]]) -> Checkpoint:
    """Average the weights, summed in fp32 as fairseq's average_checkpoints.py does; keep the first's options.

    Raises CheckpointError when weights differ in name or shape.
    """
    (first, base), *others = checkpoints
    for path, other in others:
        if {n: w.shape for n, w in other.state.items()} != {n: w.shape for n, w in base.state.items()}:
            raise CheckpointError(
                f"{path}: can't be averaged with {first}: their weights differ in name or shape"
            )
    mean = {}
    for name, weight in base.state.items():
        if not is_float(weight):
            mean[name] = weight
            continue
        total = weight.astype(np.float32)
        for _, other in others:
            total += other.state[name].astype(np.float32)
        mean[name] = total / np.float32(len(checkpoints))
    return Checkpoint(base.arguments, mean)


def _versions(path: Path, state: State) -> dict[str, float]:
    """Return the layout version of the encoder's weights and of the decoder's."""
    versions = {}
    for side in ("encoder", "decoder"):
        version = state.get(f"{side}.version")
        if version is not None and (version.size != 1 or version.dtype.kind == "c"):
            raise CheckpointError(f"{path}: {side}.version must be one number; is the file damaged?")
        versions[f"{side}_version"] = 1.0 if version is None else float(version.item())
    return versions


def _load(path: Path) -> Any:
    """Return the object in a file of torch. Raises CheckpointError if it is damaged."""
    try:
        return read_torch_file(path, STAND_INS)
    except UnlistedName as error:
        raise CheckpointError(
            f"{path}: refers to {_printable(str(error))}, which is not on the list of harmless classes; "
            "nothing was run. Save the checkpoint again without it, or don't trust the file"
        ) from error
    except Exception as error:  # damage raises almost anything
        check_download(path)
        first = _printable(str(error).strip().split("\n")[0][:200])
        raise CheckpointError(
            f"{path}: not a readable checkpoint, damaged or incomplete ({type(error).__name__}: {first}); "
            "download or copy it again"
        ) from error


def _printable(text: str) -> str:
    """Return text of a file with unprintable characters replaced."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _arguments(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the model's options, of `args` or `cfg`; options of the task fill the gaps of a `cfg`."""
    if isinstance(content.get("args"), Arguments):
        return dict(content["args"])
    try:
        cfg = _unwrap(content.get("cfg"), {})
    except RecursionError as error:
        raise CheckpointError(f"{path}: 'cfg' is nested without end; is the file damaged?") from error
    if not isinstance(cfg, Mapping) or not isinstance(cfg.get("model"), Mapping):
        raise CheckpointError(
            f"{path}: has neither 'args' nor a 'cfg' with a model; is it a fairseq checkpoint?"
        )
    model = dict(cfg["model"])
    task = cfg["task"] if isinstance(cfg.get("task"), Mapping) else {}
    named = {"arch": model.get("_name"), "task": task.get("_name")}
    for part in ("bpe", "tokenizer"):
        if isinstance(cfg.get(part), Mapping):
            named[part] = cfg[part].get("_name")
            named |= {name: value for name, value in cfg[part].items() if name == "bpe_add_prefix_space"}
    grouped = {
        f"{group}_{name}": value
        for group in GROUPS
        if isinstance(model.get(group), Mapping)
        for name, value in model[group].items()
    }
    return {**task, **named, **grouped, **model}


def _unwrap(value: Any, cache: dict[int, Any]) -> Any:
    """Return a configuration without OmegaConf's nodes.

    value: part of the configuration.
    cache: unwrapped parts by `id`; a shared part is visited once.
    """
    if id(value) in cache:
        return cache[id(value)]
    if isinstance(value, OmegaNode):
        plain = _unwrap(value.content, cache)
    elif isinstance(value, Mapping):
        plain = {key: _unwrap(part, cache) for key, part in value.items()}
    elif isinstance(value, list):
        plain = [_unwrap(part, cache) for part in value]
    else:
        return value
    cache[id(value)] = plain
    return plain
