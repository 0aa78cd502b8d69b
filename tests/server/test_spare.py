"""The spare front end: it serves at once when the only other front end has died."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.processes import ask, pids, processes, ready
from tests.support.served import until
from tests.support.thorough import THOROUGH
from tests.support.timing import thrice


def serving(running):
    """Return the number of the front end that became ready last."""
    return int(re.findall(r"front end (\d+) is ready", "".join(running.log))[-1])


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_spare_front_end_serves_before_another_has_started():
    with processes(1, 1, THREADS="1") as (client, running):

        def attempt():
            until(lambda: len(pids(running)) == 2)
            served = serving(running)
            killed, spare = pids(running)[served], pids(running)[1 - served]
            until(lambda: processor_seconds(spare) > 0.7 * processor_seconds(killed))
            start = processor_seconds(spare)
            os.kill(killed, signal.SIGKILL)
            assert ask(client).status_code == 200
            new = [processor_seconds(pid) for pid in pids(running) if pid not in (killed, spare)]
            until(lambda: ready(client))
            assert serving(running) == 1 - served
            until(lambda: len(pids(running)) == 2)
            until(lambda: processor_seconds(pids(running)[served]) > 0.7 * start)
            return "the answer waited for the start of a process" if sum(new) >= start / 2 else ""

        thrice(attempt)
        served = serving(running)
        os.kill(pids(running)[served], signal.SIGKILL)
        assert ask(client).status_code == 200
        until(lambda: serving(running) == 1 - served)


@pytest.mark.skipif(not THOROUGH, reason="waits for a process that hangs")
def test_hanging_spare_front_end_is_replaced_and_serves_nobody():
    with processes(1, 1, THREADS="1", HANG_TIMEOUT="2") as (client, running):
        until(lambda: len(pids(running)) == 2)
        spare = 1 - serving(running)
        held = pids(running)[spare]
        os.kill(held, signal.SIGSTOP)
        until(lambda: not Path(f"/proc/{held}/stat").exists())
        assert ask(client).status_code == 200
        until(lambda: len(pids(running)) == 2)
        assert serving(running) == 1 - spare
