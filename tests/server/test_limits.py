"""What a request may cost, and what stands when the machine has no more room."""

import asyncio
import cProfile
import errno
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.spans import Segment
from engine.api import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    TooLarge,
    at_once,
    each,
    in_slices,
    one_slice,
    trim_heap,
)
from engine.schedule.slices import TURN_SECONDS
from server.callers.access import PathRules
from server.callers.quotas import Counters, Quotas, RemoteCounters, rates_of
from server.contract import Contract, longest_match
from server.errors import InvalidParameter, Refusal
from server.files.document_processes import MAX_OWNER_FILES, DocumentProcesses, OwnerTurns
from server.files.store import Store
from server.http.forms import read_fields
from server.http.middleware import check_host
from server.http.parameters import parse_json
from server.http.responses import is_small, json_bytes
from server.http.schemas import (
    MAX_ALIGNMENT_CELLS,
    TranslateRequest,
    check_cells,
    check_phrases,
    check_tags,
    phrases_of,
    validate,
)
from server.process import locks
from server.process.allocator import STATM, TRIM_BYTES, resident, trimming
from server.process.temporary import OwnFolder
from server.process.watchdog import LoopLag
from server.settings import ServerSettings
from tests.server.test_server_process import GERMAN
from tests.support.served import server, until

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
JSON_OBJECT = st.dictionaries(st.text(), JSON, max_size=5)

# what is refused before it is read


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"q": ["a"] * 1_001}, "(1000)"),
        ({"q": "a" * 100_001}, "(100000)"),
        ({"ignore": ["a"] * 1_001}, "takes 1000"),
        ({"ignore": ["a"] * 501, "glossary": {str(i): "b" for i in range(500)}}, "1001 phrases"),
        ({"q": "<b>" * 10_001, "format": "html"}, "takes 10000"),
        ({"prefix": "a" * 16_385}, "prefix: String should have at most 16384 characters"),
    ],
)
def test_more_than_a_default_limit_is_refused_and_the_limit_is_told(client, values, limit):
    answer = client.post("/translate", json=GERMAN | values)
    assert answer.status_code == 400
    assert limit in answer.json()["error"]


def test_limits_of_minus_one_are_off():
    check_phrases(10**6, -1)
    check_tags(["<" * 10**5], -1)
    for check, value in ((check_phrases, 3), (check_tags, ["<<<"])):
        check(value, 3)
        with pytest.raises(InvalidRequest):
            check(value, 2)


def test_phrases_are_counted_before_they_are_read():
    assert phrases_of({"ignore": ["a", "b"], "glossary": {"c": "d"}}) == 3
    assert phrases_of({"ignore": "a\nb", "glossary": '{"c": "d"}'}) == 3
    assert phrases_of({"ignore": 7, "glossary": None}) == 0


def test_phrases_of_a_form_are_read_as_they_are_counted():
    """`str.splitlines` sees more ends of lines than are counted."""
    form = "a\x0bb\x1cc\u2028d\r\n\ne"
    request = validate(TranslateRequest, {"ignore": form})
    assert request.ignore == ["a\x0bb\x1cc\u2028d", "e"]
    assert len(request.ignore) <= phrases_of({"ignore": form})


@pytest.mark.parametrize(
    "text", ["[" * 300_000, "{" * 40_000, '{"a":' * 900, "{" + '"a":1,' * 300_000 + "}", "1" * 9_000]
)
def test_a_glossary_of_a_form_has_the_limits_of_a_body(text):
    with pytest.raises(InvalidParameter, match="glossary"):
        validate(TranslateRequest, {"glossary": text})


def test_an_alignment_that_nobody_could_read_is_refused():
    check_cells(MAX_ALIGNMENT_CELLS)
    with pytest.raises(TooLarge, match="1000001 numbers"):
        check_cells(MAX_ALIGNMENT_CELLS + 1)


@pytest.mark.parametrize("body", [b"[" * 50_001, b'{"q":[' + b"1," * 200_001 + b"1]}"])
def test_json_with_too_much_in_it_is_refused_before_it_is_parsed(body):
    with pytest.raises(InvalidRequest, match="50000 arrays and objects or 200000 values"):
        parse_json(body)


