"""The messages of `inference.GRPCInferenceService`, built from a table when the server starts.

Names and numbers of the fields follow the Open Inference Protocol (KServe, open_inference_grpc.proto) with
Triton's streaming method. The classes have a pool of their own, so that they don't collide with a client's
classes in the same process.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE: Final = "inference"
SERVICE: Final = "GRPCInferenceService"
FILE_NAME: Final = "open_inference_grpc.proto"
MAP: Final = "map"  # type of a map from texts to InferParameter
PARAMETER_FIELD: Final = "map parameters"
TENSOR: Final = ("string name", "string datatype", "repeated int64 shape")
# message: fields as "type name", numbered from 1 in order; types in capitals are messages of this table
MESSAGES: Final[dict[str, tuple[str, ...]]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("bool live",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("bool ready",),
    "ModelReadyRequest": ("string name", "string version"),
    "ModelReadyResponse": ("bool ready",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("string name", "string version", "repeated string extensions"),
    "ModelMetadataRequest": ("string name", "string version"),
    "ModelMetadataResponse.TensorMetadata": TENSOR,
    "ModelMetadataResponse": (
        "string name",
        "repeated string versions",
        "string platform",
        "repeated ModelMetadataResponse.TensorMetadata inputs",
        "repeated ModelMetadataResponse.TensorMetadata outputs",
    ),
    "InferParameter": (
        "oneof bool bool_param",
        "oneof int64 int64_param",
        "oneof string string_param",
        "oneof double double_param",
        "oneof uint64 uint64_param",
    ),
    "InferTensorContents": (
        "repeated bool bool_contents",
        "repeated int32 int_contents",
        "repeated int64 int64_contents",
        "repeated uint32 uint_contents",
        "repeated uint64 uint64_contents",
        "repeated float fp32_contents",
        "repeated double fp64_contents",
        "repeated bytes bytes_contents",
    ),
    "ModelInferRequest.InferInputTensor": (*TENSOR, PARAMETER_FIELD, "InferTensorContents contents"),
    "ModelInferRequest.InferRequestedOutputTensor": ("string name", PARAMETER_FIELD),
    "ModelInferRequest": (
        "string model_name",
        "string model_version",
        "string id",
        PARAMETER_FIELD,
        "repeated ModelInferRequest.InferInputTensor inputs",
        "repeated ModelInferRequest.InferRequestedOutputTensor outputs",
        "repeated bytes raw_input_contents",
    ),
    "ModelInferResponse.InferOutputTensor": (*TENSOR, PARAMETER_FIELD, "InferTensorContents contents"),
    "ModelInferResponse": (
        "string model_name",
        "string model_version",
        "string id",
        PARAMETER_FIELD,
        "repeated ModelInferResponse.InferOutputTensor outputs",
        "repeated bytes raw_output_contents",
    ),
    "ModelStreamInferResponse": ("string error_message", "ModelInferResponse infer_response"),
}
# method: its request and its response
METHODS: Final = {
    "ServerLive": ("ServerLiveRequest", "ServerLiveResponse"),
    "ServerReady": ("ServerReadyRequest", "ServerReadyResponse"),
    "ModelReady": ("ModelReadyRequest", "ModelReadyResponse"),
    "ServerMetadata": ("ServerMetadataRequest", "ServerMetadataResponse"),
    "ModelMetadata": ("ModelMetadataRequest", "ModelMetadataResponse"),
    "ModelInfer": ("ModelInferRequest", "ModelInferResponse"),
    "ModelStreamInfer": ("ModelInferRequest", "ModelStreamInferResponse"),
}
STREAMED_METHODS: Final = frozenset({"ModelStreamInfer"})  # streams of requests and responses


def make_pool() -> DescriptorPool:
    """Return a pool with the messages and the service."""
    file = FileDescriptorProto(name=FILE_NAME, package=PACKAGE, syntax="proto3")
    by_name: dict[str, DescriptorProto] = {}
    for name in sorted(MESSAGES, key=lambda name: name.count(".")):  # outer messages first
        outer, _, inner = name.rpartition(".")
        message = by_name[outer].nested_type.add() if outer else file.message_type.add()
        message.name = inner
        by_name[name] = message
        for number, field in enumerate(MESSAGES[name], 1):
            _add_field(message, name, field, number)
    service = file.service.add(name=SERVICE)
    for name, (request, response) in METHODS.items():
        streams = name in STREAMED_METHODS
        service.method.add(
            name=name,
            input_type=_type_name(request),
            output_type=_type_name(response),
            client_streaming=streams,
            server_streaming=streams,
        )
    pool = DescriptorPool()
    pool.Add(file)
    return pool


def message_classes(pool: DescriptorPool) -> dict[str, Any]:
    """Return the class of each message, by its name in the table."""
    return {name: GetMessageClass(pool.FindMessageTypeByName(_type_name(name)[1:])) for name in MESSAGES}


def _type_name(name: str) -> str:
    return f".{PACKAGE}.{name}"


def _add_field(message: DescriptorProto, owner: str, field: str, number: int) -> None:
    """Add a field of the table to a message.

    message: descriptor that gets the field.
    owner: full name of the message, for the type of a map.
    field: text of the table, such as "repeated string versions".
    number: number of the field.
    """
    # `words`: "repeated" or "oneof", or none
    *words, kind, name = field.split()
    descriptor = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if "repeated" in words or kind == MAP:
        descriptor.label = FieldDescriptorProto.LABEL_REPEATED
    if "oneof" in words:
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        descriptor.oneof_index = 0
    if kind == MAP:
        # protobuf defines a map as a repeated message with key and value
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        for inner, inner_kind in (("key", "string"), ("value", "InferParameter")):
            _add_field(entry, "", f"{inner_kind} {inner}", 1 if inner == "key" else 2)
        descriptor.type_name = _type_name(f"{owner}.ParametersEntry")
    elif kind[0].isupper():
        descriptor.type_name = _type_name(kind)
    if descriptor.type_name:
        descriptor.type = FieldDescriptorProto.TYPE_MESSAGE
    else:
        descriptor.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
