"""Storage of files: full disks, removed folders and shares of owners."""

import cProfile
import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api import (
    Overloaded,
    TooLarge,
)
from server.errors import Refusal
from server.files.store import Store
from server.process import locks
from server.process.temporary import OwnFolder
from tests.support.served import server, until


def test_full_disk_leaves_no_partial_file_and_gives_507(tmp_path, monkeypatch):
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


def test_removed_folder_is_made_again(tmp_path):
    store = Store(60, 1_000_000, folder=tmp_path / "files")
    store.put("a.txt", b"content")
    shutil.rmtree(store.folder)
    assert store.usable
    assert store.get(store.put("b.txt", b"content")).path.read_bytes() == b"content"
    assert store.size == len(b"content")


async def test_server_is_unready_if_its_folder_cannot_be_made(tmp_path):
    with server(store_folder=tmp_path) as (client, _, _):
        until(lambda: client.get("/health/ready").status_code == 200)
        shutil.rmtree(tmp_path / "files")
        assert client.get("/health/ready").status_code == 200
        shutil.rmtree(tmp_path / "files")
        (tmp_path / "files").write_text("in the way")
        answer = client.get("/health/ready")
        assert (answer.status_code, "folder" in answer.json()["error"]) == (503, True)
        (tmp_path / "files").unlink()


def test_cost_of_a_file_does_not_grow_with_their_number(tmp_path):
    stores = [Store(60, 10**9, folder=tmp_path) for _ in range(2)]  # stores of two processes

    def operations():
        """Return the number of function calls, which unlike time does not depend on the machine's load."""
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


def test_empty_files_take_room_and_an_owner_has_a_limit_of_files(tmp_path, monkeypatch):
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


def test_blocked_folder_gives_507(tmp_path):
    store = Store(60, 1_000_000, folder=tmp_path / "files")
    shutil.rmtree(store.folder)
    store.folder.write_text("in the way")
    with pytest.raises(Refusal, match="disk") as refused:
        store.put("a.txt", b"content")
    assert refused.value.code == "storage_full"


def test_document_whose_state_cannot_be_stored_is_not_in_flight(tmp_path):
    sent = {"data": {"target_lang": "EN", "source_lang": "DE"}, "files": {"file": ("a.txt", b"Gut. " * 400)}}
    with server(store_folder=tmp_path) as (client, state, _):
        assert client.post("/v2/document", **sent).status_code == 200
        assert state.in_flight
        (tmp_path / "documents").rename(tmp_path / "gone")  # atomic, because the server writes into it
        (tmp_path / "documents").write_text("in the way of a folder")
        until(lambda: state.in_flight == 0)
        assert client.post("/v2/document", **sent).status_code == 507


def test_one_owner_fills_only_a_share_of_the_room(tmp_path):
    store = Store(60, 40_000, folder=tmp_path)
    store.put("a.txt", b"x" * 9_000, "me")
    with pytest.raises(Overloaded):
        store.put("a.txt", b"x" * 9_000, "me")
    store.put("a.txt", b"x" * 9_000, "you")
    with pytest.raises(TooLarge, match="keeps 10000"):
        store.put("a.txt", b"x" * 10_001, "her")


def test_folder_of_a_killed_process_is_removed_at_the_next_start(tmp_path, monkeypatch):
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


def test_folder_removed_before_its_lock_is_made_again(tmp_path, monkeypatch):
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


@pytest.fixture(scope="module")
def client():
    with server() as (found, _, _):
        yield found
