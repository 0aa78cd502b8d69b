"""A job on a local Ray cluster whose engines are killed. `make test-ray`; needs `ray-data`."""

from __future__ import annotations

import os
import random
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from corpus.cutting import cut
from corpus.engines import EngineChoice
from corpus.folder import STATE, JobFolder
from corpus.inputs import find_inputs
from corpus.leases import Lease
from engine.api import ServiceSettings
from tests.corpus.jobs import MODEL, finish, job_of, output_of, start
from tests.corpus.test_exactly_once import FLAGS, KINDS, LINES, corpus_of
from tests.support.served import bundles, running, until
from tests.support.thorough import some

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'convoy-server[ray-data]'"),
]
ON_RAY = ["--ray", "local", "--ray-cpus", 0.5, "--engines", 2]
ENGINE = "ray::MapWorker(Map(ShardActor))"


def engines():
    """Return the processes of this machine that have an engine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_text("utf-8").startswith(ENGINE):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.fixture(scope="module", autouse=True)
def quiet():
    before = os.environ.get("RAY_USAGE_STATS_ENABLED")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    yield
    os.environ.pop("RAY_USAGE_STATS_ENABLED")
    if before is not None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = before


@pytest.mark.parametrize("kind", KINDS)
def test_killed_ray_engines_do_not_change_the_output(tmp_path, kind):
    path, out, luck = corpus_of(kind, tmp_path), tmp_path / "out", random.Random(5)
    flags = [*FLAGS[kind], "--beam-size", 4]
    finish([path], tmp_path / "whole", *flags)
    kills = 0
    with start([path], out, *flags, *ON_RAY) as process:
        while kills < some(7, 3) and process.poll() is None:
            until(lambda: engines() or process.poll() is not None)
            time.sleep(luck.uniform(0, 2))
            for victim in engines()[:1]:
                os.kill(victim, signal.SIGKILL)
                kills += 1
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr.decode()
    assert b"pyarrow" not in stderr  # rows are numbers, not pickled lines
    assert kills
    assert output_of(out) == output_of(tmp_path / "whole")
    assert not list((out / STATE / "aside").iterdir())


def test_progress_on_ray_has_the_lines_of_unfinished_shards(tmp_path, monkeypatch):
    """The class of the actors, without a cluster."""
    from corpus.ray_data import ShardActor

    path, folder = corpus_of("text", tmp_path), JobFolder(tmp_path / "out")
    with running() as service:
        job, files = job_of(service, shard_lines=LINES), find_inputs([str(path)])
        plan = folder.begin(job, files, lambda: cut(job, files))
    counts, add = [], Lease.add
    monkeypatch.setattr(Lease, "add", lambda lease, *added: counts.append(added) or add(lease, *added))
    actor = ShardActor(folder.root, EngineChoice([bundles() / MODEL], ServiceSettings()), 30.0)
    with actor._stack:
        assert actor({"shard": 0}) == {"shard": 0}
    assert (len(plan.shards), folder.done()) == (1, {0})
    assert len(counts) > 1
    tally = folder.tally(0)
    assert [sum(column) for column in zip(*counts, strict=True)] == [tally.lines, tally.words]
    assert not list(folder.leases.iterdir())


def test_job_begun_on_ray_is_finished_without_ray(tmp_path):
    path, out = corpus_of("text", tmp_path), tmp_path / "out"
    with start([path], out, *FLAGS["text"], *ON_RAY) as process:
        until(lambda: list((out / STATE / "done").glob("*")) or process.poll() is not None)
        process.kill()
    finish([path], out, *FLAGS["text"])
    finish([path], tmp_path / "whole", *FLAGS["text"])
    assert output_of(out) == output_of(tmp_path / "whole")
