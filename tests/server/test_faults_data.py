"""Real faults of backends, tokenizers, disks and files, by `make test-faults`."""

import contextlib
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.api import BundleError, Placement, Service, ServiceSettings
from engine.bundle.bundle import open_bundle
from tests.server.test_server_process import GERMAN, ROOT
from tests.support.served import LANES, bundles, busy, server, until

pytestmark = pytest.mark.faults


NAME = "toy-de-en"
SHIPPED = ROOT / "models" / "tatoeba-de-en"
MEGABYTE = 1 << 20


@pytest.mark.parametrize("part", ["encode", "launch"])
def test_failing_backend_fails_only_the_requests_of_its_step(part):
    with server() as (client, house, _):
        lane = house.service.repository.loaded[NAME].engine.lanes[1]
        owner, every = (lane.executor, 5) if part == "encode" else (lane.stepper, 20)
        real, count = getattr(owner, part), iter(range(10_000))

        def sometimes(*args, **kwargs):
            if next(count) % every == every - 1:
                raise RuntimeError("device trouble")
            return real(*args, **kwargs)

        setattr(owner, part, sometimes)
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: client.post("/translate", json=GERMAN), range(40)))
        delattr(owner, part)
        assert {a.status_code for a in answers} == {200, 500}
        assert all("device trouble" in a.json()["error"] for a in answers if a.status_code == 500)
        healthy = [client.post("/translate", json=GERMAN) for _ in range(3)]
        assert {a.status_code for a in healthy} == {200}
        # answers between two faults are those of a sound server
        good = {a.json()["translatedText"] for a in answers if a.status_code == 200}
        assert good == {healthy[0].json()["translatedText"]}
        until(lambda: busy(house.service) == (0, 0))
        assert client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("part", ["encode", "decode"])
def test_failing_tokenizer_fails_one_request_and_leaks_no_slot(part, monkeypatch, caplog):
    with server() as (client, house, _):
        tokenizer = house.service.repository.loaded[NAME].text.tokenizer
        real = getattr(type(tokenizer), part)

        def fail(self, *args):
            raise RuntimeError("a text it can't bear")

        with monkeypatch.context() as patch:
            patch.setattr(type(tokenizer), part, fail)
            answer = client.post("/translate", json=GERMAN)
        assert answer.status_code == 500
        assert answer.json() == {"error": "internal error: see the server's log"}
        assert "a text it can't bear" in caplog.text
        assert getattr(type(tokenizer), part) is real
        assert client.post("/translate", json=GERMAN).status_code == 200
        until(lambda: busy(house.service) == (0, 0) and house.in_flight == 0)


WRITE = """
import resource, sys
from pathlib import Path
from tests.server.test_reload import rewritten
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    rewritten(Path(sys.argv[1]), lambda weight: -weight)
except OSError as error:
    sys.exit(f"errno {error.errno}")
"""


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
    done = subprocess.run(["mount", *options, folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"can't mount a small disk: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("limit", ["disk", "file"])
def test_full_disk_leaves_only_the_old_bundle(tmp_path, limit):
    size = sum(len(data) for data in contents(bundles() / NAME).values())
    largest = max(len(data) for data in contents(bundles() / NAME).values())
    with contextlib.ExitStack() as stack:
        disk = tmp_path / "disk"
        if limit == "disk":
            stack.enter_context(small_disk(disk, size + size // 2))
        shutil.copytree(bundles() / NAME, disk / "models" / NAME)
        before = contents(disk)
        allowed = largest // 2 if limit == "file" else 0
        done = subprocess.run(
            [sys.executable, "-c", WRITE, disk / "models" / NAME, str(allowed)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "errno 28" in done.stderr or "errno 27" in done.stderr, done.stderr  # ENOSPC, EFBIG
        assert contents(disk) == before
        open_bundle(disk / "models" / NAME)


@pytest.mark.parametrize("name", sorted(p for p in contents(SHIPPED)) if SHIPPED.is_dir() else [])
def test_flipped_bit_in_any_file_of_a_bundle_is_found(tmp_path, name):
    """32 flips in each file; another test flips bits of the manifest."""
    chance = random.Random(name)
    copied = tmp_path / SHIPPED.name
    shutil.copytree(SHIPPED, copied)
    original = (copied / name).read_bytes()
    for _ in range(32 if len(original) < MEGABYTE else 4):
        data = bytearray(original)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (copied / name).write_bytes(data)
        with pytest.raises(BundleError):
            open_bundle(copied)
    (copied / name).write_bytes(original)
    open_bundle(copied)


def test_any_flipped_bit_of_a_manifest_is_found(tmp_path):
    copied = tmp_path / NAME
    shutil.copytree(bundles() / NAME, copied)
    original = (copied / "manifest.json").read_bytes()
    chance = random.Random(0)
    for place in chance.sample(range(len(original) * 8), 1500):
        data = bytearray(original)
        data[place // 8] ^= 1 << place % 8
        (copied / "manifest.json").write_bytes(data)
        with pytest.raises(BundleError):
            open_bundle(copied)
    (copied / "manifest.json").write_bytes(original)
    with pytest.raises(BundleError), Path(copied / "config.json").open("ab") as config:
        config.write(b" ")
        config.flush()
        Service.open([copied], ServiceSettings(Placement(lanes=LANES)))
