"""Models in other processes: equal answers, retries, and no request without an answer if a process dies."""

import asyncio
import contextlib
import shutil
import socket
import struct
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Service, TextOptions
from engine.errors import DeadlineExceeded, InvalidRequest, Overloaded, Unavailable, UnknownModel, WouldBeLate
from engine.repository.ipc.frames import MAX_FRAME_BYTES, FrameConnection
from engine.repository.ipc.messages import (
    Cancel,
    FromEngine,
    NumberTable,
    ToEngine,
    error_of,
    reply_of,
    result_of,
)
from engine.schedule.aio import generate_group
from engine.types import NO_TIME, DecodeJob, DecodeOptions, Hypothesis, Result, Timings
from tests.engine.repository.ipc.conftest import SETTINGS, Hosted, engine_of, refusal
from tests.server.test_reload import NAME, rewritten
from tests.support.served import bundles, until

LONG = DecodeOptions(beam_size=4, min_length=2000, max_length=2000, max_length_b=2000)


def busy(service):
    stats = service.stats()[NAME]
    return stats.waiting_requests + sum(stats.active)


async def test_answers_streams_and_errors_equal_those_of_a_local_service(hosted):
    place, texts = hosted(1), ["Das ist gut.", "Es war einmal ein König. Er war alt.", "Ja" * 40]
    options_list = [
        TextOptions(),
        TextOptions(alignment=True),
        TextOptions(decode={"sampling": True, "seed": 3}),
    ]
    options_list += [TextOptions(decode={"beam_size": 9}), TextOptions(alternatives=2, coverage=True)]
    here = Service.open([place.models], SETTINGS)
    here.start()

    async def outcome(service, options):
        found = await refusal(service.run(NAME, texts, options))
        if isinstance(found, Exception):
            return type(found), str(found)
        return [replace(one, timings=NO_TIME, alignment=[]) for one in found], [
            (a.source, a.target, np.asarray(a.matrix).tolist()) for one in found for a in one.alignment
        ]

    async with place.connected() as there:
        for options in options_list:
            assert await outcome(there, options) == await outcome(here, options)
        stream = [event async for event in there.stream(NAME, texts)]
        (whole,) = [event for event in stream if isinstance(event, list)]
        assert [one.text for one in whole] == [one.text for one in await here.run(NAME, texts)]
        assert len(stream) > 1
        late = there.run(NAME, texts, deadline=time.monotonic() - 1)
        assert isinstance(await refusal(late), DeadlineExceeded | WouldBeLate)
        with pytest.raises(UnknownModel):
            await there.run("nobody", texts)
        with pytest.raises(UnknownModel):
            await asyncio.to_thread(there.reload, "nobody")
    here.stop(drain=False, timeout=5)


async def test_a_full_queue_refuses_whole_groups_with_retry_after(hosted):
    async with hosted(1).connected() as service:
        jobs = [DecodeJob([5] * 18 + [n, 2], LONG) for n in range(5, 45)]
        groups = [asyncio.create_task(refusal(generate_group(engine_of(service), jobs))) for _ in range(6)]
        refused = [await groups[number] for number in range(2, 6)]
        assert all(isinstance(one, Overloaded) and one.retry_after >= 1 for one in refused), refused
        assert not any(group.done() for group in groups[:2])
        for group in groups[:2]:
            group.cancel()
        await asyncio.gather(*groups, return_exceptions=True)
        while busy(service):
            await asyncio.sleep(0.01)
            await service.run(NAME, ["Ja."])  # answers carry the load
        assert engine_of(service).stats().waiting_requests == 0, "cancelled requests are not waited for"


async def test_requests_go_to_the_less_busy_process_and_are_retried_if_one_dies(hosted):
    place = hosted(2)
    async with place.connected() as service:
        jobs = [
            DecodeJob([5, 6, 2], replace(LONG, min_length=1000, max_length=1000, seed=n)) for n in range(4)
        ]
        alone = await generate_group(engine_of(service), jobs[:1])
        groups = [asyncio.create_task(generate_group(engine_of(service), [job])) for job in jobs]
        connections = service._connections.connections
        while sum(len(connection._groups) for connection in connections) < 4:
            await asyncio.sleep(0)
        assert [len(connection._groups) for connection in connections] == [2, 2]
        place.kill(0)
        results = await asyncio.wait_for(asyncio.gather(*groups), 600)
        assert [r[0].hypotheses[0].tokens for r in results] == [alone[0].hypotheses[0].tokens] * 4
        assert service.healthy()
        place.kill(1)
        gone = await refusal(generate_group(engine_of(service), jobs))
        assert (type(gone), gone.retry_after) == (Unavailable, 1.0)
        assert not service.healthy()
        place.start(0)
        while not service.healthy():
            await asyncio.sleep(0.01)
        assert (await service.run(NAME, ["Das ist gut."]))[0].text


