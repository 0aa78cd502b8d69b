"""Tests for injected faults (`tests/mutants.py`) that earlier tests had missed."""

import math

import pytest

from corpus.columns import COLUMNS, Answer
from corpus.formats.delimited import Delimited
from corpus.formats.jsonl import JsonLines
from corpus.line import BadLine, LineStatus
from documents.formats.attributes import read_with_attributes
from documents.spans import Builder
from engine.answers.alignment import Alignment
from engine.answers.compose import TextResult
from engine.answers.directions import Directions
from engine.answers.pivot import join_results
from engine.text.tokenizers.added import AddedToken, AddedTokens
from engine.text.tokenizers.utf8_bytes import BytesSettings, Utf8Bytes
from server.contracts.libretranslate import suggest
from server.errors import Refusal
from server.grpc.bridge import Bridge
from tests.support.finished import locate
from tests.support.served import server


def test_a_model_of_several_languages_translates_none_into_itself():
    several = Directions(("de", "en"), ("de", "en"))
    assert several.fit("de", "en")
    assert not several.fit("de", "de")
    assert Directions(("en",), ("en",)).fit("en", "en"), "a model that corrects, say"


@pytest.mark.parametrize("first, second", [(True, False), (False, True)])
def test_pivot_reports_which_model_truncated_a_text(first, second):
    assert join_results(TextResult("a", truncated=first), TextResult("b", truncated=second)).truncated
    assert not join_results(TextResult("a"), TextResult("b")).truncated


def test_longer_of_two_added_tokens_wins():
    added = AddedTokens({"<a>": AddedToken(7), "<a>b": AddedToken(8)})
    assert added.encode("<a>b<a>", lambda text: []) == [8, 7]


def test_bytes_of_a_character_that_is_not_whole_are_not_shown():
    tokenizer = Utf8Bytes(BytesSettings(offset=3), AddedTokens({}))
    tokens = tokenizer.encode("zwölf")
    assert tokenizer.decode(tokens) == "zwölf"
    assert tokenizer.decode(tokens[:3]) == "zw"


def test_places_are_found_whatever_the_case():
    assert locate("Das HAUS Ä", ["das", "haus", "ä"]) == [(0, 3), (4, 8), (9, 10)]


def test_words_of_an_alignment_are_counted_from_nought():
    places = [(0, 1), (2, 3), None]
    alignment = Alignment(
        ["a", "b", "</s>"], ["x", "y", "</s>"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], places, places
    )
    answer = Answer("a b", LineStatus.OK, None, None, None)
    assert COLUMNS["alignment"].value(answer, TextResult("x y", alignment=[alignment])) == "0-0 1-1"


def test_a_row_has_as_many_cells_as_its_header():
    table = Delimited(["new"], "a", b"a,b", quoted=True)
    assert table.read(b"x,y") == "x"
    for row in (b"x", b"x,y,z"):
        with pytest.raises(BadLine, match="instead of 2"):
            table.read(row)


def test_an_empty_object_gets_its_first_member():
    assert JsonLines(["new"], "a").write(b"{}", ["x"], whole=True) == b'{"new": "x"}'
    assert JsonLines(["new"], "a").write(b'{"a": "y"}', ["x"], whole=True) == b'{"a": "y", "new": "x"}'


def test_unclosed_span_belongs_to_the_outer_span():
    builder = Builder()
    outer = builder.begin()
    builder.begin()
    builder.text("a")
    inner = builder.point()
    builder.end(outer)
    assert builder.segment().spans[inner].parent == outer


def test_first_of_two_equal_attributes_wins():
    page = read_with_attributes('<p>x</p><img alt="Das Erste" alt="Das Zweite">')
    assert [value.segment.text for value in page.values] == ["Das Erste"]


def test_suggestions_end_where_their_file_is_full(tmp_path):
    path = tmp_path / "suggestions"
    suggest.append_line(path, "one")
    with path.open("r+b") as file:
        file.truncate(suggest.MAX_SUGGESTION_BYTES - 2)
    with pytest.raises(Refusal, match="already"):
        suggest.append_line(path, "two")
    assert path.stat().st_size == suggest.MAX_SUGGESTION_BYTES - 2


class Call:
    """The context of a gRPC call."""

    def __init__(self, seconds, **metadata):
        self.seconds, self.metadata = seconds, metadata

    def invocation_metadata(self):
        return [(name.replace("_", "-"), value) for name, value in self.metadata.items()]

    def time_remaining(self):
        return self.seconds

    def peer(self):
        return "ipv4:10.0.0.1:1234"


async def headers_of(call):
    """The headers that an application gets of a call."""
    seen = {}

    async def app(scope, receive, send):
        seen.update({name.decode(): value.decode() for name, value in scope["headers"]})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    await Bridge(app).send_request(call, "GET", "/")
    return seen


async def test_grpc_call_forwards_only_known_metadata():
    seen = await headers_of(Call(math.inf, x_api_key="k", x_forwarded_for="10.0.0.9", host="evil"))
    assert seen == {"x-api-key": "k"}


@pytest.mark.parametrize("asked, left, kept", [("100", 2.0, "2.0"), ("1", 2.0, "1"), ("x", 2.0, "x")])
async def test_earlier_of_two_deadlines_applies(asked, left, kept):
    assert (await headers_of(Call(left, x_request_timeout=asked)))["x-request-timeout"] == kept


def test_random_requests_respect_limits_and_numbers_of_sources():
    with server() as (client, _, _):
        chat = {"model": "toy-de-en", "messages": [{"role": "user", "content": "Ja."}], "max_tokens": 10**6}
        assert client.post("/v1/chat/completions", json=chat).status_code == 200
        for sources in (["a"], ["a", "b", "c"]):
            answer = client.post("/score", json={"q": ["x", "y"], "source_text": sources})
            assert answer.status_code == 400, sources
            assert "2 texts" in answer.json()["error"]
