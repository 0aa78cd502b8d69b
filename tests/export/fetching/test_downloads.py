"""One file: resumed, repeated, verified, unpacked, from a server with faults."""

from __future__ import annotations

import gzip
import random
import shutil
import sys
import time
from collections import namedtuple
from contextlib import closing

import pytest
import zstandard

from engine.errors import CheckpointError, InvalidRequest
from export.fetching.download import download, download_all
from export.fetching.offers import RemoteFile
from export.fetching.web import Web
from tests.support.model_servers import sha
from tests.support.thorough import some

DATA = bytes(range(256)) * 400
PATH = "/files/part.bin"


def fetched(server, folder, file=None, counts=None):
    """Download a file of the server; return its content."""
    server.files.setdefault(PATH, DATA)
    server.cut_path = "part"
    file = file or RemoteFile(server.address + PATH, "part.bin", len(DATA), sha(DATA))
    with closing(Web(print)) as web:
        return download(web, file, folder, (counts if counts is not None else []).append).read_bytes()


@pytest.mark.parametrize("cut", [0, 1, 255, 70_000, len(DATA) - 1])
def test_connection_that_is_cut_is_resumed_at_its_byte(server, tmp_path, cut):
    server.cuts = [cut]
    counts = []
    assert fetched(server, tmp_path, counts=counts) == DATA
    assert server.asked == [(PATH, 0), (PATH, cut)]
    assert server.sent[PATH] == sum(counts) == len(DATA)


def test_cuts_at_any_bytes_give_the_same_file(server, tmp_path):
    numbers = random.Random(7)
    for case in range(some(40)):
        server.cuts = [numbers.randrange(1, 40_000) for _ in range(numbers.randrange(6))]
        assert fetched(server, tmp_path / str(case)) == DATA
        assert server.sent.pop(PATH) == len(DATA)


def test_file_sent_from_its_beginning_replaces_the_partial_file(server, tmp_path):
    server.ranges, server.cuts = False, [70_000]
    counts = []
    assert fetched(server, tmp_path, counts=counts) == DATA
    assert sum(counts) == len(DATA)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_transient_errors_are_repeated(server, tmp_path, status):
    server.statuses = [(status, {})] * 3
    assert fetched(server, tmp_path) == DATA
    assert len(server.asked) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_other_errors_are_not_repeated(server, tmp_path, status):
    server.statuses = [(status, {})]
    with pytest.raises(CheckpointError, match=f"answers {status}; is the address right"):
        fetched(server, tmp_path)
    assert len(server.asked) == 1


def test_server_that_stays_broken_is_given_up_after_four_repetitions(server, tmp_path):
    server.statuses = [(503, {})] * 20
    with pytest.raises(CheckpointError, match="answers 503; try again later"):
        fetched(server, tmp_path)
    assert len(server.asked) == 5


def test_retry_after_is_waited_for(server, tmp_path):
    server.statuses = [(429, {"Retry-After": "1"})]
    began = time.monotonic()
    assert fetched(server, tmp_path) == DATA
    assert time.monotonic() - began >= 1


def test_retry_after_of_hours_is_an_error(server, tmp_path):
    server.statuses = [(429, {"Retry-After": "36000"})]
    with pytest.raises(CheckpointError, match="answers 429"):
        fetched(server, tmp_path)


def test_slow_drip_is_received(server, tmp_path):
    server.drip = 4_000
    assert fetched(server, tmp_path) == DATA


def test_wrong_content_is_refused_and_deleted(server, tmp_path):
    file = RemoteFile(server.address + PATH, "part.bin", len(DATA), sha(b"other"))
    with pytest.raises(CheckpointError, match="is not the file of the index"):
        fetched(server, tmp_path, file)
    assert not list(tmp_path.iterdir())
    assert len(server.asked) == 1


def test_more_bytes_than_in_the_index_are_not_stored(server, tmp_path):
    file = RemoteFile(server.address + PATH, "part.bin", 1_000, sha(DATA[:1_000]))
    with pytest.raises(CheckpointError, match="is not the file of the index"):
        fetched(server, tmp_path, file)


def test_partial_file_of_another_version_is_fetched_again(server, tmp_path):
    (tmp_path / "part.bin.partial").write_bytes(b"x" * 5_000)
    assert fetched(server, tmp_path) == DATA
    assert server.asked == [(PATH, 5_000), (PATH, 0)]


def test_whole_file_is_never_asked_for_again(server, tmp_path):
    fetched(server, tmp_path)
    assert fetched(server, tmp_path) == DATA
    assert len(server.asked) == 1


def test_whole_partial_file_is_not_asked_for_again(server, tmp_path):
    (tmp_path / "part.bin.partial").write_bytes(DATA)
    assert fetched(server, tmp_path) == DATA
    assert not server.asked


def test_file_without_a_hash_is_resumed_only_if_its_tag_is_the_same(server, tmp_path):
    file = RemoteFile(server.address + PATH, "part.bin")
    server.cuts = [50_000]
    assert fetched(server, tmp_path, file) == DATA
    assert server.asked == [(PATH, 0), (PATH, 50_000)]
    (tmp_path / "part.bin.partial").write_bytes(b"old" * 100)
    (tmp_path / "part.bin.partial.tag").write_text('"old"')
    (tmp_path / "part.bin").unlink()
    assert fetched(server, tmp_path, file) == DATA


