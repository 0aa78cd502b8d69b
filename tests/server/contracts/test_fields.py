"""Fields of requests and answers of other servers' interfaces, without a server."""

from dataclasses import replace

import pytest

from engine.api import Partial, TextResult
from server.answering.texts import Translations
from server.contracts.kserve.generate import GeneratedChunks
from server.contracts.ollama.answers import AnswerLines, OllamaAnswer, generate_fields
from server.contracts.openai.chat import _delta
from server.contracts.openai.responses import ResponseEvents
from server.contracts.openai.tasks import CompletionFields
from server.contracts.reading.shape import DETECT, ReadingRequest
from server.contracts.reading.shapes import SHAPES
from server.grpc.messages import make_pool, message_classes

RESULT = TextResult("Good morning!", source_tokens=4, target_tokens=3)
READING = {shape.name: shape for shape in SHAPES}


@pytest.mark.parametrize(("given", "limit"), [(0, None), (-1, None), (None, None), (7, 7)])
def test_zero_and_minus_one_limit_no_answer(given, limit):
    assert CompletionFields(max_tokens=given).max_tokens == limit


def test_newer_name_of_a_limit_has_precedence():
    assert CompletionFields(max_tokens=3, max_completion_tokens=5).chat().max_tokens == 5
    assert CompletionFields(max_tokens=3).chat().max_tokens == 3


def test_zero_log_probabilities_are_a_request_for_those_of_the_tokens():
    scored = [CompletionFields(logprobs=value).scored for value in (0, 5, True, False, None)]
    assert scored == [True, True, True, False, False]


def test_only_the_first_part_of_a_chat_has_a_role():
    assert _delta("a", True) == {"delta": {"role": "assistant", "content": "a"}}
    assert _delta("b", False) == {"delta": {"content": "b"}}


def test_events_of_a_response_are_numbered_and_join_to_its_text():
    writer = ResponseEvents({"id": "resp_1"}, "msg_1", {})
    events = [*writer.partial(Partial(0, "Good")), *writer.result({"results": [RESULT]})]
    assert [values["sequence_number"] for _, values in events] == list(range(len(events)))
    deltas = [values["delta"] for name, values in events if name == "response.output_text.delta"]
    assert "".join(deltas) == RESULT.text
    assert [name for name, _ in events].count("response.created") == 1


def test_lines_of_ollama_join_to_the_text_and_the_last_one_has_the_numbers():
    lines = AnswerLines(OllamaAnswer("m", generate_fields, {}))
    events = [*lines.partial(Partial(0, "Good")), *lines.result({"results": [RESULT]})]
    values = [value for _, value in events]
    assert "".join(value["response"] for value in values) == RESULT.text
    assert [value["done"] for value in values] == [False, False, True]
    assert (values[-1]["prompt_eval_count"], values[-1]["eval_count"]) == (4, 3)


def test_stream_of_triton_has_an_event_for_an_empty_text():
    chunks = GeneratedChunks({"model_name": "m"})
    assert chunks.result({"text_output": ""}) == [("", {"model_name": "m", "text_output": ""})]
    chunks = GeneratedChunks({})
    assert chunks.partial(Partial(0, "Good")) == [("", {"text_output": "Good"})]
    assert chunks.result({"text_output": "Good"}) == []


def reading(**fields):
    return ReadingRequest("x", "de", "en", **fields)


def test_alternatives_belong_to_a_plain_text_only():
    answer = Translations(["a"], ["de"], [], [replace(RESULT, alternatives=["b"])])
    assert READING["deeplx"].write(reading(), answer)["alternatives"] == ["b"]
    assert READING["deeplx"].write(reading(html=True), answer)["alternatives"] == []


def test_google_names_the_language_only_if_it_is_detected():
    answer = Translations(["a"], ["de"])
    write = READING["google"].write
    assert write(reading(), answer) == {"data": {"translations": [{"translatedText": "a"}]}}
    (item,) = write(replace(reading(), source=DETECT), answer)["data"]["translations"]
    assert item["detectedSourceLanguage"] == "de"


@pytest.mark.parametrize(("text", "event"), [("a\nb", "data: a\ndata: b\n\n"), ("", "data: \n\n")])
def test_event_has_a_line_for_each_line_of_the_text(text, event):
    assert READING["nllb_api_stream"].write(reading(), Translations([text], ["de"])) == event


def test_parameter_of_grpc_has_one_value():
    message = message_classes(make_pool())["InferParameter"](bool_param=True)
    message.int64_param = 3
    assert message.WhichOneof("parameter_choice") == "int64_param"
    assert not message.bool_param
