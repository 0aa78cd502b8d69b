"""The files of a Hugging Face folder: settings, weights in one file or in shards, and added tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from safetensors import SafetensorError

from engine.bundle.tensors import SAFETENSORS_TYPES, MappedTensors
from engine.errors import CheckpointError
from engine.text.tokenizers.added import AddedToken
from export.importers.checkpoint import read_state
from export.importers.downloads import check_download
from export.importers.json_object import read_object
from export.importers.weights import LARGEST_SIZE, MOST_LAYERS, Tensor

CONFIG_FILE: Final = "config.json"
GENERATION_FILE: Final = "generation_config.json"
TOKENIZER_FILE: Final = "tokenizer_config.json"
WEIGHTS_FILES: Final = ("model.safetensors", "pytorch_model.bin")
WRAPPERS: Final = ("module.", "_orig_mod.")
INDEX_ENDING: Final = ".index.json"  # follows the name of the weights' file
TOKENIZER_JSON: Final = "tokenizer.json"
# files of the tokenizers of `transformers`, read or not
TOKENIZER_FILES: Final = (
    *("spiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model", "source.spm"),
    *("vocab.json", "merges.txt", "vocab.txt", "bpe.codes", "dict.txt", "dict.SRC.json", "model.SRC"),
)
ADDED_FILE: Final = "added_tokens.json"
SYMBOLS_FILE: Final = "special_tokens_map.json"
# types of weights, and of numbers that some files store with them
TENSOR_TYPES: Final = SAFETENSORS_TYPES | {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
MAX_TOKENS: Final = 1 << 24  # more than any vocabulary has
FAIRSEQ_IDS: Final = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
T5_IDS: Final = {"pad_token_id": 0, "eos_token_id": 1}
MT5: Final = {"feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0, **T5_IDS}
# defaults in `transformers` of settings that an older config.json lacks, by model type
DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "bart": {"activation_function": "gelu", "decoder_start_token_id": 2, **FAIRSEQ_IDS},
    "blenderbot": {
        **{"activation_function": "gelu", "decoder_start_token_id": 1},
        **{"bos_token_id": 1, "pad_token_id": 0, "eos_token_id": 2},
    },
    "mbart": {"activation_function": "gelu", **FAIRSEQ_IDS},
    "m2m_100": {
        **{"activation_function": "relu", "scale_embedding": True, "decoder_start_token_id": 2},
        **FAIRSEQ_IDS,
    },
    "pegasus": {"activation_function": "gelu", "decoder_start_token_id": 0, **T5_IDS},
    "fsmt": {
        "tie_word_embeddings": False,
        "scale_embedding": True,
        "decoder_start_token_id": 2,
        **FAIRSEQ_IDS,
    },
    "t5": T5_IDS,
    "mt5": {"tie_word_embeddings": False, **MT5},
    "umt5": MT5,
}


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder, and the contents of config.json, tokenizer_config.json and generation_config.json.

    rules: decoding settings of config.json (older models) and generation_config.json.
    """

    path: Path
    config: Mapping[str, Any]
    rules: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    generation: Mapping[str, Any]

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def need(self, *names: str) -> None:
        """Raise CheckpointError that names all missing or falsely downloaded files among `names`."""
        lacking = [name for name in names if not self.has(name)]
        if lacking:
            raise self._lacks(", ".join(lacking), names)
        for name in names:
            check_download(self.path / name)

    def file(self, *names: str) -> Path:
        """Return the path of the first existing file among `names`. Raises CheckpointError if none exists."""
        for name in names:
            if self.has(name):
                check_download(self.path / name)
                return self.path / name
        raise self._lacks(" or ".join(names), names)

    def tokenizer_class(self) -> str | None:
        """Return the class of the tokenizer without "Fast", or None if no file names it."""
        named = self.tokenizer.get("tokenizer_class") or self.config.get("tokenizer_class")
        return str(named).removesuffix("Fast") if named else None

    def _lacks(self, missing: str, names: tuple[str, ...]) -> CheckpointError:
        """Return the error of a missing file; a folder with files of another tokenizer is not incomplete.

        missing: text that names the missing files.
        names: all files of the expected tokenizer.
        """
        others = [name for name in TOKENIZER_FILES if name not in names and self.has(name)]
        if not others:
            return CheckpointError(f"{self.path}: lacks {missing}; download the whole folder")
        kind = self.tokenizer_class()
        why = f"is not supported in a model of the type {self.config.get('model_type')!r}"
        if kind is None:
            why = f"is read only if {TOKENIZER_FILE} names its class; copy that file of the original model"
        return CheckpointError(
            f"{self.path}: lacks {missing}; its tokenizer, {kind or 'of another kind'} "
            f"({', '.join(others)}), {why}"
        )

    def for_task(self, name: str) -> Mapping[str, Any]:
        """Return the settings of config.json for one task, such as "summarization"."""
        tasks = self.config.get("task_specific_params")
        values = tasks.get(name) if isinstance(tasks, dict) else None
        return values if isinstance(values, dict) else {}


