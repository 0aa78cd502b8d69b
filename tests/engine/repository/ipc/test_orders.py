"""Orders to an engine process."""

import asyncio

import pytest

from engine.errors import InvalidRequest, UnknownModel
from engine.repository.ipc.orders import Orders
from tests.support.served import open_service


@pytest.mark.parametrize(
    ("verb", "name", "error", "message"),
    [
        ("", "toy-de-en", InvalidRequest, "no order ''"),
        ("reboot", "toy-de-en", InvalidRequest, "no order 'reboot' is known"),
        ("load", "toy-xx-yy", UnknownModel, "toy-xx-yy"),
    ],
)
def test_orders_without_a_meaning_are_refused(verb, name, error, message):
    async def run():
        with pytest.raises(error, match=message):
            await Orders(open_service()).execute(verb, name, None)

    asyncio.run(run())