async def test_a_streamed_request_is_not_retried_by_another_process(hosted):
    place, streamed = hosted(2), asyncio.Event()
    async with place.connected() as service:
        job = DecodeJob([5, 6, 2], LONG)
        watch = asyncio.create_task(
            refusal(generate_group(engine_of(service), [job], watch=lambda *_: streamed.set()))
        )
        await streamed.wait()
        busy_process = next(
            n for n, connection in enumerate(service._connections.connections) if connection._groups
        )
        place.kill(busy_process)
        assert isinstance(await asyncio.wait_for(watch, 600), Unavailable)


async def test_only_the_requests_of_a_disconnected_front_end_are_cancelled(hosted):
    place = hosted(1)
    async with place.connected() as here, place.connected() as gone:
        own = asyncio.create_task(generate_group(engine_of(here), [DecodeJob([5, 6, 2], LONG)]))
        jobs = [DecodeJob([n, 2], LONG) for n in range(5, 17)]
        lost = asyncio.create_task(refusal(generate_group(engine_of(gone), jobs)))
        while busy(here) < 13:
            await asyncio.sleep(0.01)
            await here.run(NAME, ["Ja."], TextOptions(decode={"beam_size": 1}))
        gone._connections.close()
        assert isinstance(await lost, Unavailable)
        while busy(here) > 1:
            await asyncio.sleep(0.01)
            await here.run(NAME, ["Ja."], TextOptions(decode={"beam_size": 1}))
        assert len((await own)[0].hypotheses[0].tokens) == 2000


async def test_a_reload_fails_no_request_of_either_bundle_and_frees_the_old_one(hosted):
    place = hosted(1)
    async with place.connected() as first, place.connected() as second:
        old = (await first.run(NAME, ["Das ist gut."]))[0].text
        rewritten(place.models / NAME, lambda weights: -weights)
        info = await asyncio.to_thread(first.reload, NAME)
        assert len(first._connections.offered()[NAME][0].digests) == 2
        assert (await second.run(NAME, ["Das ist gut."]))[0].text == old
        new = (await first.run(NAME, ["Das ist gut."]))[0].text
        assert new != old
        await asyncio.to_thread(second.follow, NAME, info.digest)
        assert (await second.run(NAME, ["Das ist gut."]))[0].text == new
        await asyncio.to_thread(first.settle, NAME)
        while len(first._connections.offered()[NAME][0].digests) > 1:
            await asyncio.sleep(0.01)
        shutil.rmtree(place.models / NAME / "onnx")
        with pytest.raises(Exception, match="onnx"):
            await asyncio.to_thread(first.reload, NAME)
        assert (await first.run(NAME, ["Das ist gut."]))[0].text == new


# frames and messages


