"""Tensors of the Open Inference Protocol, in JSON and in the binary extension, and Triton's statistics."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.api import InvalidRequest, TextResult
from server.http.schemas import whole
from server.state import AppState

MODEL_VERSION: Final = "1"  # version of every model, because bundles have none
INPUT_NAME: Final = "text_input"
OUTPUT_TYPES: Final = {"text_output": "BYTES", "score": "FP32", "truncated": "BOOL"}
# histograms with the times of Triton's statistics
QUEUED: Final = "convoy_queue_duration_seconds"
ENCODED: Final = "convoy_encode_duration_seconds"
DECODED: Final = "convoy_decode_duration_seconds"
LENGTH_HEADER: Final = "Inference-Header-Content-Length"
MAX_DIMENSIONS: Final = 8
SHOWN_CHARACTERS: Final = 100  # an error repeats at most this much of a client's value


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of a request.

    texts: texts in order.
    shape: shape of the texts' tensor, and of each output.
    outputs: names of the requested outputs, and whether each is binary.
    """

    texts: list[str]
    shape: list[int]
    outputs: dict[str, bool]


def read_tensors(body: dict[str, Any], raw: bytes, model: str, batch_limit: int) -> Tensors:
    """Return the tensors of a request.

    body: JSON of the request.
    raw: bytes of binary tensors after the JSON.
    model: name of the model, for errors.
    batch_limit: greatest number of texts; -1: no limit.

    Raises InvalidRequest, with Triton's messages if they exist.
    """
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        count = len(inputs) if isinstance(inputs, list) else 0
        raise InvalidRequest(f"expected 1 inputs but got {count} inputs for model '{model}'")
    (tensor,) = inputs
    if not isinstance(tensor, dict) or tensor.get("name") != INPUT_NAME:
        name = _shown(tensor.get("name") if isinstance(tensor, dict) else tensor)
        raise InvalidRequest(
            f"unexpected inference input '{name}' for model '{model}'; it has '{INPUT_NAME}'"
        )
    if tensor.get("datatype") != "BYTES":
        raise InvalidRequest(f"input '{INPUT_NAME}' must have the datatype BYTES")
    shape, size = _shape_of(tensor), _parameters(tensor).get("binary_data_size")
    if size is None:
        texts = _flatten(tensor.get("data"), batch_limit)
    elif type(size) is int and size == len(raw):
        texts = _unpack(raw, batch_limit)
    else:
        raise InvalidRequest(
            f"binary_data_size of '{INPUT_NAME}' is {_shown(size)}; the body has {len(raw)} bytes for it"
        )
    if not _has_elements(shape, len(texts)):
        raise InvalidRequest(f"input '{INPUT_NAME}' has {len(texts)} elements; its shape is {shape}")
    return Tensors(texts, shape, _requested_outputs(body, model))


def _shape_of(tensor: dict[str, Any]) -> list[int]:
    """Return the shape of a tensor. Raises InvalidRequest when it is not a list of positive numbers."""
    shape = tensor.get("shape")
    if not isinstance(shape, list) or not 0 < len(shape) <= MAX_DIMENSIONS:
        raise InvalidRequest(f"input '{INPUT_NAME}' needs a shape of 1 to {MAX_DIMENSIONS} numbers")
    shape = [whole(n) for n in shape]
    if not all(type(n) is int and 0 < n < 2**31 for n in shape):
        raise InvalidRequest(f"input '{INPUT_NAME}' needs a shape of positive numbers")
    return shape


def _has_elements(shape: Sequence[int], count: int) -> bool:
    """Return whether a shape has `count` elements, without computing products above `count`."""
    elements = 1
    for n in shape:
        elements *= n
        if elements > count:
            return False
    return elements == count


def _shown(value: Any) -> str:
    """Return the beginning of a client's value, or the name of its type if it is an object."""
    plain = value is None or isinstance(value, str | int | float)
    return str(value)[:SHOWN_CHARACTERS] if plain else type(value).__name__


def write_tensors(tensors: Tensors, results: Sequence[TextResult]) -> tuple[list[dict[str, Any]], bytes]:
    """Return the outputs of an answer, and the bytes of its binary tensors.

    tensors: tensors of the request.
    results: result of each text of the request.
    """
    values: dict[str, list[Any]] = {
        "text_output": [result.text for result in results],
        "score": [result.score for result in results],
        "truncated": [result.truncated for result in results],
    }
    outputs, raw = [], b""
    for name, binary in tensors.outputs.items():
        output: dict[str, Any] = {"name": name, "datatype": OUTPUT_TYPES[name], "shape": tensors.shape}
        if binary:
            packed = b"".join(_pack(OUTPUT_TYPES[name], value) for value in values[name])
            output["parameters"] = {"binary_data_size": len(packed)}
            raw += packed
        else:
            output["data"] = values[name]
        outputs.append(output)
    return outputs, raw


