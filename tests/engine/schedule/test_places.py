"""Places that owners of work share."""

import asyncio

import pytest

from engine.schedule.places import Places

pytestmark = pytest.mark.asyncio


async def order_of(places, owners, gone=()):
    """Return the order in which requests get one place after the other. Those in `gone` are cancelled."""
    order = []

    async def work(owner):
        async with places.turn(owner):
            order.append(owner)
            await asyncio.sleep(0)

    async with places.turn("first"):
        tasks = [asyncio.create_task(work(owner)) for owner in owners]
        await asyncio.sleep(0)
        for number in gone:
            tasks[number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return order


async def test_owners_take_turns_for_a_place():
    places = Places(1)
    owners = ("many", "many", "many", "gone", "small")
    assert await order_of(places, owners, gone=[3]) == ["many", "small", "many", "many"]
    async with places.turn("again"):
        assert places._free == 0
    assert (places._free, places.waiting, dict(places._held)) == (1, 0, {})


async def test_request_that_gave_up_takes_no_place():
    places = Places(1)
    assert await order_of(places, ("a", "b"), gone=[0, 1]) == []
    held = asyncio.Event()

    async def hold():
        async with places.turn("a"):
            await held.wait()

    tasks = [asyncio.create_task(hold()) for _ in range(2)]
    await asyncio.sleep(0)
    held.set()
    tasks[0].cancel()  # while it holds the place
    await asyncio.gather(*tasks, return_exceptions=True)
    assert places._free == 1


async def test_one_owner_leaves_places_for_others():
    places, holding, over = Places(4, share=3), [], asyncio.Event()

    async def hold(owner):
        async with places.turn(owner):
            holding.append(owner)
            await over.wait()

    many = [asyncio.create_task(hold("many")) for _ in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert holding == ["many"] * 3
    assert (places._free, places.waiting) == (1, 3)
    few = [asyncio.create_task(hold(owner)) for owner in ("few", "late", "few")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert holding == ["many"] * 3 + ["few"]
    many[0].cancel()
    await asyncio.gather(many[0], return_exceptions=True)
    await asyncio.sleep(0)
    assert holding[4:] == ["late"], "of the waiting owners the one that holds fewest"
    over.set()
    await asyncio.gather(*many, *few, return_exceptions=True)
    assert places._free == 4
