"""Values of settings: what is normalised, and what is refused."""

import asyncio

import pytest
from pydantic import ValidationError
from starlette.requests import Request

from server.answering.events import Deltas, events
from server.libretranslate import LibreTranslateSource
from server.settings import ServerSettings
from server.settings.kinds import split_names


def test_names_in_a_list_lose_white_space_slashes_and_empty_parts():
    assert split_names(" a/b/ , c,, d//") == ("a/b", "c", "d")
    assert split_names(["a/", " "]) == ("a",)


def test_keys_have_sixteen_characters():
    keys = ServerSettings(api_keys="0123456789abcdef, fedcba9876543210").api_keys
    assert [key.get_secret_value() for key in keys] == ["0123456789abcdef", "fedcba9876543210"]
    for short in ("0123456789abcde", "0123456789abcdef,x"):
        with pytest.raises(ValidationError, match="needs 16 characters"):
            ServerSettings(api_keys=short)


@pytest.mark.parametrize(
    ("host", "allowed", "names"),
    [
        ("127.0.0.1", "", {"localhost"}),
        ("localhost", "", {"localhost"}),
        ("::1", "", {"localhost"}),
        ("0.0.0.0", "", None),
        ("example.org", "", None),
        ("127.0.0.1", "*", None),
        ("0.0.0.0", "Example.org", {"localhost", "example.org"}),
    ],
)
def test_names_of_the_host_are_checked_on_loopback_and_where_they_are_listed(host, allowed, names):
    assert ServerSettings(host=host, allowed_hosts=allowed).hosts == names


@pytest.mark.parametrize(
    ("written", "prefix"), [("", ""), ("/", ""), ("//", ""), ("a", "/a"), ("/a/b/", "/a/b")]
)
def test_prefix_of_paths_begins_with_a_slash_and_ends_without(written, prefix):
    assert ServerSettings(url_prefix=written).url_prefix == prefix


def test_private_key_needs_its_certificate(tmp_path):
    (tmp_path / "key.pem").write_bytes(b"key")
    with pytest.raises(ValidationError, match="of no use without ssl_certfile"):
        ServerSettings(ssl_keyfile=tmp_path / "key.pem")


@pytest.mark.parametrize("text", ["1", "TRUE", "yes", "0", "", "no"])
def test_flags_of_libretranslate_count_if_they_are_true(text, monkeypatch):
    monkeypatch.setenv("LT_DEBUG", text)
    monkeypatch.setenv("LT_DISABLE_WEB_UI", text)
    monkeypatch.setenv("LT_CHAR_LIMIT", "")
    monkeypatch.setenv("LT_PORT", "6001")
    wanted = {"port": "6001"}
    if text in ("1", "TRUE", "yes"):
        wanted |= {"web": False, "log_level": "debug"}
    assert LibreTranslateSource(ServerSettings)() == wanted


def test_deltas_are_what_was_not_sent_by_text():
    deltas = Deltas()
    found = [deltas.next(*step) for step in ((0, "ab"), (1, "x"), (0, "ab"), (0, "abc"), (1, "xyz"))]
    assert found == ["ab", "x", "", "c", "yz"]


def test_event_source_that_reconnects_after_the_end_gets_no_content():
    async def run():
        scope = {"type": "http", "headers": [(b"last-event-id", b"end")]}
        return await events(Request(scope), None)

    assert asyncio.run(run()).status_code == 204
