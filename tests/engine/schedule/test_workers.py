"""Workers: processes for the work on long texts, which can be killed."""

import asyncio
import dataclasses
import gc
import math
import os
import shutil
import signal
import sys
import time
from contextvars import ContextVar
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
import pytest_asyncio

from engine.answers.answer import plan_texts, settle_each
from engine.answers.options import TextOptions
from engine.errors import DeadlineExceeded, InvalidRequest, Overloaded, TooLarge
from engine.schedule import workers as module
from engine.schedule.aio import generate_group
from engine.schedule.slices import at_once
from engine.schedule.values import CHUNK, OBJECT, decode, decode_slices, encode, encode_slices
from engine.schedule.workers import WorkerFigures, Workers, run_work
from engine.types import Hypothesis, Timings
from tests.support import heavy_work
from tests.support.callbacks import LongestCallback
from tests.support.served import LINES, running
from tests.support.timing import ATTEMPTS

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="module")
def service():
    with running() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared():
    """Workers of all tests, as their template takes long to start."""
    one = Workers()
    yield one
    await one.close()


@pytest.fixture
def workers(shared):
    """The shared workers with new figures and no worker."""
    shared.figures = WorkerFigures()
    while shared._idle:
        one = shared._idle.pop()
        one.writer.close()
        os.kill(one.pid, signal.SIGKILL)
    if shared._sweeping:
        shared._sweeping.cancel()
        shared._sweeping = None
    return shared


def run(workers, work, *arguments, deadline=math.inf, characters=0):
    return workers.run(work, *arguments, deadline=deadline, characters=characters)


