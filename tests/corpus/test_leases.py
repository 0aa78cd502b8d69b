"""Leases: of several processes one holds a shard, and who was away for too long finds out."""

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
    """Make a lease look like one of another machine."""
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"machine": "another"}).ljust(400))


def test_of_many_claims_at_once_one_wins(tmp_path):
    many = [Leases(tmp_path, 60.0) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        won = [lease for lease in pool.map(lambda leases: leases.claim(3), many) if lease]
    assert len(won) == 1
    assert won[0].is_held()


def test_a_lease_that_is_given_back_is_free_at_once(tmp_path):
    first, second = Leases(tmp_path, 60.0), Leases(tmp_path, 60.0)
    lease = first.claim(0)
    assert second.claim(0) is None
    first.give_back(lease)
    assert second.claim(0)
    assert not lease.is_held()


def test_who_lost_a_lease_that_was_swept_meanwhile_takes_nothing_from_a_later_holder(tmp_path):
    first, second = Leases(tmp_path, 60.0), Leases(tmp_path, 60.0)
    lost = first.claim(0)
    lost.path.unlink()
    kept = second.claim(0)
    assert kept.path == lost.path
    first.give_back(lost)
    assert kept.is_held()


def test_a_silent_lease_of_another_machine_is_taken_over_once_and_the_loser_notices(tmp_path):
    lost, others = Leases(tmp_path, SHORT), [Leases(tmp_path, SHORT) for _ in range(8)]
    lease = lost.claim(7)
    elsewhere(lease.path)
    assert not any(leases.claim(7) for leases in others)  # they see it for the first time
    time.sleep(2 * SHORT)
    with ThreadPoolExecutor(8) as pool:
        won = [lease for lease in pool.map(lambda leases: leases.claim(7), others) if lease]
    assert [each.generation for each in won] == [1]
    assert won[0].is_held()
    assert not lease.is_held()
    lost.give_back(lease)
    assert won[0].is_held()  # who lost a lease takes nothing from the next holder


def test_a_lease_with_a_beat_stays_whatever_the_clocks_say(tmp_path):
    with Leases(tmp_path, SHORT) as holder:
        lease, other = holder.claim(1), Leases(tmp_path, SHORT)
        os.utime(lease.path, (0, 0))
        end = time.monotonic() + 4 * SHORT
        while time.monotonic() < end:
            assert other.claim(1) is None
            time.sleep(SHORT / 10)
        assert lease.is_held()
    assert other.claim(1)  # the end of a process gives all back


def test_a_beat_does_not_bring_a_lease_back(tmp_path):
    leases = Leases(tmp_path, 60.0)
    lease = leases.claim(1)
    lease.path.unlink()
    lease.beat()
    assert not lease.is_held()
    assert not list(tmp_path.iterdir())


def test_the_lease_of_a_process_that_was_killed_is_free_at_once_on_its_machine(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from corpus.leases import Leases\n"
        "Leases(Path(sys.argv[1]), 3600.0).claim(5); print('claimed', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"claimed\n"
        assert Leases(tmp_path, 3600.0).claim(5) is None
        process.kill()
        until(lambda: Leases(tmp_path, 3600.0).claim(5) is not None)  # also before its parent has noticed


def test_a_lease_that_was_half_written_keeps_others_out_only_for_a_while(tmp_path):
    (tmp_path / "00000002.0").write_bytes(b'{"owner": "x", "mach')
    leases = Leases(tmp_path, SHORT)
    assert leases.claim(2) is None
    time.sleep(2 * SHORT)
    assert leases.claim(2).generation == 1


def test_what_is_under_way_is_seen_by_all(tmp_path):
    leases = Leases(tmp_path, 60.0)
    lease = leases.claim(1)
    lease.lines, lease.words = 10, 70
    lease.beat()
    assert list(Leases(tmp_path, 60.0).progress()) == [(10, 70)]


ACTION = st.sampled_from(["claim", "give back", "sweep", "beat", "crash"])


@given(st.lists(st.tuples(st.integers(0, 2), ACTION), max_size=30))
def test_whatever_happens_at_most_one_holds_a_shard(tmp_path_factory, actions):
    """Leases that last no time at all: every claim takes over."""
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
