"""Expiry times while the machine's clock is set."""

import math
import subprocess
import sys
import time

import httpx
import pytest
from limits import RateLimitItemPerMinute

from convoy_client.exchange import _retry_after
from server.callers.quotas import Quotas
from server.files.store import Store
from server.process.clock import steady

DAY = 86_400


@pytest.fixture
def jump(monkeypatch):
    """Sets the wall clock of this process's Python code."""
    real = time.time

    def to(seconds):
        monkeypatch.setattr(time, "time", lambda: real() + seconds)

    return to


def test_steady_clock_does_not_jump(jump):
    clock = steady(None)
    before = clock()
    assert before == pytest.approx(time.time(), abs=60)
    for days in (1, -1, 400):
        jump(days * DAY)
        assert clock() == pytest.approx(before, abs=60)


def test_processes_that_share_a_folder_agree_whenever_they_start(tmp_path, jump):
    first = steady(tmp_path)
    jump(DAY)
    assert steady(tmp_path)() == pytest.approx(first(), abs=60)
    code = "import sys; from pathlib import Path; from server.process.clock import steady; "
    code += "print(repr(steady(Path(sys.argv[1]))() - float(sys.argv[2])))"
    other = [sys.executable, "-c", code, tmp_path, repr(first())]
    assert abs(float(subprocess.run(other, check=True, capture_output=True, text=True).stdout)) < 60
    assert steady(None)() == pytest.approx(first() + DAY, abs=60)


def test_files_are_kept_as_long_as_promised(tmp_path, jump):
    store = Store(1800.0, 1_000_000, folder=tmp_path)
    public = store.put("a.txt", b"kept")
    for days in (1, -400):
        jump(days * DAY)
        assert store.get(public).path.read_bytes() == b"kept"
        assert Store(1800.0, 1_000_000, folder=tmp_path).get(public) is not None


async def test_limits_neither_end_nor_last_longer(jump):
    quotas, rate = Quotas("memory://"), RateLimitItemPerMinute(3)
    assert [await quotas.count_request("a", [rate]) for _ in range(3)] == [None] * 3
    for days in (1, -1, 40, -400):
        jump(days * DAY)
        found, seconds = await quotas.count_request("a", [rate])
        assert found == rate
        assert 1 <= seconds <= 60
        assert await quotas.count_request(f"day {days}", [rate]) is None
    await quotas.add("a", 10)
    jump(40 * DAY)
    assert await quotas.count("a") == 10


@pytest.mark.parametrize("uptime", [5.0, 100_000.0])
async def test_a_window_counts_once_however_young_the_machine_is(uptime, monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: uptime)
    quotas, rate = Quotas("memory://"), RateLimitItemPerMinute(4)
    assert [bool(await quotas.count_request("a", [rate])) for _ in range(6)] == [False] * 4 + [True] * 2


def test_a_client_waits_by_the_clock_of_the_server(jump):
    jump(-DAY)
    told = {"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT", "date": "Sat, 21 Nov 2026 10:00:00 GMT"}
    assert _retry_after(httpx.Headers(told)) == 30.0
    assert _retry_after(httpx.Headers({"retry-after": "7"})) == 7.0
    assert _retry_after(httpx.Headers({"retry-after": "soon"})) is None
    assert math.isfinite(_retry_after(httpx.Headers({"retry-after": told["retry-after"]})))
