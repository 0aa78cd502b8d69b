"""Converts messages to the JSON and tensors of the HTTP routes, and back."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from server.grpc.bridge import HttpAnswer

# field of InferTensorContents for each datatype of a tensor
CONTENTS_FIELDS: Final = {"BYTES": "bytes_contents", "FP32": "fp32_contents", "BOOL": "bool_contents"}
LENGTH_HEADER: Final = "inference-header-content-length"
MAX_FIELDS: Final = 100  # number of inputs or outputs of a message, or of parameters of a part


class BadMessage(Exception):
    """The protocol does not allow a message."""


def parse_message(kind: Any, raw: bytes) -> Any:
    """Parse a message. Raises BadMessage.

    kind: class of the message.
    raw: serialized message.
    """
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise BadMessage(f"the message can't be parsed: {error}") from None


def read_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON values. Raises BadMessage on too many, and on a parameter without a value."""
    _check_count("parameters", len(parameters))
    values: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise BadMessage(f"parameter '{name[:100]}' has no value")
        values[name] = getattr(parameter, kind)
    return values


def _check_count(name: str, count: int) -> None:
    """Raise BadMessage on more parts than any model has, before the event loop reads them."""
    if count > MAX_FIELDS:
        raise BadMessage(f"the message has more than {MAX_FIELDS} {name}")


def read_request(message: Any) -> tuple[bytes, int]:
    """Write a ModelInferRequest as the body of an HTTP request, with tensors in the binary extension.

    Returns the body and its number of JSON bytes. Raises BadMessage if texts are in both fields for contents.
    """
    for name in ("inputs", "outputs"):
        _check_count(name, len(getattr(message, name)))
    raw = list(message.raw_input_contents)
    with_contents = [tensor for tensor in message.inputs if tensor.HasField("contents")]
    if raw and (with_contents or len(raw) != len(message.inputs)):
        raise BadMessage("contents must be in raw_input_contents, one for each input, or in contents")
    inputs = []
    for number, tensor in enumerate(message.inputs):
        if not raw:
            raw_texts = [len(text).to_bytes(4, "little") + text for text in tensor.contents.bytes_contents]
            data = b"".join(raw_texts)
        else:
            data = raw[number]
        inputs.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "parameters": read_parameters(tensor.parameters) | {"binary_data_size": len(data)},
                "data": data,
            }
        )
    tensor_bytes = b"".join(tensor.pop("data") for tensor in inputs)
    head: dict[str, Any] = {"inputs": inputs, "parameters": read_parameters(message.parameters)}
    head["parameters"]["binary_data_output"] = False
    if message.id:
        head["id"] = message.id
    if message.outputs:
        head["outputs"] = [
            {"name": output.name, "parameters": read_parameters(output.parameters) | {"binary_data": False}}
            for output in message.outputs
        ]
    packed = json.dumps(head).encode()
    return packed + tensor_bytes, len(packed)


def write_response(classes: Mapping[str, Any], answer: HttpAnswer, *, raw: bool) -> Any:
    """Return the ModelInferResponse of an HTTP answer.

    classes: class of each message, by name.
    answer: JSON answer without binary tensors.
    raw: write tensors into raw_output_contents, if the request has raw_input_contents.
    """
    values = answer.json()
    response = classes["ModelInferResponse"](
        model_name=values["model_name"], model_version=values["model_version"], id=values.get("id") or ""
    )
    for name, value in values.get("parameters", {}).items():
        response.parameters[name].string_param = value
    for output in values["outputs"]:
        tensor = response.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
        data = output["data"]
        if output["datatype"] == "BYTES":
            data = [text.encode() for text in data]
        if raw:
            response.raw_output_contents.append(_pack(output["datatype"], data))
        else:
            getattr(tensor.contents, CONTENTS_FIELDS[output["datatype"]]).extend(data)
    return response


def _pack(datatype: str, data: list[Any]) -> bytes:
    """Return a tensor as little-endian bytes."""
    if datatype == "BYTES":
        return b"".join(len(text).to_bytes(4, "little") + text for text in data)
    return struct.pack(f"<{len(data)}{'f' if datatype == 'FP32' else '?'}", *data)