def is_alive(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def same(one, other):
    """Return whether two values are equal bit for bit, with equal types."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one == other


VALUES = [
    [1, "a", None, 2.5, b"\0", True, 1 << 60],
    ((1, 2), [(3,)], [], (), frozenset({"x"})),
    {1: ["a"], "b": {"c": (1,)}},
    np.arange(6, dtype=np.float32).reshape(2, 3).T,
    np.zeros((0, 4), np.int64),
    [np.float64(0.1)],
    Hypothesis([1], -0.5, [0.25], "stop", np.eye(2, dtype=np.float32)),
    TextOptions(decode={"beam_size": 2}, ignore=("a",)),
    Timings(0.1, 0.2, 0.3, 4),
]


async def test_values_return_unchanged_from_a_worker(workers):
    for value in VALUES:
        assert same(decode(encode(value)), value), value
        assert same(await run(workers, heavy_work.echo, value), value), value


async def test_message_of_a_worker_names_no_function_and_no_foreign_class():
    for value in (shutil.rmtree, partial(shutil.rmtree, "/nowhere")):
        with pytest.raises(ValueError, match="names"):
            decode(encode(value))
        assert decode(encode(value), calls=True)
    for name in ("subprocess:Popen", "engine.schedule.workers:Workers", "engine.nothing:Here"):
        with pytest.raises(ValueError, match="names|not a message"):
            decode(msgspec.msgpack.encode([OBJECT, name, []]))
    with pytest.raises(TypeError, match="Event"):
        encode(asyncio.Event())


async def test_endless_work_is_killed_and_others_go_on(workers, monkeypatch):
    monkeypatch.setattr(module, "BUDGET_SECONDS", 0.5)
    endless = asyncio.create_task(run(workers, heavy_work.spin))
    for number in range(20):
        assert await run(workers, heavy_work.echo, number) == number
    with pytest.raises(TooLarge, match="more than 0.5 s of processor time"):
        await endless
    assert workers.figures.killed == {"time": 1}
    assert workers.oldest() == 0
    assert await run(workers, heavy_work.echo, "replaced") == "replaced"


async def test_work_without_enough_memory_is_refused(workers):
    with pytest.raises(TooLarge, match="too much memory"):
        await run(workers, heavy_work.swallow)
    assert await run(workers, heavy_work.echo, 1) == 1


async def test_deadline_and_cancellation_kill_the_worker(workers):
    await run(workers, heavy_work.echo, 1)  # the worker has started before the deadline
    with pytest.raises(DeadlineExceeded):
        await run(workers, heavy_work.spin, deadline=time.monotonic() + 0.3)
    task = asyncio.create_task(run(workers, heavy_work.spin))
    while not workers.oldest():
        await asyncio.sleep(0.01)
    (busy,) = workers._busy
    assert is_alive(busy.pid)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not is_alive(busy.pid)
    assert workers.figures.killed == {"abandoned": 2}
    assert workers.count == 0


async def test_errors_of_work_reach_its_caller(workers):
    with pytest.raises(InvalidRequest, match="by design"):
        await run(workers, heavy_work.refuse)
    with pytest.raises(RuntimeError, match="KeyError: 'a bug'"):
        await run(workers, heavy_work.fail)
    with pytest.raises(ValueError, match="names the function"):
        await run(workers, heavy_work.call_back)


async def test_work_waits_for_a_worker_until_its_deadline():
    few = Workers(1)
    task = asyncio.create_task(run(few, heavy_work.spin))
    while not few.oldest():
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(run(few, heavy_work.echo, 1, deadline=time.monotonic() + 0.5))
    while not few.figures.waiting:
        await asyncio.sleep(0)
    assert (few.figures.waiting, few.count) == (1, 1)
    with pytest.raises(DeadlineExceeded):
        await waiting
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await run(few, heavy_work.echo, 2) == 2
    assert few.figures.waiting == 0
    await few.close()


async def test_one_owner_leaves_a_worker_for_others():
    owner = ContextVar("owner")
    few = Workers(2, share=1, owner=owner.get)

    async def work(name, kind):
        owner.set(name)
        return await run(few, kind)

    many = [asyncio.create_task(work("many", heavy_work.spin)) for _ in range(2)]
    while not few.oldest():
        await asyncio.sleep(0.01)
    with pytest.raises(InvalidRequest, match="by design"):
        await asyncio.create_task(work("few", heavy_work.refuse))
    assert (few.figures.waiting, len(few._busy)) == (1, 1)
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    await few.close()


async def test_worker_after_long_work_is_replaced_as_its_priority_is_low(workers):
    await run(workers, heavy_work.echo, 1)
    (first,) = workers._idle
    await run(workers, heavy_work.take, 0.4)
    assert not is_alive(first.pid)
    assert workers.figures.longest >= 0.25


async def test_idle_workers_end(workers, monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.1)
    await run(workers, heavy_work.echo, 1)
    (idle,) = workers._idle
    while is_alive(idle.pid):
        await asyncio.sleep(0.02)
    assert workers.count == 0


async def test_killed_template_and_workers_are_replaced(workers):
    await run(workers, heavy_work.echo, 1)
    (idle,) = workers._idle
    template, _ = workers._template
    os.kill(template.pid, signal.SIGKILL)
    template.wait()
    os.kill(idle.pid, signal.SIGKILL)
    while not idle.reader.at_eof():
        await asyncio.sleep(0.01)
    assert await run(workers, heavy_work.echo, 2) == 2


async def test_closing_ends_all_processes():
    own = Workers()
    task = asyncio.create_task(run(own, heavy_work.spin))
    while not own.oldest():
        await asyncio.sleep(0.01)
    pids = [own._template[0].pid, *(worker.pid for worker in own._busy)]
    await own.close()
    await asyncio.gather(task, return_exceptions=True)
    while any(map(is_alive, pids)):
        await asyncio.sleep(0.01)


async def test_long_lists_are_written_and_read_in_slices():
    value = [[Timings(n, 0.0, 0.0, 0.0), {"n": (n, [str(n)])}] for n in range(1_000)]
    for lists in (1, 100):  # one long list, and many long ones
        nested = [value[: len(value) // lists]] * lists
        slices = encode_slices(nested)
        yields, message = counted(slices)
        assert yields >= (len(value) // lists // CHUNK) * lists
        assert message == encode(nested)
        yields, again = counted(decode_slices(message))
        assert yields >= (len(value) // lists // CHUNK) * lists
        assert again == nested


def counted(slices):
    """Return the number of slices, and the value."""
    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return count, done.value
        count += 1


async def test_event_loop_runs_while_a_long_message_is_written_and_read(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(asyncio.Handle, "_run", asyncio.Handle._run)  # restored at the end
    longest = LongestCallback(tmp_path / "longest")
    longest.record()
    value = [Timings(float(n), 0.0, 0.0, 0.0) for n in range(50_000)]
    assert await run(workers, heavy_work.echo, value[:1]) == value[:1]
    used = time.thread_time()
    message = encode(value)
    used = time.thread_time() - used

    gc.disable()  # a collection of the objects of other tests takes longer
    try:
        for _ in range(ATTEMPTS):
            longest.seconds = 0.0
            assert await run(workers, heavy_work.echo, value, characters=100_000) == value
            if longest.seconds < used / 2:
                return
    finally:
        gc.enable()
    raise AssertionError(f"a callback takes {longest.seconds:.3f} s, {len(message)} bytes {used:.3f} s")


async def test_short_work_needs_no_worker(workers):
    assert await run_work(workers, heavy_work.echo, 1, deadline=math.inf, characters=2_000) == 1
    assert workers.count == 0
    assert await run_work(workers, heavy_work.echo, 2, deadline=math.inf, characters=2_001) == 2
    assert workers.count == 1
    assert await run_work(None, heavy_work.echo, 3, deadline=math.inf, characters=2_001) == 3


async def test_plans_and_answers_of_a_worker_equal_those_of_this_process(workers, service):
    stage = service.repository.loaded["toy-de-en"]
    texts = [" ".join(LINES[:40]), "Das *ist* 12,50 € (gut) und „schön“. " * 20]
    options = TextOptions(protect=True, follow_form=True, local_numbers=True, alignment=True)
    work = stage.text, stage.engine.settings, texts, options
    plans = at_once(plan_texts(*work))
    assert same(await run(workers, plan_texts, *work), plans)
    results = await generate_group(stage.engine, [job for one in plans for job in one.jobs], math.inf)
    rest = iter(results)
    pairs = [(one, [next(rest) for _ in one.jobs]) for one in plans]
    assert same(await run(workers, settle_each, stage.text, pairs), at_once(settle_each(stage.text, pairs)))


async def test_replaced_bundle_is_no_other_model(workers, service):
    text = service.repository.loaded["toy-de-en"].text
    other = dataclasses.replace(text, bundle=(text.bundle[0], "0" * 64))
    with pytest.raises(Exception, match="was replaced"):
        await run(workers, settle_each, other, [])


async def test_overload_keeps_its_message():
    assert str(module._error_of("engine.errors:Overloaded", "full")) == "full"
    assert isinstance(module._error_of("engine.errors:Overloaded", "full"), Overloaded)