def open_folder(path: Path) -> ModelFolder:
    """Read the settings of a folder. Raises CheckpointError if a file is missing or unreadable."""
    if not (path / CONFIG_FILE).is_file():
        raise CheckpointError(f"{path}: holds no {CONFIG_FILE}, so it is not a model folder of Hugging Face")
    # the settings that the file holds
    said = read_object(path / CONFIG_FILE)
    config = DEFAULTS.get(str(said.get("model_type")), {}) | said
    if "src_vocab_size" in config:  # FSMT
        config["vocab_size"] = config["src_vocab_size"]
    if config.get("force_bos_token_to_be_generated") and config.get("forced_bos_token_id") is None:
        config["forced_bos_token_id"] = config.get("bos_token_id")  # the older name of 2020
    own = read_object(path / GENERATION_FILE) if (path / GENERATION_FILE).is_file() else {}
    rules = {**config, **{name: value for name, value in own.items() if value is not None}}
    tokenizer = read_object(path / TOKENIZER_FILE) if (path / TOKENIZER_FILE).is_file() else {}
    return ModelFolder(path, config, rules, tokenizer, own)


def read_tensors(folder: ModelFolder) -> dict[str, Tensor]:
    """Read all weights of a folder. Raises CheckpointError that names a missing or damaged file."""
    for name in WEIGHTS_FILES:
        if folder.has(name):
            return _unwrapped(read_weights(folder.path / name))
        if folder.has(name + INDEX_ENDING):
            return _unwrapped(_read_shards(folder, name + INDEX_ENDING))
    raise CheckpointError(f"{folder.path}: lacks {' or '.join(WEIGHTS_FILES)}; download the whole folder")


def _unwrapped(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights without the prefixes of DistributedDataParallel and torch.compile."""
    while tensors and (prefix := next((p for p in WRAPPERS if all(n.startswith(p) for n in tensors)), "")):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or a pickle (`export.importers.checkpoint`).

    Raises CheckpointError that names the file.
    """
    if path.suffix != ".safetensors":
        return read_state(path)
    try:
        return MappedTensors(path, TENSOR_TYPES)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        check_download(path)
        raise CheckpointError(
            f"{path}: not a readable safetensors file, damaged or incomplete ({error}); download it again"
        ) from error


def _read_shards(folder: ModelFolder, index: str) -> dict[str, Tensor]:
    """Read all shards of an index. Raises CheckpointError if one is missing or lacks a weight."""
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
    """Return whether `name` is the name of a weights file without a folder."""
    return isinstance(name, str) and Path(name).name == name and Path(name).suffix in (".safetensors", ".bin")


def listed_tokens(folder: ModelFolder) -> list[str]:
    """Return added symbols without stored ids, in the order of the ids that follow the vocabulary's.

    Raises CheckpointError if the list holds anything but symbols.
    """
    listed = folder.tokenizer
    if folder.has(SYMBOLS_FILE):
        listed = read_object(folder.path / SYMBOLS_FILE)
    tokens = listed.get("additional_special_tokens")
    symbols = [_content(token) for token in tokens] if isinstance(tokens, list) else []
    if not all(isinstance(symbol, str) for symbol in symbols):
        raise CheckpointError(f"{folder.path}: its added tokens are not symbols; download it again")
    return symbols


def added_tokens(folder: ModelFolder) -> dict[str, AddedToken]:
    """Return the added tokens that have ids in the files, by their symbols.

    Raises CheckpointError if a file does not hold symbols and ids.
    """
    listed, named = listed_tokens(folder), folder.tokenizer.get("extra_special_tokens")
    special = {*listed, *(named if isinstance(named, (list, dict)) else ())}
    decoder = folder.tokenizer.get("added_tokens_decoder")
    numbered = read_object(folder.path / ADDED_FILE) if folder.has(ADDED_FILE) else {}
    whole = read_object(folder.path / TOKENIZER_JSON) if folder.has(TOKENIZER_JSON) else {}
    try:
        entries = [{"content": s, "id": i, "special": s in special} for s, i in numbered.items()]
        entries += [{**token, "id": int(i)} for i, token in (decoder or {}).items()]  # these have options
        entries += whole.get("added_tokens") or []
        return {entry["content"]: _added_token(entry) for entry in entries}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder.path}: its added tokens are not symbols with ids; download it again"
        ) from error


def _content(token: Any) -> Any:
    """Return the symbol of a token that is a string or an object."""
    return token.get("content") if isinstance(token, dict) else token


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    """Parse an added token. Raises KeyError, TypeError or ValueError if the entry is none."""
    token, symbol = entry["id"], entry["content"]
    if not isinstance(symbol, str) or not symbol or type(token) is not int or not 0 <= token < MAX_TOKENS:
        raise ValueError(symbol)
    flags = {name: entry.get(name) is True for name in ("lstrip", "rstrip", "single_word")}
    return AddedToken(token, **flags, shown=entry.get("special") is not True)


def size_problems(config: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """Return the problems of the settings `names`, which are sizes of a model."""

    def fits(name: str) -> bool:
        """Return whether a setting is a whole number of a plausible size."""
        value = config.get(name)
        most = (
            MAX_TOKENS
            if name.endswith("vocab_size")
            else MOST_LAYERS
            if name.endswith("layers")
            else LARGEST_SIZE
        )
        return type(value) is int and 0 < value <= most

    return [f"{name} = {config.get(name)!r} is not a valid size" for name in names if not fits(name)]
