"""Tensors of the Open Inference Protocol, as JSON and in the binary extension, and Triton's figures."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.api import InvalidRequest, TextResult
from server.metrics import Metrics
from server.state import AppState

VERSION: Final = "1"  # of every model: bundles have no versions
INPUT: Final = "text_input"
OUTPUTS: Final = {"text_output": "BYTES", "score": "FP32", "truncated": "BOOL"}
LENGTH: Final = "Inference-Header-Content-Length"
SHOWN: Final = 100  # characters of a client's own words that an error repeats


@dataclass(frozen=True, slots=True)
class Tensors:
    """A request's texts, their shape, and the outputs wanted with whether each goes in binary."""

    texts: list[str]
    shape: list[int]
    outputs: dict[str, bool]


def read_tensors(body: dict[str, Any], raw: bytes, model: str) -> Tensors:
    """Read the tensors of a request.

    raw: what follows the JSON header.

    Raises InvalidRequest, in Triton's words where it has some.
    """
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        count = len(inputs) if isinstance(inputs, list) else 0
        raise InvalidRequest(f"expected 1 inputs but got {count} inputs for model '{model}'")
    (tensor,) = inputs
    if not isinstance(tensor, dict) or tensor.get("name") != INPUT:
        name = str(tensor.get("name") if isinstance(tensor, dict) else tensor)[:SHOWN]
        raise InvalidRequest(f"unexpected inference input '{name}' for model '{model}'; it has '{INPUT}'")
    if tensor.get("datatype") != "BYTES":
        raise InvalidRequest(f"input '{INPUT}' must have the datatype BYTES")
    shape = tensor.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 2**31 for n in shape) or not shape:
        raise InvalidRequest(f"input '{INPUT}' needs a shape of positive numbers")
    size = _parameters(tensor).get("binary_data_size")
    if size is None:
        texts = _flat(tensor.get("data"))
    elif type(size) is int and size == len(raw):
        texts = _unpack(raw)
    else:
        raise InvalidRequest(
            f"binary_data_size of '{INPUT}' is {size!r}; the body has {len(raw)} bytes for it"
        )
    if len(texts) != math.prod(shape):
        raise InvalidRequest(f"input '{INPUT}' has {len(texts)} elements; its shape says {math.prod(shape)}")
    return Tensors(texts, shape, _outputs(body, model))


def write_tensors(tensors: Tensors, results: Sequence[TextResult]) -> tuple[list[dict[str, Any]], bytes]:
    """Make the outputs of an answer, and what follows its JSON."""
    values: dict[str, list[Any]] = {
        "text_output": [result.text for result in results],
        "score": [result.score for result in results],
        "truncated": [result.truncated for result in results],
    }
    outputs, raw = [], b""
    for name, binary in tensors.outputs.items():
        output: dict[str, Any] = {"name": name, "datatype": OUTPUTS[name], "shape": tensors.shape}
        if binary:
            packed = b"".join(_pack(OUTPUTS[name], value) for value in values[name])
            output["parameters"] = {"binary_data_size": len(packed)}
            raw += packed
        else:
            output["data"] = values[name]
        outputs.append(output)
    return outputs, raw


def _outputs(body: dict[str, Any], model: str) -> dict[str, bool]:
    everything = _parameters(body).get("binary_data_output") is True
    items = body.get("outputs")
    if not items:
        return dict.fromkeys(OUTPUTS, everything)
    outputs: dict[str, bool] = {}
    for output in items if isinstance(items, list) else [items]:
        name = output.get("name") if isinstance(output, dict) else output
        if not isinstance(name, str) or name not in OUTPUTS:
            names = ", ".join(OUTPUTS)
            raise InvalidRequest(
                f"unexpected inference output '{str(name)[:SHOWN]}' for model '{model}'; it has {names}"
            )
        parameters = _parameters(output)
        if parameters.get("classification"):
            raise InvalidRequest("outputs of texts have no classification")
        outputs[name] = parameters.get("binary_data", everything) is True
    return outputs


def _parameters(item: dict[str, Any]) -> dict[str, Any]:
    parameters = item.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidRequest("parameters must be an object")
    return parameters


def _flat(data: Any) -> list[str]:
    """Texts of nested lists, in order."""
    texts: list[str] = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += reversed(item)
        elif isinstance(item, str):
            texts.append(item)
        else:
            raise InvalidRequest(f"data of '{INPUT}' must be strings")
    return texts


def _unpack(raw: bytes) -> list[str]:
    """Each element is its length, 4 bytes with the least significant first, and UTF-8."""
    texts, position = [], 0
    while position < len(raw):
        end = position + 4
        size = int.from_bytes(raw[position:end], "little")
        if end > len(raw) or end + size > len(raw):
            raise InvalidRequest(f"the binary data of '{INPUT}' end inside of an element")
        try:
            texts.append(raw[end : end + size].decode())
        except UnicodeDecodeError:
            raise InvalidRequest(f"the binary data of '{INPUT}' are not UTF-8") from None
        position = end + size
    return texts


def _pack(kind: str, value: Any) -> bytes:
    if kind == "BYTES":
        raw = value.encode()
        return len(raw).to_bytes(4, "little") + bytes(raw)
    return struct.pack("<f" if kind == "FP32" else "<?", value)


def stats_of(state: AppState, model: str) -> dict[str, Any]:
    """Return a model's statistics as Triton has them: of sentences, with sums of nanoseconds."""
    stats = state.service.stats()[model]

    def times(name: str, count: int) -> dict[str, int]:
        return {"count": count, "ns": _nanoseconds(state.metrics, name, model)}

    decode = times("convoy_decode_duration_seconds", stats.answered)
    return {
        "name": model,
        "version": VERSION,
        "inference_count": stats.answered,
        "execution_count": stats.steps,
        "inference_stats": {
            "success": decode,
            "fail": {"count": stats.failed, "ns": 0},
            "queue": times("convoy_queue_duration_seconds", stats.answered),
            "compute_input": times("convoy_encode_duration_seconds", stats.answered),
            "compute_infer": decode,
            "compute_output": {"count": stats.answered, "ns": 0},
        },
    }


def _nanoseconds(metrics: Metrics, name: str, model: str) -> int:
    seconds = metrics.registry.get_sample_value(f"{name}_sum", {"model": model}) or 0.0
    return round(seconds * 1e9)
