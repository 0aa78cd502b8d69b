"""A client that goes takes its work with it, and nothing else."""

import asyncio

import pytest
from starlette.requests import Request

from engine.api import Cancelled
from server.http.parameters import while_connected


class Connection:
    """The ASGI messages of a client that disconnects on request."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def serve(connection, work):
    request = Request({"type": "http", "headers": []}, connection.receive)
    return await while_connected(request, work)


@pytest.mark.parametrize("also_stopped", [False, True])
async def test_a_client_that_goes_has_its_work_cancelled_and_no_more(also_stopped):
    connection, ended = Connection(), []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # work may have to tidy up
            ended.append(True)

    async def route():
        with pytest.raises(Cancelled):
            await serve(connection, work())
        await asyncio.sleep(0)  # the task continues, to record its failure
        return ended

    task = asyncio.create_task(route())
    await asyncio.sleep(0.01)
    connection.gone.set()
    if also_stopped:
        task.cancel()  # a second stop signal is no disconnect of the client
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert await task == [True]
        assert not task.cancelling()
    assert ended == [True]


async def test_an_answer_and_a_failure_come_through_while_the_client_stays():
    connection = Connection()

    async def answer():
        await asyncio.sleep(0)
        return 7

    async def failure():
        raise KeyError("mine")

    assert await serve(connection, answer()) == 7
    with pytest.raises(KeyError, match="mine"):
        await serve(connection, failure())
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
