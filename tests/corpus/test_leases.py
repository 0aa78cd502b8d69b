"""Leases: one of several processes holds a shard, and a suspended process detects its loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from corpus.leases import Leases
from tests.support.served import until

SHORT = 0.3  # seconds


def elsewhere(path):
    """Rewrite a lease as a lease of another machine."""
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"machine": "another"}).ljust(400))


def test_one_of_many_simultaneous_claims_succeeds(tmp_path):
    many = [Leases(tmp_path, 60.0) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        won = [lease for lease in pool.map(lambda leases: leases.claim(3), many) if lease]
    assert len(won) == 1
    assert won[0].is_held()


def test_released_lease_is_free_at_once(tmp_path):
    first, second = Leases(tmp_path, 60.0), Leases(tmp_path, 60.0)
    lease = first.claim(0)
    assert second.claim(0) is None
    first.give_back(lease)
    assert second.claim(0)
    assert not lease.is_held()


def test_loser_of_a_swept_lease_keeps_the_files_of_later_holders(tmp_path):
    first, second = Leases(tmp_path, 60.0), Leases(tmp_path, 60.0)
    lost = first.claim(0)
    lost.path.unlink()
    kept = second.claim(0)
    assert kept.path == lost.path
    first.give_back(lost)
    assert kept.is_held()


def test_silent_lease_is_taken_over_once_and_its_holder_detects_it(tmp_path):
    lost, others = Leases(tmp_path, SHORT), [Leases(tmp_path, SHORT) for _ in range(8)]
    lease = lost.claim(7)
    elsewhere(lease.path)
    assert not any(leases.claim(7) for leases in others)  # other processes read it for the first time
    time.sleep(2 * SHORT)
    with ThreadPoolExecutor(8) as pool:
        won = [lease for lease in pool.map(lambda leases: leases.claim(7), others) if lease]
    assert [each.generation for each in won] == [1]
    assert won[0].is_held()
    assert not lease.is_held()
    lost.give_back(lease)
    assert won[0].is_held()  # a lost lease removes no file of the next holder


def test_lease_with_beats_is_kept_whatever_the_clocks(tmp_path):
    with Leases(tmp_path, SHORT) as holder:
        lease, other = holder.claim(1), Leases(tmp_path, SHORT)
        os.utime(lease.path, (0, 0))
        end = time.monotonic() + 4 * SHORT
        while time.monotonic() < end:
            assert other.claim(1) is None
            seen = lease.path.read_bytes()
            until(lambda: lease.path.read_bytes() != seen)  # noqa: B023 - called at once
        assert lease.is_held()
    assert other.claim(1)  # the end of a process gives all back


def test_beat_does_not_restore_a_removed_lease(tmp_path):
    leases = Leases(tmp_path, 60.0)
    lease = leases.claim(1)
    lease.path.unlink()
    lease.beat()
    assert not lease.is_held()
    assert not list(tmp_path.iterdir())


def test_lease_of_a_killed_process_is_free_at_once_on_its_machine(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from corpus.leases import Leases\n"
        "Leases(Path(sys.argv[1]), 3600.0).claim(5); print('claimed', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"claimed\n"
        assert Leases(tmp_path, 3600.0).claim(5) is None
        process.kill()
        until(lambda: Leases(tmp_path, 3600.0).claim(5) is not None)  # also before its parent has noticed


def test_partially_written_lease_expires(tmp_path):
    (tmp_path / "00000002.0").write_bytes(b'{"owner": "x", "mach')
    leases = Leases(tmp_path, SHORT)
    assert leases.claim(2) is None
    time.sleep(2 * SHORT)
    assert leases.claim(2).generation == 1


def test_progress_of_unfinished_shards_is_visible_to_all_processes(tmp_path):
    leases = Leases(tmp_path, 60.0)
    lease = leases.claim(1)
    lease.lines, lease.words = 10, 70
    lease.beat()
    assert list(Leases(tmp_path, 60.0).progress()) == [(10, 70)]


ACTION = st.sampled_from(["claim", "give back", "sweep", "beat", "crash"])


@given(st.lists(st.tuples(st.integers(0, 2), ACTION), max_size=30))
def test_at_most_one_process_holds_a_shard(tmp_path_factory, actions):
    """Leases have no duration, so every claim takes over."""
    folder = tmp_path_factory.mktemp("leases")
    processes = [Leases(folder, 0.0) for _ in range(3)]
    latest = {}
    for who, action in actions:
        leases, lease = processes[who], latest.get(who)
        if action == "claim":
            latest[who] = leases.claim(0) or lease
        elif action == "crash":
            processes[who], latest[who] = Leases(folder, 0.0), None
        elif lease is not None:
            {"give back": leases.give_back, "sweep": leases.sweep}.get(action, lambda each: each.beat())(
                lease
            )
        assert sum(lease is not None and lease.is_held() for lease in latest.values()) <= 1
