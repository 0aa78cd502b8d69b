"""The access log: sizes of bodies, and paths on one line without the names of translated files."""

import asyncio

import pytest

from server.observing.access_log import LONGEST_PATH, BodySizes, shown_path


def test_bytes_of_all_messages_of_a_body_are_counted():
    messages = [{"body": b"ab", "more_body": True}, {"body": b"cde"}, {"type": "http.disconnect"}]
    given, sizes = iter(messages), BodySizes()

    async def receive():
        return next(given)

    async def read():
        counted = sizes.counting(receive)
        return [await counted() for _ in messages]

    assert asyncio.run(read()) == messages
    assert (sizes.received, sizes.sent) == (5, 0)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/translate", "/translate"),
        ("/download_file/letter.docx", "/download_file/..."),
        ("/prefix/download_file/a/b", "/prefix/download_file/..."),
        ("/a\n127.0.0.1 forged", "/a%0A127.0.0.1%20forged"),
        ("/ü\ud800", "/%C3%BC%3F"),
    ],
)
def test_paths_are_one_line_without_names_of_files(path, shown):
    assert shown_path(path) == shown


def test_long_paths_are_cut():
    assert len(shown_path("/" + "a" * 10 * LONGEST_PATH)) == LONGEST_PATH