def hostile():
    """Draw invalid frames: bytes, msgpack of a wrong shape, unknown numbers, huge sizes."""
    value = st.recursive(
        st.none() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )
    tagged = st.tuples(st.integers(0, 14), st.lists(value, max_size=9)).map(lambda pair: [pair[0], *pair[1]])
    group = st.tuples(st.integers(), st.integers(), st.just([[5, 2]]), st.just([3]), st.just([0, 0, 7]))
    groups = group.map(lambda values: [3, *values, None, True, False])
    messages = st.lists(tagged | groups | value, max_size=3)
    sized = messages.map(msgspec.msgpack.encode).map(lambda body: struct.pack(">I", len(body)) + body)
    heads = st.sampled_from([b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
    liars = heads.map(lambda head: struct.pack(">I", len(head)) + head)
    return sized | liars | st.binary(max_size=40) | st.just(struct.pack(">I", MAX_FRAME_BYTES + 1))


@pytest.fixture(scope="module")
def listening(tmp_path_factory):
    """A process that hosts a bundle."""
    folder = tmp_path_factory.mktemp("listening")
    shutil.copytree(bundles() / NAME, folder / "models" / NAME)
    place = Hosted(folder, folder / "models", 1)
    until(place.paths[0].exists)
    yield place
    place.processes[0].kill()
    place.processes[0].join()


@given(st.lists(hostile(), min_size=1, max_size=3))
def test_a_host_survives_any_bytes(listening, frames):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(listening.paths[0]))
        with contextlib.suppress(OSError):  # it may have hung up already
            connection.sendall(b"".join(frames))
    assert listening.processes[0].is_alive()


async def test_the_host_still_answers_after_invalid_frames(listening):
    async with listening.connected() as service:
        assert (await service.run(NAME, ["Das ist gut."]))[0].text


@asynccontextmanager
async def connected_frames(*values):
    """Yield a connection, and the socket of its peer."""
    own, other = socket.socketpair()
    connect = asyncio.get_running_loop().create_connection
    _, end = await connect(lambda: FrameConnection(*values), sock=own)
    try:
        yield end, other
    finally:
        end.close()
        await asyncio.sleep(0)
        other.close()


@given(st.sampled_from([ToEngine, FromEngine]), st.binary(max_size=200), st.integers(1, 50))
def test_a_connection_survives_any_bytes_and_is_lost_once(kind, data, size):
    async def feed():
        lost = []
        async with connected_frames(kind, lambda messages: None, lambda: lost.append(True)) as (end, _):
            for start in range(0, len(data), size):
                piece = data[start : start + size]
                end.get_buffer(-1)[: len(piece)] = piece
                end.buffer_updated(len(piece))
        while not lost:
            await asyncio.sleep(0)
        return lost

    assert asyncio.run(feed()) == [True]


async def test_a_connection_is_closed_at_the_head_of_a_frame_that_is_too_large():
    for size, hung_up in ((MAX_FRAME_BYTES, []), (MAX_FRAME_BYTES + 1, [True])):
        lost = []
        async with connected_frames(
            FromEngine, lambda messages: None, lambda lost=lost: lost.append(True)
        ) as (end, _):
            end.get_buffer(-1)[:4] = struct.pack(">I", size)
            end.buffer_updated(4)
            await asyncio.sleep(0)
            assert lost == hung_up


async def test_messages_of_threads_arrive_in_order_although_the_peer_reads_late():
    async with connected_frames(ToEngine, lambda messages: None, lambda: None) as (end, other):
        senders = [
            asyncio.to_thread(
                lambda group=group: [end.send_now([Cancel(group, [job])]) for job in range(30_000)]
            )
            for group in range(2)
        ]
        await asyncio.gather(*senders)
        assert end.slow
        end.send(Cancel(2, [0]))
        other.setblocking(False)
        data, jobs = b"", [[], [], []]
        while not jobs[2]:
            data += await asyncio.get_running_loop().sock_recv(other, 1 << 20)
            while len(data) >= 4 and len(data) >= (end_of := 4 + int.from_bytes(data[:4], "big")):
                for message in msgspec.msgpack.decode(data[4:end_of], type=list[ToEngine]):
                    jobs[message.group] += message.jobs
                data = data[end_of:]
        assert jobs == [[*range(30_000)], [*range(30_000)], [0]]
        assert not end.slow


floats = st.floats(allow_nan=False)


@given(st.lists(st.tuples(st.lists(st.integers(0, 2**31)), floats, st.lists(floats), st.integers(0, 3))))
def test_results_survive_encoding_and_decoding(rows):
    attentions = [np.full((n, 4), 0.25, np.float32) if n else None for *_, n in rows]
    result = Result(
        [Hypothesis(t, s, ts, "stop", a) for (t, s, ts, _), a in zip(rows, attentions, strict=True)],
        Timings(0.5, 0.25, 1.0, 7),
    )
    data = msgspec.msgpack.encode(reply_of(3, 4, result))
    found = result_of(msgspec.msgpack.decode(data, type=FromEngine))
    assert found.timings == result.timings
    for one, other in zip(found.hypotheses, result.hypotheses, strict=True):
        assert (one.tokens, one.score, one.token_scores) == (other.tokens, other.score, other.token_scores)
        assert (one.attention is None) == (other.attention is None)
        assert np.array_equal(one.attention, other.attention) or one.attention is None


def test_errors_keep_their_class_and_retry_after():
    for error in (InvalidRequest("a"), WouldBeLate("b", 2.5), Unavailable("c"), Unavailable("d", 1.0)):
        message = reply_of(1, 0, error)
        found = error_of(message.code, message.message, message.retry_after)
        assert (type(found), str(found)) == (type(error), str(error))
        assert getattr(found, "retry_after", None) == getattr(error, "retry_after", None)


@given(st.integers(1, 8), st.lists(st.integers(0, 12)))
def test_a_number_table_reuses_its_numbers_and_announces_each_new_key(count, keys):
    numbers, known = NumberTable(count), {}
    for key in keys:
        number, is_new = numbers.number_of(key)
        assert 0 <= number < count
        if is_new:
            known[number] = key
        assert known[number] == key
