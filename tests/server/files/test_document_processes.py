"""Processes that parse and write files."""

import asyncio
import errno
import math
import subprocess
import sys
import time

import httpx
import pytest

from documents.spans import Segment
from engine.api import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    TooLarge,
)
from server.files.document_processes import MAX_OWNER_FILES, DocumentProcesses
from tests.support.served import server, until


async def test_file_is_parsed_and_written_by_another_process():
    processes = DocumentProcesses()
    try:
        document = await processes.read("a.txt", b"one\n\ntwo\n", "me", time.monotonic() + 60)
        assert [segment.text for segment in document.segments] == ["one", "two"]
        other = [Segment("eins"), Segment("zwei")]
        assert await processes.write(document, other, "me", time.monotonic() + 60) == b"eins\n\nzwei\n"
        with pytest.raises(InvalidRequest, match="format not supported"):
            await processes.read("a.xyz", b"", "me", time.monotonic() + 60)
    finally:
        await processes.close()


def start_instead(monkeypatch, *command):
    """Start a command instead of each process for files; return the list of started processes."""
    start, started = asyncio.create_subprocess_exec, []

    async def other(*_, **options):
        started.append(await start(*command, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", other)
    return started


async def test_hanging_process_is_killed_at_the_deadline(monkeypatch):
    started = start_instead(monkeypatch, "sleep", "60")
    with pytest.raises(DeadlineExceeded):
        await DocumentProcesses().read("a.txt", b"one", "me", time.monotonic() + 0.2)
    assert started[0].returncode is not None


@pytest.mark.parametrize("path", ["/translate_file", "/v2/document"])
def test_file_of_a_client_that_has_left_is_read_no_further(monkeypatch, path):
    started = start_instead(monkeypatch, "sleep", "3600")
    with server() as (client, state, _):
        fields = {"source": "de", "target": "en", "target_lang": "EN"}
        with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=client.base_url, timeout=60) as gone:
            gone.post(
                path, data=fields, files={"file": ("a.txt", b"Gut.")}, timeout=httpx.Timeout(60, read=0.5)
            )
        until(lambda: state.in_flight == 0 and all(one.returncode is not None for one in started))


@pytest.mark.parametrize(("code", "error"), [(errno.ENOMEM, TooLarge), (1, RuntimeError)])
async def test_dead_process_blames_the_file_only_for_lack_of_memory(monkeypatch, code, error):
    start_instead(monkeypatch, "sh", "-c", f"exit {code}")
    with pytest.raises(error):
        await DocumentProcesses().read("a.txt", b"one", "me", time.monotonic() + 60)


async def test_too_long_answer_does_not_reach_the_next_file(monkeypatch):
    monkeypatch.setattr("server.files.document_processes.MAX_ANSWER_BYTES", 10)
    processes = DocumentProcesses()
    with pytest.raises(TooLarge):
        await processes.read("a.txt", b"a long line", "me", time.monotonic() + 60)
    assert not (await processes.read("a.txt", b"", "me", time.monotonic() + 60)).segments
    await processes.close()


async def test_killed_idle_process_is_replaced():
    processes = DocumentProcesses()
    await processes.read("a.txt", b"one", "me", time.monotonic() + 60)
    killed = processes._idle[0][0]
    killed.kill()
    await killed.wait()
    assert (await processes.read("a.txt", b"one", "me", time.monotonic() + 60)).segments
    await processes.close()


async def test_one_owner_uses_only_a_share_of_the_processes():
    processes = DocumentProcesses()
    processes._owners["me"] = MAX_OWNER_FILES
    with pytest.raises(Overloaded):
        await processes.read("a.txt", b"one", "me", time.monotonic() + 60)
    document = await processes.read("a.txt", b"one", "you", time.monotonic() + 60)
    assert len(document.segments) == 1
    await processes.close()


async def test_small_file_does_not_wait_for_large_ones():
    processes = DocumentProcesses()
    async with processes._places.turn("a"), processes._places.turn("b"):  # both places are taken
        document = await processes.read("a.txt", b"one", "you", time.monotonic() + 60)
        assert len(document.segments) == 1
        with pytest.raises(DeadlineExceeded):
            await processes.read("a.txt", b"one " * 20_000, "you", time.monotonic() + 0.2)
    await processes.close()


async def test_small_file_that_takes_long_gives_its_process_to_other_small_files(monkeypatch):
    processes, notes = DocumentProcesses(), b"[^1]: x\n" * 2_000
    async with processes._places.turn("a"), processes._places.turn("b"):
        monkeypatch.setattr("server.files.document_processes.SMALL_SECONDS", 1e-6)
        slow = asyncio.create_task(processes.read("a.md", notes, "me", math.inf))
        while not (processes._places.waiting or slow.done()):  # it was killed, and waits as a large file
            await asyncio.sleep(0.01)
        monkeypatch.setattr("server.files.document_processes.SMALL_SECONDS", 600.0)
        assert (await processes.read("a.md", notes, "you", math.inf)).segments
        assert not slow.done()
    assert len((await slow).segments) == 2_000
    await processes.close()


async def test_one_owner_leaves_a_process_for_large_files_to_others():
    processes, large = DocumentProcesses(), b"one " * 20_000
    async with processes._places.turn("me"):
        with pytest.raises(DeadlineExceeded):
            await processes.read("a.txt", large, "me", time.monotonic() + 0.2)
        assert (await processes.read("a.txt", large, "you", math.inf)).segments
    await processes.close()


def test_process_for_files_has_limits_and_no_secrets():
    code = "import documents.worker as w, resource, sys; w.read_message = lambda s: None; w.main();"
    code += "print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_FSIZE)[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(1 << 30), "0"]
