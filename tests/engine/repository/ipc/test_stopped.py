"""Requests of an engine process that is stopped, as by SIGSTOP, or whose event loop hangs."""

import asyncio
import math
import signal
import time
from dataclasses import replace

import pytest

from engine.errors import DeadlineExceeded, Unavailable
from engine.repository.ipc.groups import SILENT_TICKS, Silence
from engine.schedule.aio import generate_group
from engine.types import DecodeJob, DecodeOptions
from tests.engine.repository.ipc.conftest import engine_of, refusal
from tests.server.test_reload import NAME

SHORT = DecodeOptions(beam_size=1, max_length=10)


async def test_requests_of_a_stopped_process_are_answered_by_another_one(hosted, monkeypatch):
    monkeypatch.setattr("engine.repository.ipc.connections.TICK_SECONDS", 0.05)
    place, jobs = hosted(2), [DecodeJob([5, 6, 2], replace(SHORT, seed=n)) for n in range(4)]
    async with place.connected() as service:
        first, second = service._connections.connections
        place.signal(0, signal.SIGSTOP)
        groups = [asyncio.create_task(generate_group(engine_of(service), [job])) for job in jobs]
        while not first._groups:
            await asyncio.sleep(0)
        results = await asyncio.wait_for(asyncio.gather(*groups), 600)
        assert {tuple(r[0].hypotheses[0].tokens) for r in results} == {
            tuple(results[0][0].hypotheses[0].tokens)
        }
        assert first.silence.long
        assert not first._groups
        await generate_group(engine_of(service), jobs[:1])
        assert not first._groups, "new requests avoid the stopped process"
        place.signal(0, signal.SIGCONT)
        while first.silence.ticks:
            await asyncio.sleep(0.01)
        place.kill(1)
        while second.connected:
            await asyncio.sleep(0.01)
        assert (await generate_group(engine_of(service), jobs[:1]))[0].hypotheses


async def test_requests_of_the_only_process_end_at_their_deadline_while_it_is_stopped(hosted, monkeypatch):
    monkeypatch.setattr("engine.repository.ipc.connections.TICK_SECONDS", 0.05)
    place = hosted(1)
    async with place.connected() as service:
        place.signal(0, signal.SIGSTOP)
        job, deadline = DecodeJob([5, 6, 2], SHORT), time.monotonic() + 1
        late, waits = (
            asyncio.create_task(refusal(generate_group(engine_of(service), [job], until)))
            for until in (deadline, math.inf)
        )
        assert isinstance(await asyncio.wait_for(late, 600), DeadlineExceeded)
        assert not waits.done(), "the process may continue"
        place.signal(0, signal.SIGCONT)
        assert (await asyncio.wait_for(waits, 600))[0].hypotheses


async def test_order_for_a_stopped_process_fails_and_a_later_one_succeeds(hosted, monkeypatch):
    monkeypatch.setattr("engine.repository.ipc.connections.TICK_SECONDS", 0.05)
    place = hosted(1)
    async with place.connected() as service:
        (connection,) = service._connections.connections
        place.signal(0, signal.SIGSTOP)
        monkeypatch.setattr("engine.repository.ipc.connection.ORDER_TICKS", 5)
        with pytest.raises(Unavailable):
            await asyncio.to_thread(service.reload, NAME)
        assert not connection.connected
        monkeypatch.undo()
        place.signal(0, signal.SIGCONT)
        for _ in range(2):  # the second reload waits until the first one is settled
            while not connection.connected:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(service.reload, NAME)
            await asyncio.to_thread(service.settle, NAME)
        assert (await service.run(NAME, ["Das ist gut."]))[0].text


def test_a_silent_process_is_asked_once_and_counts_as_stopped_after_some_ticks():
    silence = Silence()
    assert not any(silence.tick(expecting=False) or silence.long for _ in range(2 * SILENT_TICKS))
    asked = [silence.tick(expecting=True) for _ in range(SILENT_TICKS - 1)]
    assert asked == [True] + [False] * (SILENT_TICKS - 2)
    assert not silence.long
    assert not silence.tick(expecting=False)
    assert silence.long, "an unanswered Ping counts, also without requests"
