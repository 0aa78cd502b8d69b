"""Decoding from an event loop, by an engine with its thread."""

import asyncio
import math
import threading
import time

import numpy as np
import pytest

from engine.errors import DeadlineExceeded, ExecutorFailed, InvalidRequest, Overloaded, Stopping
from engine.schedule.aio import UpdateQueue, generate, generate_group
from engine.schedule.engine import Engine, EngineSettings
from engine.types import DecodeOptions, Result
from tests.support import cases
from tests.support.fake import EOS, FakeExecutor, FakeModel
from tests.support.rig import LONG, MODEL, PAST, QUICK, Switchable


@pytest.fixture
def engine():
    executors = [Switchable(MODEL, slots, beams) for slots, beams in ((3, 1), (4, 8))]
    engine = Engine(executors, EngineSettings(queue_tokens=20_000))
    engine.start()
    yield engine
    for executor in executors:
        executor.gate.set()
    engine.stop(drain=False, timeout=10)


async def until(condition):
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


async def test_many_awaited_at_once_with_random_cancellations_equal_the_oracle(engine):
    g = np.random.default_rng(0)
    jobs = [(cases.source(g, 19), cases.options(g, 19)) for _ in range(150)]
    tasks = [asyncio.create_task(generate(engine, s, o)) for s, o in jobs]
    await asyncio.sleep(0.01)
    for task in tasks[::5]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for i, ((source, options), result) in enumerate(zip(jobs, results, strict=True)):
        wanted = cases.expect(MODEL, source, options, 14)
        if isinstance(result, asyncio.CancelledError):
            assert i % 5 == 0
        elif wanted:
            cases.same(result.hypotheses, wanted, MODEL, source)
        else:
            assert isinstance(result, ExecutorFailed)
    await until(lambda: engine.stats().active == (0, 0))
    assert engine.stats().waiting_tokens == 0


async def test_results_of_a_group_are_in_order(engine):
    g = np.random.default_rng(3)
    jobs = [(cases.source(g, 19), DecodeOptions(beam_size=int(g.integers(1, 9)))) for _ in range(40)]
    results = await generate_group(engine, jobs)
    for (source, options), result in zip(jobs, results, strict=True):
        cases.same(result.hypotheses, cases.expect(MODEL, source, options, 14), MODEL, source)
    assert await generate_group(engine, []) == []


async def test_equal_jobs_of_a_group_are_decoded_once_and_each_gets_updates_and_its_result(engine):
    g = np.random.default_rng(5)
    distinct = [(cases.source(g, 19), options) for options in (QUICK, LONG) for _ in range(6)]
    distinct.append((distinct[0][0], LONG))  # the same source, answered in another way
    order = [*range(13), *g.integers(0, 13, 30)]
    jobs = [distinct[i] for i in order]
    told = [[] for _ in jobs]
    results = await generate_group(engine, jobs, watch=lambda job, news: told[job].append(news))
    assert engine.stats().encoded_requests == 13
    for (source, options), result, news in zip(jobs, results, told, strict=True):
        cases.same(result.hypotheses, cases.expect(MODEL, source, options, 14), MODEL, source)
        assert news[-1] is result
    alone = [(await generate_group(engine, [job]))[0].hypotheses for job in distinct]
    assert [result.hypotheses for result in results] == [alone[i] for i in order]


async def test_jobs_that_draw_samples_are_decoded_each(engine):
    drawn = DecodeOptions(beam_size=2, max_length=2, sampling=True, seed=7)
    await generate_group(engine, [([4, 5, EOS], drawn)] * 3)
    assert engine.stats().encoded_requests == 3


async def test_cancelling_the_task_frees_slots_and_queue(engine):
    wide = engine.lanes[1].executor
    wide.gate.clear()
    task = asyncio.create_task(generate_group(engine, [([4, 5 + i, EOS], LONG) for i in range(10)]))
    await until(wide.entered.is_set)
    assert engine.stats().waiting_requests == 6
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.stats().waiting_requests == engine.stats().waiting_tokens == 0
    wide.gate.set()
    await until(lambda: engine.stats().active == (0, 0))
    assert wide.diary.count("step") == 1
    assert engine.stats().answered == 0


