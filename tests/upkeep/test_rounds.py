"""The rounds of one process, and how often they look."""

from __future__ import annotations

import asyncio

from overnight.domain.states import Status
from overnight.upkeep.rounds import paced, rounds
from tests.batches.factory import Factory, lines


async def test_all_rounds_of_an_idle_deployment_find_nothing(make: Factory) -> None:
    names = []
    for name, one_round, every in rounds(make.deps):
        names.append(name)
        assert (every() if callable(every) else every) > 0
        assert await one_round() is False, name
    assert set(names) == {
        "validate", "seal", "follow", "expire", "foresee", "watch queued", "rescue", "purge", "open days", "drop days",
    }  # fmt: skip


async def test_a_batch_goes_its_way_through_the_rounds(make: Factory) -> None:
    batch = await make.batch(lines(2))
    by_name = {name: one_round for name, one_round, _ in rounds(make.deps)}
    assert await by_name["validate"]() is True
    await make.answer_all(batch)
    assert await by_name["seal"]() is True
    assert (await make.look(batch)).status is Status.COMPLETED


async def test_a_round_that_looked_in_vain_waits_however_often_it_is_woken() -> None:
    looks = 0

    async def look() -> bool:
        nonlocal looks
        looks += 1
        return looks < 3

    slower = paced(look, 3_600.0)
    while await slower():
        pass
    assert looks == 3
    again = asyncio.ensure_future(slower())
    for _ in range(20):
        await asyncio.sleep(0)
    assert looks == 3
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
    assert again.cancelled()


async def test_a_round_that_failed_may_come_again_at_once() -> None:
    looks = 0

    async def look() -> bool:
        nonlocal looks
        looks += 1
        raise ConnectionError

    slower = paced(look, 3_600.0)
    for _ in range(2):
        assert [type(e) for e in await asyncio.gather(slower(), return_exceptions=True)] == [ConnectionError]
    assert looks == 2