@given(JSON_OBJECT)
def test_json_is_read_as_it_was_written(value):
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": 1',
        b"[]",
        b'{"a":' * 5_000,
        b'{"a":' + b"1" * 5_000 + b"}",
        b'{"a": "\xff"}',
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_what_is_no_json_is_refused_however_long(raw):
    with pytest.raises(InvalidRequest, match="Invalid JSON"):
        parse_json(raw)


@given(st.lists(st.tuples(st.text(min_size=1), st.text())), st.integers(3, 9))
def test_forms_are_read_as_they_were_written_wherever_they_are_cut(fields, piece):
    fields = [(name, value) for name, value in fields if not any(map(_is_half, name + value))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.http.forms.PIECE_BYTES", piece)
        assert at_once(read_fields(urlencode(fields).encode())).multi_items() == fields


def _is_half(character):
    return "\ud800" <= character <= "\udfff"


def test_a_form_with_too_many_fields_is_refused():
    assert len(at_once(read_fields(b"a=b&" * 1_999 + b"a=b")).multi_items()) == 2_000
    with pytest.raises(InvalidRequest, match="2000 fields"):
        at_once(read_fields(b"a=b&" * 2_000 + b"a=b"))


def test_more_sentences_than_a_request_may_have_are_refused_before_they_are_queued(client):
    answer = client.post("/translate", json=GERMAN | {"q": ["Ja. " * 1_400] * 3})
    assert answer.status_code == 413
    assert "4096 sentences" in answer.json()["error"]


# work outside of the event loop


async def test_work_is_done_in_slices_by_turns():
    order, both_wait = [], threading.Event()

    def count(name, until):
        assert both_wait.wait(30)
        for _ in range(until):
            order.append(name)
            time.sleep(2 * TURN_SECONDS)
            yield
        return name

    async def release():
        both_wait.set()

    names = await asyncio.gather(in_slices(count("long", 12)), in_slices(count("short", 2)), release())
    assert names[:2] == ["long", "short"]
    assert order[:4] == ["long", "short"] * 2, "the short one did not wait for the long one's end"


async def test_work_ends_at_the_deadline_and_when_nobody_awaits_it():
    def forever(ended):
        try:
            while True:
                time.sleep(0.001)
                yield
        finally:
            ended.set()

    late, left = threading.Event(), threading.Event()
    with pytest.raises(DeadlineExceeded):
        await in_slices(forever(late), time.monotonic() + 0.05)
    assert late.wait(30)
    task = asyncio.create_task(in_slices(forever(left)))
    await asyncio.sleep(0.05)
    assert not left.is_set()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert left.wait(30)


async def test_an_error_of_the_work_reaches_who_awaits_it():
    def fails():
        yield
        raise InvalidRequest("by design")

    for small in (True, False):
        with pytest.raises(InvalidRequest, match="by design"):
            await in_slices(fails(), small=small)
    assert at_once(each(one_slice(str.upper, text) for text in "ab")) == ["A", "B"]


@given(JSON)
def test_answers_are_written_as_json_has_them(value):
    assert json.loads(asyncio.run(json_bytes(value))) == value


async def test_long_answers_are_written_in_slices_with_the_same_text():
    matrix = np.linspace(-1, 1, 6000, dtype=np.float32).reshape(60, 100)
    matrix[3, 4] = np.inf
    answer = {"numbers": list(range(5000)), "text": "ä" * 10_000, "matrix": matrix, "rows": [[], [1], {}]}
    assert not is_small(answer)
    found = json.loads(await json_bytes(answer))
    assert found["matrix"][3][4] is None
    assert found["matrix"][0][:2] == [round(float(x), 6) for x in matrix[0, :2]]
    assert found | {"matrix": 0} == answer | {"matrix": 0}


async def test_the_lag_of_the_event_loop_is_measured(caplog):
    lag = LoopLag()
    async with lag.watching():
        await asyncio.sleep(0.12)
        usual = lag.longest()  # whatever the machine does by itself
        time.sleep(usual + 1.1)  # holds the loop
        await asyncio.sleep(0.12)
    assert lag.longest() > usual + 1
    assert "no request was served" in caplog.text


def test_the_lag_is_told(client):
    text = client.get("/metrics").text
    assert "convoy_event_loop_lag_seconds " in text


@pytest.mark.skipif(not STATM.exists(), reason="needs Linux' /proc")
async def test_freed_memory_goes_back_though_small_pieces_lie_between(monkeypatch):
    monkeypatch.setattr("server.process.allocator.TRIM_SECONDS", 0.05)
    trim_heap()  # of what other tests have left
    before = resident()
    async with trimming():
        pieces = [bytes(2_000) for _ in range(100_000)]
        grown = resident() - before
        assert grown > TRIM_BYTES
        pieces = pieces[::200]
        await asyncio.to_thread(until, lambda: resident() - before < 0.3 * grown)
    assert len(pieces) == 500


# files


async def test_a_file_is_read_and_written_by_another_process():
    processes = DocumentProcesses()
    try:
        document = await processes.read("a.txt", b"one\ntwo\n", "me", time.monotonic() + 60)
        assert [segment.text for segment in document.segments] == ["one", "two"]
        other = [Segment("eins"), Segment("zwei")]
        assert await processes.write(document, other, "me", time.monotonic() + 60) == b"eins\nzwei\n"
        with pytest.raises(InvalidRequest, match="format not supported"):
            await processes.read("a.xyz", b"", "me", time.monotonic() + 60)
    finally:
        await processes.close()


def start_instead(monkeypatch, *command):
    """Have a command started in the place of each process for files. Returns those that were, in order."""
    start, started = asyncio.create_subprocess_exec, []

    async def other(*_, **options):
        started.append(await start(*command, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", other)
    return started


async def test_a_process_that_does_not_answer_is_ended_at_the_deadline(monkeypatch):
    started = start_instead(monkeypatch, "sleep", "60")
    with pytest.raises(DeadlineExceeded):
        await DocumentProcesses().read("a.txt", b"one", "me", time.monotonic() + 0.2)
    assert started[0].returncode is not None


@pytest.mark.parametrize(("code", "error"), [(errno.ENOMEM, TooLarge), (1, RuntimeError)])
async def test_a_process_that_ends_by_itself_blames_the_file_only_for_want_of_memory(
    monkeypatch, code, error
):
    start_instead(monkeypatch, "sh", "-c", f"exit {code}")
    with pytest.raises(error):
        await DocumentProcesses().read("a.txt", b"one", "me", time.monotonic() + 60)


async def test_an_answer_that_is_too_long_is_not_left_for_the_next_file(monkeypatch):
    monkeypatch.setattr("server.files.document_processes.MAX_ANSWER_BYTES", 10)
    processes = DocumentProcesses()
    with pytest.raises(TooLarge):
        await processes.read("a.txt", b"a long line", "me", time.monotonic() + 60)
    assert not (await processes.read("a.txt", b"", "me", time.monotonic() + 60)).segments
    await processes.close()


async def test_a_process_that_was_killed_while_idle_costs_no_file():
    processes = DocumentProcesses()
    await processes.read("a.txt", b"one", "me", time.monotonic() + 60)
    killed = processes._idle[0][0]
    killed.kill()
    await killed.wait()
    assert (await processes.read("a.txt", b"one", "me", time.monotonic() + 60)).segments
    await processes.close()


async def test_one_owner_has_a_share_of_the_processes():
    processes = DocumentProcesses()
    processes._owners["me"] = MAX_OWNER_FILES
    with pytest.raises(Overloaded):
        await processes.read("a.txt", b"one", "me", time.monotonic() + 60)
    document = await processes.read("a.txt", b"one", "you", time.monotonic() + 60)
    assert len(document.segments) == 1
    await processes.close()


async def test_owners_take_turns_for_a_place():
    turns, order = OwnerTurns(1), []

    async def work(owner):
        async with turns.turn(owner):
            order.append(owner)
            await asyncio.sleep(0)

    async with turns.turn("first"):
        tasks = [asyncio.create_task(work(owner)) for owner in ("many", "many", "many", "gone", "small")]
        await asyncio.sleep(0)
        tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["many", "small", "many", "many"]
    async with turns.turn("again"):
        assert turns._free == 0
    assert turns._free == 1


async def test_a_small_file_does_not_wait_for_large_ones():
    processes = DocumentProcesses()
    async with processes._places.turn("a"), processes._places.turn("b"):  # what they do takes long
        document = await processes.read("a.txt", b"one", "you", time.monotonic() + 60)
        assert len(document.segments) == 1
        with pytest.raises(DeadlineExceeded):
            await processes.read("a.txt", b"one " * 20_000, "you", time.monotonic() + 0.2)
    await processes.close()


def test_a_process_for_files_has_limits_and_no_secrets():
    code = "import documents.worker as w, resource, sys; w.read_message = lambda s: None; w.main();"
    code += "print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_FSIZE)[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(1 << 30), "0"]


# room


def test_a_full_disk_leaves_nothing_half_written_and_is_a_507(tmp_path, monkeypatch):
    store = Store(60, 1_000_000, folder=tmp_path)
    real = Path.write_bytes

    def full(path, data):
        real(path, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Refusal, match="disk") as refused:
        store.put("a.txt", b"content")
    assert refused.value.code == "storage_full"
    assert not list(tmp_path.glob("*.data"))


def test_a_folder_that_somebody_removed_is_made_anew(tmp_path):
    store = Store(60, 1_000_000, folder=tmp_path / "files")
    store.put("a.txt", b"content")
    shutil.rmtree(store.folder)
    assert store.usable
    assert store.get(store.put("b.txt", b"content")).path.read_bytes() == b"content"
    assert store.size == len(b"content")


async def test_a_folder_that_cant_be_made_anew_makes_the_server_unready(tmp_path):
    with server(store_folder=tmp_path) as (client, _, _):
        until(lambda: client.get("/health/ready").status_code == 200)
        shutil.rmtree(tmp_path / "files")
        assert client.get("/health/ready").status_code == 200
        shutil.rmtree(tmp_path / "files")
        (tmp_path / "files").write_text("in the way")
        answer = client.get("/health/ready")
        assert (answer.status_code, "folder" in answer.json()["error"]) == (503, True)
        (tmp_path / "files").unlink()


def test_a_file_costs_the_same_whatever_their_number(tmp_path):
    stores = [Store(60, 10**9, folder=tmp_path) for _ in range(2)]  # of two processes

    def operations():
        """Calls and returns of functions, which unlike times are the same on a busy machine."""
        profile = cProfile.Profile()
        for n in range(20):
            profile.runcall(stores[n % 2].put, "a.txt", b"", "me")
        return sum(entry.callcount for entry in profile.getstats())

    operations()
    few = operations()
    for n in range(400):
        stores[0].put("a.txt", b"", f"owner {n}")
    operations()
    assert operations() < 1.1 * few


def test_empty_files_take_room_too_and_an_owner_has_so_many_at_most(tmp_path, monkeypatch):
    store = Store(60, 10 * 4_096, folder=tmp_path)
    for n in range(10):
        store.put("a.txt", b"", f"owner {n}")
    with pytest.raises(Overloaded):
        store.put("a.txt", b"", "another")
    monkeypatch.setattr("server.files.room.MAX_OWNER_FILES", 3)
    plenty = Store(60, 10**9)
    for _ in range(3):
        plenty.put("a.txt", b"", "me")
    with pytest.raises(Overloaded):
        plenty.put("a.txt", b"", "me")
    plenty.put("a.txt", b"", "you")
    plenty.close()


def test_a_folder_that_something_is_in_the_way_of_is_a_507(tmp_path):
    store = Store(60, 1_000_000, folder=tmp_path / "files")
    shutil.rmtree(store.folder)
    store.folder.write_text("in the way")
    with pytest.raises(Refusal, match="disk") as refused:
        store.put("a.txt", b"content")
    assert refused.value.code == "storage_full"


def test_a_document_whose_state_cant_be_kept_counts_no_longer_as_under_way(tmp_path):
    sent = {"data": {"target_lang": "EN", "source_lang": "DE"}, "files": {"file": ("a.txt", b"Gut. " * 400)}}
    with server(store_folder=tmp_path) as (client, state, _):
        assert client.post("/v2/document", **sent).status_code == 200
        assert state.in_flight
        (tmp_path / "documents").rename(tmp_path / "gone")  # at once: the server writes into it
        (tmp_path / "documents").write_text("in the way of a folder")
        until(lambda: state.in_flight == 0)
        assert client.post("/v2/document", **sent).status_code == 507


def test_one_owner_has_a_share_of_the_room(tmp_path):
    store = Store(60, 40_000, folder=tmp_path)
    store.put("a.txt", b"x" * 9_000, "me")
    with pytest.raises(Overloaded):
        store.put("a.txt", b"x" * 9_000, "me")
    store.put("a.txt", b"x" * 9_000, "you")
    with pytest.raises(TooLarge, match="keeps 10000"):
        store.put("a.txt", b"x" * 10_001, "her")


def test_the_folder_of_a_killed_process_goes_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import tempfile, sys; tempfile.tempdir = sys.argv[1]\n"
    code += "from server.process.temporary import OwnFolder\n"
    code += "own = OwnFolder('convoy-files-'); print(own.path, flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        stale = Path(other.stdout.readline().strip())
        (stale / "secret.data").write_text("a user's")
        own = OwnFolder("convoy-files-")
        assert stale.exists(), "its process lives"
        other.kill()
        other.wait()
    third = OwnFolder("convoy-files-")
    assert not stale.exists()
    assert own.path.exists()
    for folder in (own, third):
        folder.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_another_start_sweeps_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock, others = locks.lock, []

    def start_another_first(descriptor):
        monkeypatch.setattr(locks, "lock", lock)
        others.append(OwnFolder("convoy-files-"))
        lock(descriptor)

    monkeypatch.setattr(locks, "lock", start_another_first)
    folders = [OwnFolder("convoy-files-"), *others]
    assert len(folders) == 2
    assert all(folder.path.exists() for folder in folders)
    for folder in folders:
        folder.close()
    assert not list(tmp_path.iterdir())


# who asks


@pytest.mark.parametrize(
    ("host", "settings", "answers"),
    [
        ("localhost:8000", {}, True),
        ("127.0.0.1", {}, True),
        ("[::1]:8000", {}, True),
        ("evil.example", {}, False),
        ("evil.example", {"host": "0.0.0.0"}, True),
        ("mine.example:80", {"allowed_hosts": "mine.example"}, True),
        ("MINE.example", {"allowed_hosts": "mine.example", "host": "0.0.0.0"}, True),
        ("evil.example", {"allowed_hosts": "mine.example", "host": "0.0.0.0"}, False),
        ("evil.example", {"allowed_hosts": "*"}, True),
    ],
)
def test_names_that_are_not_the_servers_are_refused(host, settings, answers):
    if answers:
        check_host(host, ServerSettings(**settings))
        return
    with pytest.raises(Refusal, match="CONVOY_ALLOWED_HOSTS"):
        check_host(host, ServerSettings(**settings))


def test_forwarded_addresses_are_believed_from_nobody_by_default():
    assert ServerSettings().trusted_proxies == ()


def test_the_link_to_a_file_is_the_operators_where_there_is_one():
    with server(public_url="https://translate.example/") as (client, _, _):
        sent = {"data": {"target": "en", "source": "de"}, "files": {"file": ("a.txt", b"Gut.")}}
        url = client.post("/translate_file", **sent).json()["translatedFileUrl"]
        assert url.startswith("https://translate.example/download_file/")


def test_all_answers_say_that_their_type_is_meant(client):
    for path in ("/health", "/docs", "/", "/nothing"):
        answer = client.get(path)
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], path
    assert "frame-ancestors 'none'" in client.get("/docs").headers["content-security-policy"]


def test_wherever_get_is_head_is_without_a_body(client):
    for path in ("/health", "/languages", "/models", "/v2", "/v2/models", "/docs", "/"):
        found, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (found.status_code, b""), path
        assert head.headers["content-length"] == found.headers["content-length"]


async def test_who_shows_no_valid_key_is_slowed_down(tmp_path):
    key = "0123456789abcdef0123"
    with server(api_keys=key) as (client, _, _):
        for number in range(31):
            answer = client.post("/translate", json=GERMAN | {"api_key": f"wrong{number}"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert client.post("/translate", json=GERMAN, headers={"X-API-Key": key}).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for():
    with server(body_timeout=0.2) as (client, state, _):
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
            slow.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
            slow.settimeout(10)
            assert b"408" in slow.recv(100)
        until(lambda: state.in_flight == 0)


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("server.process.watchdog.HEAD_SECONDS", 0.2)
    with server() as (client, _, _):
        for head in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "):
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
                slow.sendall(head)
                slow.settimeout(30)
                assert slow.recv(100) == b""


def test_a_body_may_come_in_chunks_but_not_in_crumbs():
    head = (
        "POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    with server() as (client, _, _):
        for sizes, status in (
            ([1] * 1_000, 200),
            ([1] * 1_100, 400),
            ([64] * 3_000, 200),
            ([100_000, *[1] * 1_100], 400),  # a large one pays for none that come later
            ([*[1] * 500, 50_000, *[1] * 1_000], 200),
        ):
            pieces = [*(b" " * size for size in sizes), b'{"q":"Ja."}']
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as one:
                one.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + body + b"0\r\n\r\n")
                answer = b"".join(iter(lambda: one.recv(65_536), b""))  # noqa: B023 - is called here
            assert answer.startswith(b"HTTP/1.1 %d" % status)
            assert (b"send the body in larger ones" in answer) == (status == 400)


def test_a_head_that_comes_byte_by_byte_gets_no_more_time(monkeypatch):
    monkeypatch.setattr("server.process.watchdog.HEAD_SECONDS", 0.3)
    with server() as (client, _, _), socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
        slow.settimeout(0.05)

        def closed():
            try:
                slow.sendall(b"a")
                return slow.recv(100) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        until(closed)


async def test_counters_of_another_process_count_as_ones_own():
    kept = Counters()
    quotas = [Quotas("memory://", kept.ask) for _ in range(2)]
    rates = rates_of(2)
    assert [await q.count_request("a", rates) for q in quotas] == [None, None]
    assert (await quotas[0].count_request("a", rates))[0] == rates[0]
    await quotas[0].add("a", 5)
    assert await quotas[1].add("a", 6) == 11
    assert await quotas[1].count("a") == 11


async def test_counters_that_do_not_answer_are_a_503(monkeypatch):
    monkeypatch.setattr("server.callers.quotas.STORAGE_SECONDS", 0.01)

    async def silent(verb, arguments):
        await asyncio.sleep(60)

    with pytest.raises(Refusal) as refused:
        await Quotas("memory://", silent).add("a", 1)
    assert refused.value.code == "unavailable"
    assert isinstance(Quotas("memory://", silent)._storage, RemoteCounters)


# contracts


@pytest.mark.parametrize(
    ("path", "length"), [("/a", 2), ("/b", -1), ("/b/", 4), ("/b/c", 4), ("/a/c", -1), ("", -1)]
)
def test_the_longest_path_of_a_contract_counts(path, length):
    assert longest_match(["/a", "/b/*"], path) == length


def test_open_paths_are_open_to_reading_only():
    doors = PathRules(
        [Contract((), ("/*",), open_paths=("/a",), operator_paths={"/m/[^/]+/load": "admin_token"})]
    )
    assert doors.is_open("GET", "/a")
    assert not doors.is_open("POST", "/a")
    assert not doors.is_open("GET", "/a/b")
    assert doors.token_setting("/m/x/load") == "admin_token"
    assert doors.token_setting("/m/x/y/load") is None


@pytest.fixture(scope="module")
def client():
    with server() as (found, _, _):
        yield found