async def test_the_first_failure_of_a_group_cancels_the_others(engine):
    engine.lanes[0].executor.broken = {"encode"}
    greedy = DecodeOptions(beam_size=1)
    with pytest.raises(ExecutorFailed, match="encode is broken"):
        different = [([4 + i % 10, 4 + i // 10, EOS], LONG) for i in range(20)]
        await generate_group(engine, [*different, ([5, EOS], greedy)])
    await until(lambda: engine.stats().active == (0, 0))
    assert engine.stats().waiting_tokens == 0


async def test_errors_reach_the_awaiting_task(engine):
    with pytest.raises(DeadlineExceeded):
        await generate(engine, [4, EOS], QUICK, deadline=PAST)
    with pytest.raises(InvalidRequest):
        await generate(engine, [], QUICK)
    with pytest.raises(DeadlineExceeded):
        engine.lanes[1].executor.gate.clear()
        deadline = time.monotonic() + 0.05
        threading.Timer(deadline + 0.05 - time.monotonic(), engine.lanes[1].executor.gate.set).start()
        await generate(engine, [4, EOS], LONG, deadline=deadline)
    engine.stop()
    with pytest.raises(Stopping):
        await generate(engine, [4, EOS], QUICK)


async def test_overload_raises_instead_of_waiting():
    engine = Engine([FakeExecutor(MODEL)], EngineSettings(queue_tokens=5))  # never started
    first = asyncio.create_task(generate(engine, [4, 5, EOS], QUICK))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await generate(engine, [4, 5, EOS], QUICK)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert engine.stats().waiting_tokens == 0


def test_a_closed_loop_does_not_raise_into_the_engine(caplog):
    engine = Engine([FakeExecutor(FakeModel(seed=1))])  # turned by hand
    loop = asyncio.new_event_loop()
    task = loop.create_task(generate(engine, [4, 5, EOS], QUICK))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    while engine.stats().answered == 0:
        engine.turn()
    assert engine.stats().active == (0,)
    assert "raised" not in caplog.text
    assert not math.isnan(engine.stats().step_seconds)
    task._log_destroy_pending = False
    task.get_coro().close()


async def test_a_watch_gets_certain_tokens_and_then_each_result(engine):
    g = np.random.default_rng(8)
    jobs = [(cases.source(g, 19), cases.options(g, 19)) for _ in range(60)]
    jobs = [(s, o) for s, o in jobs if cases.expect(MODEL, s, o, 14)]
    told = [[] for _ in jobs]
    results = await generate_group(engine, jobs, watch=lambda job, news: told[job].append(news))
    assert sum(map(len, told)) > len(jobs)
    for news, result, (source, options) in zip(told, results, jobs, strict=True):
        assert news[-1] is result
        cases.same(result.hypotheses, cases.expect(MODEL, source, options, 14), MODEL, source)
        for tokens in news[:-1]:
            assert not isinstance(tokens, Result)
            assert result.hypotheses[0].tokens[: len(tokens)] == tokens


async def test_a_slow_event_loop_gets_the_newest_tokens_only():
    told = []
    newest = UpdateQueue(asyncio.get_running_loop(), lambda job, news: told.append((job, news)))

    def engine_thread():
        for i in range(100):
            newest.put(i % 2, [*range(i)])

    thread = threading.Thread(target=engine_thread)
    thread.start()
    thread.join()  # the loop is blocked until here
    await asyncio.sleep(0)
    assert told == [(0, [*range(98)]), (1, [*range(99)])]
    newest.put(1, [1])
    await asyncio.sleep(0)
    assert told[2:] == [(1, [1])]


async def test_requests_without_a_watch_have_no_progress(engine):
    seen = []
    submit = engine.submit
    engine.submit = lambda group, **named: (seen.extend(group), submit(group, **named))[1]
    await generate(engine, [4, 5, EOS], QUICK)
    assert [request.progress for request in seen] == [None]