@pytest.mark.parametrize("packing, pack", [("zst", zstandard.compress), ("gz", gzip.compress)])
def test_packed_file_is_unpacked_and_both_hashes_are_checked(server, tmp_path, packing, pack):
    packed = pack(DATA)
    server.files[PATH] = packed
    facts = (len(packed), sha(packed), packing, len(DATA))
    file = RemoteFile(server.address + PATH, "part.bin", *facts, sha(DATA))
    assert fetched(server, tmp_path, file) == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["part.bin"]
    assert fetched(server, tmp_path, file) == DATA  # without the packed file
    assert len(server.asked) == 1
    (tmp_path / "part.bin").unlink()
    wrong = RemoteFile(server.address + PATH, "part.bin", *facts, sha(b"other"))
    with pytest.raises(CheckpointError, match="another size or SHA-256 than the index"):
        fetched(server, tmp_path, wrong)
    assert not (tmp_path / "part.bin").exists()


@pytest.mark.parametrize("size", [1_000, None])
@pytest.mark.parametrize("packing, pack", [("zst", zstandard.compress), ("gz", gzip.compress)])
def test_bomb_is_refused_before_it_fills_the_disk(server, tmp_path, size, packing, pack):
    packed = pack(bytes(60_000_000))
    server.files[PATH] = packed
    file = RemoteFile(server.address + PATH, "part.bin", len(packed), sha(packed), packing, size)
    with pytest.raises(CheckpointError, match=r"unpacks to more than [\d,]+ bytes"):
        fetched(server, tmp_path, file)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == len(packed)


@pytest.mark.parametrize("packing, data", [("zst", b"(\xb5/\xfd broken"), ("gz", gzip.compress(DATA)[:-9])])
def test_damaged_archive_is_refused(server, tmp_path, packing, data):
    server.files[PATH] = data
    with pytest.raises(CheckpointError, match="damaged"):
        fetched(server, tmp_path, RemoteFile(server.address + PATH, "part.bin", packing=packing))


def test_full_disk_is_noticed_before_the_download(server, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1_000))
    with pytest.raises(CheckpointError, match="make room, or name another folder"):
        fetched(server, tmp_path, RemoteFile(server.address + PATH, "part.bin"))
    assert not server.sent[PATH] or server.sent[PATH] == len(DATA)
    assert not (tmp_path / "part.bin").exists()


def test_files_of_another_version_are_removed(server, tmp_path):
    server.files[PATH] = DATA
    (tmp_path / "old.bin").write_bytes(b"old")
    (tmp_path / "old.bin.partial").write_bytes(b"old")
    file = RemoteFile(server.address + PATH, "part.bin", len(DATA), sha(DATA))
    with closing(Web(print)) as web:
        download_all(web, [file], tmp_path, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["part.bin"]


def test_every_host_is_named_before_it_is_asked(server, tmp_path):
    port = server.address.rpartition(":")[2]
    server.moved["/moved"] = f"http://localhost:{port}{PATH}"
    server.files[PATH] = DATA
    said = []
    with closing(Web(said.append)) as web, web.read(f"{server.address}/moved") as part:
        assert b"".join(part.chunks) == DATA
    assert [line.split()[1] for line in said] == [f"127.0.0.1:{port}", f"localhost:{port}"]


def test_proxy_of_the_environment_is_named_without_its_password(server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("http_proxy", "http://user:secret@127.0.0.1:1/")
    said = []
    with (
        closing(Web(said.append)) as web,
        pytest.raises(CheckpointError, match=r"through the proxy 127\.0\.0\.1:1 \(") as error,
        web.read(f"{server.address}/x"),
    ):
        pass
    assert said[0].endswith("files of models, through the proxy 127.0.0.1:1")
    assert "secret" not in str(error.value)
    assert not server.asked


@pytest.mark.parametrize(
    "proxy, fault", [("socks5://127.0.0.1:1", r"pip install 'httpx\[socks\]'"), ("htp://x", "can't be used")]
)
def test_proxy_that_can_not_be_used_is_refused_with_the_remedy(monkeypatch, proxy, fault):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(InvalidRequest, match=fault):
        Web(print)


def test_redirect_to_a_file_or_in_circles_is_refused(server):
    server.moved |= {"/file": "file:///etc/passwd", "/circle": "/circle"}
    for path, fault in (("/file", "which is not safe"), ("/circle", "redirects")):
        with (
            closing(Web(print)) as web,
            pytest.raises(CheckpointError, match=fault),
            web.read(server.address + path),
        ):
            pass


def test_index_of_50_mb_is_refused(server):
    server.files["/index.json"] = b"[" + b'"x",' * 13_000_000 + b'"x"]'
    with closing(Web(print)) as web, pytest.raises(CheckpointError, match="so it is not an index"):
        web.index(f"{server.address}/index.json")


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../evil"},
        {"path": "a/../../b"},
        {"path": "/etc/passwd"},
        {"path": ".hidden"},
        {"size": -1},
        {"size": True},
        {"sha256": "no"},
    ],
)
def test_path_that_leaves_the_folder_and_invalid_facts_are_refused(change):
    with pytest.raises(ValueError, match="leaves the folder|has the"):
        RemoteFile(**{"address": "http://x", "path": "part.bin"} | change)
