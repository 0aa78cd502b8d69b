"""The Open Inference Protocol over a real socket, in JSON and binary, as its specification has it."""

import asyncio
import json
import struct

import pytest

from tests.support.served import LINES, MODELS, server

GERMAN = "Wo ist denn hier der Bahnhof?"
MODEL = "/v2/models/toy-de-en"
TENSOR = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [GERMAN]}


@pytest.fixture(scope="module")
def place():
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def client(place):
    return place[0]


def direct(place, text, model="toy-de-en"):
    return asyncio.run(place[1].service.run(model, [text]))[0]


def infer(client, path=f"{MODEL}/infer", **fields):
    values = {"inputs": [TENSOR]} | fields
    return client.post(path, json={k: v for k, v in values.items() if v is not None})


def binary(client, texts, head=None, **extra):
    raw = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    parameters = {"binary_data_size": len(raw)}
    tensor = {"name": "text_input", "shape": [len(texts)], "datatype": "BYTES", "parameters": parameters}
    header = json.dumps({"inputs": [tensor | extra]} | (head or {})).encode()
    return client.post(
        f"{MODEL}/infer", content=header + raw, headers={"Inference-Header-Content-Length": str(len(header))}
    )


def test_server_and_models_are_described(client):
    assert client.get("/v2").json()["name"] == "convoy"
    assert "binary_tensor_data" in client.get("/v2").json()["extensions"]
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"live": True, "ready": True}
    assert client.get(f"{MODEL}/ready").json() == {"name": "toy-de-en", "ready": True}
    found = client.get(MODEL).json()
    assert found == client.get(f"{MODEL}/versions/1").json()
    assert found["inputs"] == [{"name": "text_input", "datatype": "BYTES", "shape": [-1]}]
    assert [o["name"] for o in found["outputs"]] == ["text_output", "score", "truncated"]
    assert set(client.get("/v2/models").json()["models"]) == set(MODELS)
    index = client.post("/v2/repository/index").json()
    assert {(m["name"], m["state"]) for m in index} == {(name, "READY") for name in MODELS}
    assert client.get(f"{MODEL}/config").json()["input"][0]["data_type"] == "TYPE_STRING"


def test_a_tensor_of_texts_is_answered_with_tensors(place):
    answer = infer(place[0], id="x7").json()
    wanted = direct(place, GERMAN)
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("toy-de-en", "1", "x7")
    outputs = {o["name"]: o for o in answer["outputs"]}
    assert outputs["text_output"] == {
        "name": "text_output",
        "datatype": "BYTES",
        "shape": [1],
        "data": [wanted.text],
    }
    assert outputs["score"]["data"] == [pytest.approx(wanted.score)]
    assert outputs["truncated"]["data"] == [False]


def test_nested_data_keep_their_shape_and_outputs_can_be_chosen(place):
    tensor = TENSOR | {"shape": [2, 1.0], "data": [["Gut."], ["Guten Abend!"]]}
    path = f"{MODEL}/versions/1/infer"
    (output,) = infer(place[0], path, inputs=[tensor], outputs=[{"name": "text_output"}]).json()["outputs"]
    assert output["shape"] == [2, 1]
    assert output["data"] == [direct(place, text).text for text in ("Gut.", "Guten Abend!")]


def test_parameters_are_decoding_options(client):
    short = infer(
        client, parameters={"max_length": 2, "min_length": 2, "priority": 1, "binary_data_output": 0}
    )
    assert len(short.json()["outputs"][0]["data"][0]) < 40
    wrong = infer(client, parameters={"beam_size": 99})
    assert (wrong.status_code, set(wrong.json())) == (400, {"error"})