def _requested_outputs(body: dict[str, Any], model: str) -> dict[str, bool]:
    """Return the names of the requested outputs, and whether each is binary. Without names: all outputs."""
    binary_by_default = _parameters(body).get("binary_data_output") is True
    requested = body.get("outputs")
    if not requested:
        return dict.fromkeys(OUTPUT_TYPES, binary_by_default)
    requested = requested if isinstance(requested, list) else [requested]
    if len(requested) > len(OUTPUT_TYPES):
        raise InvalidRequest(
            f"{len(requested)} outputs are requested; model '{model}' has {len(OUTPUT_TYPES)}"
        )
    outputs: dict[str, bool] = {}
    for item in requested:
        name = item.get("name") if isinstance(item, dict) else item
        if not isinstance(item, dict) or not isinstance(name, str) or name not in OUTPUT_TYPES:
            names = ", ".join(OUTPUT_TYPES)
            raise InvalidRequest(
                f"unexpected inference output '{_shown(name)}' for model '{model}'; it has {names}"
            )
        parameters = _parameters(item)
        if parameters.get("classification"):
            raise InvalidRequest("outputs of texts have no classification")
        outputs[name] = parameters.get("binary_data", binary_by_default) is True
    return outputs


def _parameters(item: dict[str, Any]) -> dict[str, Any]:
    parameters = item.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidRequest("parameters must be an object")
    return parameters


def _flatten(data: Any, batch_limit: int) -> list[str]:
    """Return the texts of nested lists, in order."""
    texts: list[str] = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += reversed(item)
            _check_count(len(item), batch_limit)
        elif isinstance(item, str):
            texts.append(item)
            _check_count(len(texts), batch_limit)
        else:
            raise InvalidRequest(f"data of '{INPUT_NAME}' must be strings")
    return texts


def _unpack(raw: bytes, batch_limit: int) -> list[str]:
    """Return the texts of a binary tensor: each has its length in 4 little-endian bytes, then UTF-8."""
    texts, position = list[str](), 0
    while position < len(raw):
        _check_count(len(texts) + 1, batch_limit)
        end = position + 4
        size = int.from_bytes(raw[position:end], "little")
        if end > len(raw) or end + size > len(raw):
            raise InvalidRequest(f"the binary data of '{INPUT_NAME}' end within an element")
        try:
            texts.append(raw[end : end + size].decode())
        except UnicodeDecodeError:
            raise InvalidRequest(f"the binary data of '{INPUT_NAME}' are not UTF-8") from None
        position = end + size
    return texts


def _check_count(count: int, batch_limit: int) -> None:
    if batch_limit != -1 and count > batch_limit:
        raise InvalidRequest(f"input '{INPUT_NAME}' has more elements than this server takes: {batch_limit}")


def _pack(kind: str, value: Any) -> bytes:
    """Return the bytes of an element in the binary format."""
    if kind == "BYTES":
        raw = value.encode()
        return len(raw).to_bytes(4, "little") + bytes(raw)
    return struct.pack("<f" if kind == "FP32" else "<?", value)


def stats_of(state: AppState, models: Sequence[str]) -> list[dict[str, Any]]:
    """Return Triton's statistics of models, in sentences and nanoseconds of all processes."""
    stats, seconds = state.service.stats(), state.metrics.seconds(QUEUED, ENCODED, DECODED)

    def times(name: str, model: str) -> dict[str, int]:
        return {"count": stats[model].answered, "ns": round(seconds.get((name, model), 0.0) * 1e9)}

    return [
        {
            "name": model,
            "version": MODEL_VERSION,
            "inference_count": stats[model].answered,
            "execution_count": stats[model].steps,
            "inference_stats": {
                "success": times(DECODED, model),
                "fail": {"count": stats[model].failed, "ns": 0},
                "queue": times(QUEUED, model),
                "compute_input": times(ENCODED, model),
                "compute_infer": times(DECODED, model),
                "compute_output": {"count": stats[model].answered, "ns": 0},
            },
        }
        for model in models
    ]
