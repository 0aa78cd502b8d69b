"""The files of a Hugging Face folder: settings, weights in one file or in shards, and added tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from engine.errors import CheckpointError
from export.importers.checkpoint import read_state
from export.importers.json_object import read_object
from export.importers.weights import LARGEST_SIZE, MOST_LAYERS

CONFIG_FILE: Final = "config.json"
GENERATION_FILE: Final = "generation_config.json"
TOKENIZER_FILE: Final = "tokenizer_config.json"
WEIGHTS_FILES: Final = ("model.safetensors", "pytorch_model.bin")
INDEX_ENDING: Final = ".index.json"  # beside the name that the weights have in one file
MAX_TOKENS: Final = 1 << 24  # more than any vocabulary has


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with its settings read.

    rules: of generation; older models keep them in config.json.
    generation: content of generation_config.json.
    """

    path: Path
    config: Mapping[str, Any]
    rules: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    generation: Mapping[str, Any]

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def need(self, *names: str) -> None:
        """Raise CheckpointError naming all of these files that are not there."""
        lacking = [name for name in names if not self.has(name)]
        if lacking:
            raise CheckpointError(f"{self.path}: lacks {', '.join(lacking)}; download the whole folder")

    def file(self, *names: str) -> Path:
        """Find the first of these files that is there. Raises CheckpointError when none is."""
        for name in names:
            if self.has(name):
                return self.path / name
        raise CheckpointError(f"{self.path}: lacks {' or '.join(names)}; download the whole folder")

    def for_task(self, name: str) -> Mapping[str, Any]:
        """Return what config.json sets for one task, such as "summarization"."""
        tasks = self.config.get("task_specific_params")
        values = tasks.get(name) if isinstance(tasks, dict) else None
        return values if isinstance(values, dict) else {}


def open_folder(path: Path) -> ModelFolder:
    """Read the settings of a folder. Raises CheckpointError that says what is missing or unreadable."""
    if not (path / CONFIG_FILE).is_file():
        raise CheckpointError(f"{path}: holds no {CONFIG_FILE}, so it is no model folder of Hugging Face")
    config = read_object(path / CONFIG_FILE)
    own = read_object(path / GENERATION_FILE) if (path / GENERATION_FILE).is_file() else {}
    rules = {**config, **{name: value for name, value in own.items() if value is not None}}
    tokenizer = read_object(path / TOKENIZER_FILE) if (path / TOKENIZER_FILE).is_file() else {}
    return ModelFolder(path, config, rules, tokenizer, own)


def read_tensors(folder: ModelFolder) -> dict[str, Tensor]:
    """Read all weights, shard by shard. Raises CheckpointError naming what is missing or damaged."""
    for name in WEIGHTS_FILES:
        if folder.has(name):
            return read_weights(folder.path / name)
        if folder.has(name + INDEX_ENDING):
            return _read_shards(folder, name + INDEX_ENDING)
    raise CheckpointError(f"{folder.path}: lacks {' or '.join(WEIGHTS_FILES)}; download the whole folder")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or a pickle (`export.importers.checkpoint`).

    Raises CheckpointError that names the file.
    """
    if path.suffix != ".safetensors":
        return read_state(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: not a readable safetensors file, damaged or incomplete ({error}); download it again"
        ) from error


def _read_shards(folder: ModelFolder, index: str) -> dict[str, Tensor]:
    places = read_object(folder.path / index).get("weight_map")
    if not isinstance(places, dict) or not all(_plain_name(place) for place in places.values()):
        raise CheckpointError(
            f"{folder.path / index}: weight_map must give each weight the name of a file here"
        )
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(places.values())):
        if not folder.has(shard):
            raise CheckpointError(f"{folder.path}: lacks {shard}, a part of the weights; download it too")
        tensors |= read_weights(folder.path / shard)
    lacking = sorted(set(places) - set(tensors))
    if lacking:
        raise CheckpointError(f"{folder.path}: no shard holds {lacking[0]} that {index} promises")
    return tensors


def _plain_name(name: Any) -> bool:
    """Whether it names a file of the folder itself, of a kind that holds weights."""
    return isinstance(name, str) and Path(name).name == name and Path(name).suffix in (".safetensors", ".bin")


def added_tokens(folder: ModelFolder, first: int) -> dict[str, int]:
    """Return the tokens beside the vocabulary with their ids, by whichever files tell.

    first: the id after the vocabulary's last, for files that only list them in order.

    Raises CheckpointError when a file does not hold symbols and ids.
    """
    listed = folder.tokenizer
    if folder.has("special_tokens_map.json"):
        listed = read_object(folder.path / "special_tokens_map.json")
    names = _listed_tokens(listed.get("additional_special_tokens"))
    ids: dict[Any, Any] = {name: first + i for i, name in enumerate(names)}
    ids |= _numbered_tokens(folder.tokenizer.get("added_tokens_decoder"))
    if folder.has("added_tokens.json"):
        ids |= read_object(folder.path / "added_tokens.json")
    if folder.has("tokenizer.json"):
        tokens = read_object(folder.path / "tokenizer.json").get("added_tokens")
        entries = [t for t in tokens if isinstance(t, dict)] if isinstance(tokens, list) else []
        ids |= {t.get("content"): t.get("id") for t in entries}
    if not all(isinstance(s, str) and type(i) is int and 0 <= i < MAX_TOKENS for s, i in ids.items()):
        raise CheckpointError(f"{folder.path}: its added tokens are not symbols with ids; download it again")
    return ids


def _listed_tokens(listed: Any) -> list[Any]:
    """Symbols of a list of them, or of objects that hold them."""
    tokens = listed if isinstance(listed, list) else []
    return [token.get("content") if isinstance(token, dict) else token for token in tokens]


def _numbered_tokens(decoder: Any) -> dict[Any, int]:
    """Symbols with their ids of an object of tokens by their numbers."""
    tokens = decoder.items() if isinstance(decoder, dict) else ()
    return {t.get("content"): int(i) for i, t in tokens if isinstance(t, dict) and i.isdecimal()}


def size_problems(config: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """List what is wrong with the named sizes of a model."""

    def fits(name: str) -> bool:
        value = config.get(name)
        most = (
            MAX_TOKENS if name == "vocab_size" else MOST_LAYERS if name.endswith("layers") else LARGEST_SIZE
        )
        return type(value) is int and 0 < value <= most

    return [f"{name} = {config.get(name)!r} is no size" for name in names if not fits(name)]