def test_tensors_go_both_ways_in_binary(place):
    texts = [GERMAN, "Größe 😀"]
    answer = binary(place[0], [t.encode() for t in texts], {"parameters": {"binary_data_output": True}})
    size = int(answer.headers["inference-header-content-length"])
    head, raw = json.loads(answer.content[:size]), answer.content[size:]
    found = []
    for output in head["outputs"]:
        length = output["parameters"]["binary_data_size"]
        found.append(raw[:length])
        raw = raw[length:]
    wanted = [direct(place, text) for text in texts]
    packed = [w.text.encode() for w in wanted]
    assert found[0] == b"".join(struct.pack("<I", len(p)) + p for p in packed)
    assert struct.unpack("<2f", found[1]) == pytest.approx([w.score for w in wanted])
    assert (found[2], raw) == (b"\0\0", b"")
    plain = binary(place[0], [GERMAN.encode()]).json()
    assert plain["outputs"][0]["data"] == [wanted[0].text]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"inputs": None}, "expected 1 inputs but got 0"),
        ({"inputs": [TENSOR, TENSOR]}, "expected 1 inputs but got 2"),
        ({"inputs": [1]}, "unexpected inference input '1'"),
        ({"inputs": [TENSOR | {"name": "x"}]}, "unexpected inference input 'x' for model 'toy-de-en'"),
        ({"inputs": [TENSOR | {"datatype": "FP32"}]}, "datatype BYTES"),
        ({"inputs": [TENSOR | {"shape": [2]}]}, "has 1 elements; its shape is [2]"),
        ({"inputs": [TENSOR | {"shape": []}]}, "shape of 1 to 8 numbers"),
        ({"inputs": [TENSOR | {"shape": [1] * 9}]}, "shape of 1 to 8 numbers"),
        ({"inputs": [TENSOR | {"shape": [2**31 - 1] * 8}]}, "its shape is [2147483647, "),
        ({"inputs": [TENSOR | {"shape": [0]}]}, "shape of positive numbers"),
        ({"inputs": [TENSOR | {"data": ["a"] * 1_001}]}, "more elements than this server takes: 1000"),
        ({"inputs": [TENSOR | {"data": [[]] * 1_001}]}, "more elements than this server takes: 1000"),
        ({"inputs": [TENSOR | {"name": [1] * 500}]}, "unexpected inference input 'list'"),
        ({"outputs": [{"name": "score"}] * 4}, "4 outputs are requested"),
        ({"outputs": ["score"]}, "unexpected inference output 'score'"),
        ({"inputs": [TENSOR | {"shape": [True]}]}, "shape of positive numbers"),
        ({"inputs": [TENSOR | {"shape": "x"}]}, "shape of 1 to 8 numbers"),
        ({"inputs": [TENSOR | {"data": [1]}]}, "must be strings"),
        ({"inputs": [TENSOR | {"data": None}]}, "must be strings"),
        ({"inputs": [TENSOR | {"parameters": 1}]}, "parameters must be an object"),
        ({"inputs": [TENSOR | {"parameters": {"binary_data_size": 4}}]}, "the body has 0 bytes"),
        ({"outputs": [{"name": "x"}]}, "unexpected inference output 'x'"),
        ({"outputs": [{"name": "score", "parameters": {"classification": 2}}]}, "no classification"),
        ({"parameters": {"timeout": -1}}, "timeout must be"),
        ({"parameters": [1]}, "parameters must be an object"),
        ({"id": 3}, "id must be a string"),
    ],
)
def test_errors_of_bad_requests_name_the_problem(client, fields, text):
    answer = infer(client, **fields)
    assert answer.status_code == 400, answer.text
    assert text in answer.json()["error"]


def test_elements_of_binary_data_are_counted_as_they_are_read(client):
    assert "more elements than this server takes" in binary(client, [b""] * 200_000).json()["error"]


@pytest.mark.parametrize("texts", [[b"\xff"]])
def test_binary_data_must_be_utf8(client, texts):
    assert "not UTF-8" in binary(client, texts).json()["error"]


@pytest.mark.parametrize("size", ["x", "-1", "99999", "²", "1" * 5_000])
def test_a_wrong_length_of_the_header_is_refused(client, size):
    head = {"Inference-Header-Content-Length": size.encode("latin-1")}
    answer = client.post(f"{MODEL}/infer", content=b"{}", headers=head)
    assert (answer.status_code, set(answer.json())) == (400, {"error"})


