"""Work in slices outside of the event loop, and the lag of the loop."""

import asyncio
import json
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    DeadlineExceeded,
    InvalidRequest,
    at_once,
    each,
    in_slices,
    one_slice,
    trim_heap,
)
from engine.schedule.slices import TURN_SECONDS
from server.http.responses import is_small, json_bytes
from server.process.allocator import STATM, TRIM_BYTES, resident, trimming
from server.process.watchdog import LoopLag
from tests.support.served import until

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


async def test_sliced_tasks_take_turns():
    order, both_wait = [], threading.Event()

    def count(name, until):
        assert both_wait.wait(300)
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


async def test_sliced_work_ends_at_its_deadline_and_on_cancellation():
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
    assert late.wait(300)
    task = asyncio.create_task(in_slices(forever(left)))
    await asyncio.sleep(0.05)
    assert not left.is_set()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert left.wait(300)


async def test_error_of_sliced_work_reaches_its_caller():
    def fails():
        yield
        raise InvalidRequest("by design")

    for small in (True, False):
        with pytest.raises(InvalidRequest, match="by design"):
            await in_slices(fails(), small=small)
    assert at_once(each(one_slice(str.upper, text) for text in "ab")) == ["A", "B"]


@given(JSON)
def test_responses_are_written_like_json(value):
    assert json.loads(asyncio.run(json_bytes(value))) == value


async def test_long_responses_are_written_in_slices_with_equal_text():
    matrix = np.linspace(-1, 1, 6000, dtype=np.float32).reshape(60, 100)
    matrix[3, 4] = np.inf
    answer = {"numbers": list(range(5000)), "text": "ä" * 10_000, "matrix": matrix, "rows": [[], [1], {}]}
    assert not is_small(answer)
    found = json.loads(await json_bytes(answer))
    assert found["matrix"][3][4] is None
    assert found["matrix"][0][:2] == [round(float(x), 6) for x in matrix[0, :2]]
    assert found | {"matrix": 0} == answer | {"matrix": 0}


async def test_lag_of_the_event_loop_is_measured(caplog):
    lag = LoopLag()
    async with lag.watching():
        await asyncio.sleep(0.12)
        usual = lag.longest()  # lag of a busy machine
        time.sleep(usual + 1.1)  # blocks the event loop
        await asyncio.sleep(0.12)
    assert lag.longest() > usual + 1
    assert "no request was served" in caplog.text


def test_lag_is_in_the_metrics(client):
    text = client.get("/metrics").text
    assert "convoy_event_loop_lag_seconds " in text


@pytest.mark.skipif(not STATM.exists(), reason="needs Linux' /proc")
async def test_freed_memory_returns_to_the_system_despite_fragmentation(monkeypatch):
    monkeypatch.setattr("server.process.allocator.TRIM_SECONDS", 0.05)
    trim_heap()  # memory that other tests have left
    before = resident()
    async with trimming():
        pieces = [bytes(2_000) for _ in range(100_000)]
        grown = resident() - before
        assert grown > TRIM_BYTES
        pieces = pieces[::200]
        await asyncio.to_thread(until, lambda: resident() - before < 0.3 * grown)
    assert len(pieces) == 500