def test_binary_data_that_end_early_are_refused(client):
    head = json.dumps({"inputs": [TENSOR | {"parameters": {"binary_data_size": 5}}]}).encode()
    answer = client.post(
        f"{MODEL}/infer",
        content=head + b"\xff\0\0\0a",
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert "end within an element" in answer.json()["error"]


def test_a_timeout_in_microseconds_is_a_deadline(client):
    long = TENSOR | {"shape": [24], "data": LINES[:24]}
    parameters = {"timeout": 20_000, "min_length": 2047, "max_length": 2047}
    answer = infer(client, inputs=[long], parameters=parameters)
    assert (answer.status_code, set(answer.json())) == (504, {"error"})


def test_unknown_models_and_versions_are_404(client):
    for path in ("/v2/models/nobody", f"{MODEL}/versions/2", "/v2/models/nobody/ready"):
        answer = client.get(path)
        assert (answer.status_code, set(answer.json())) == (404, {"error"})
    assert infer(client, "/v2/models/nobody/infer").status_code == 404
    assert client.post("/v2/repository/models/toy-de-en/unload").status_code == 403, "no token is set"


def test_one_text_is_generated(place):
    body = {"text_input": GERMAN, "id": "a", "parameters": {}}
    answer = place[0].post(f"{MODEL}/generate", json=body).json()
    assert answer == {
        "model_name": "toy-de-en",
        "model_version": "1",
        "id": "a",
        "text_output": direct(place, GERMAN).text,
    }
    assert place[0].post(f"{MODEL}/generate", json={}).json() == {"error": "text_input must be a string"}


def chunks(client, path=f"{MODEL}/generate_stream", **body):
    """Data of the events; each is one line and a blank one, as Triton's users read them."""
    with client.stream("POST", path, json={"text_input": GERMAN} | body) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        raw = answer.read().decode()
    events = raw.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


LONG = {"min_length": 300, "max_length": 300, "beam_size": 1}


def test_chunks_together_are_the_answer(place):
    for path in (MODEL, f"{MODEL}/versions/1"):
        found = chunks(place[0], f"{path}/generate_stream", id="7", parameters=LONG)
        body = {"text_input": GERMAN, "parameters": LONG}
        whole = place[0].post(f"{path}/generate", json=body).json()["text_output"]
        assert len(found) > 2
        assert "".join(chunk.pop("text_output") for chunk in found) == whole
        assert all(chunk == {"model_name": "toy-de-en", "model_version": "1", "id": "7"} for chunk in found)


def test_stream_can_be_one_event(place):
    (found,) = chunks(place[0], parameters={"stream": False} | LONG)
    body = {"text_input": GERMAN, "parameters": LONG}
    assert found == place[0].post(f"{MODEL}/generate", json=body).json()
    (echoed,) = chunks(place[0], text_input="")
    assert echoed["text_output"] == ""


def test_error_before_the_first_chunk_has_its_status(client):
    for body, told in (
        ({"text_input": 1}, "text_input must be a string"),
        ({"parameters": {"beam_size": 99}}, "beam"),
        ({"parameters": {"timeout": -1}}, "timeout must be"),
        ({"id": 3}, "id must be a string"),
    ):
        answer = client.post(f"{MODEL}/generate_stream", json={"text_input": GERMAN} | body)
        assert (answer.status_code, set(answer.json())) == (400, {"error"})
        assert told in answer.json()["error"]
    assert client.post("/v2/models/nobody/generate_stream", json={"text_input": "a"}).status_code == 404


def test_error_after_the_first_chunk_is_an_event(client):
    forever = {"min_length": 2047, "max_length": 2047, "beam_size": 1}
    text = " ".join(LINES[:400])
    *found, last = chunks(client, text_input=text, parameters=forever | {"timeout": 1_500_000})
    assert set(last) == {"error"}
    assert "deadline" in last["error"]
    assert all("text_output" in chunk for chunk in found)


def test_statistics_count_sentences(client):
    def read():
        (one,) = client.get(f"{MODEL}/stats").json()["model_stats"]
        return one

    before = read()
    infer(client)
    after = read()
    assert after["inference_count"] == before["inference_count"] + 1
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]
    assert {m["name"] for m in client.get("/v2/models/stats").json()["model_stats"]} == set(MODELS)


def test_a_full_queue_is_503_here():
    from engine.api import Overloaded
    from server.contracts import contract_of
    from server.errors import error_response

    def answered(path):
        response = error_response(Overloaded("x", 2), contract_of(path))
        return response.status_code, json.loads(response.body)

    assert answered(f"{MODEL}/infer") == (503, {"error": "x"})
    assert answered("/v2/translate") == (429, {"message": "x"})
    assert answered("/translate") == (429, {"error": "x"})
    assert answered("/v2/nothing") == (429, {"message": "x", "error": "x"})
