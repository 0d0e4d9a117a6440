"""The days to come have their partitions before the first batch of the day."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from overnight.store.days import open_day
from overnight.upkeep.days import OpenDays
from tests.batches.factory import Factory

TABLES = ("block", "attempt", "segment", "answer", "call")
ALL_OPEN = {table: [0, 1, 2] for table in TABLES}


async def opened(make: Factory) -> dict[str, list[int]]:
    """Table → the days that are open, counted from today."""
    found: dict[str, list[int]] = {}
    today = await make.value("SELECT days_since_1970(now())")
    for table in TABLES:
        names = await make.value(
            "SELECT array_agg(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = $1::text::regclass", table
        )
        found[table] = sorted(int(name.rpartition("_")[2]) - today for name in names)
    return found


async def test_today_and_the_next_two_days_are_open(make: Factory) -> None:
    today = await make.value("SELECT days_since_1970(now())")
    for table in TABLES:
        await make.run(f"DROP TABLE {table}_{today}")
    assert await OpenDays(make.deps).round() is False
    assert await opened(make) == ALL_OPEN
    await OpenDays(make.deps).round()
    assert await opened(make) == ALL_OPEN


async def test_several_processes_may_open_a_day_at_once(make: Factory) -> None:
    await asyncio.gather(*(OpenDays(make.deps).round() for _ in range(4)))
    assert await opened(make) == ALL_OPEN


async def test_opening_gives_way_where_a_table_is_in_use_for_long(make: Factory) -> None:
    async with make.open_transaction() as session:
        await session.connection.execute("LOCK TABLE answer IN SHARE MODE")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await open_day(make.store, 5)
    assert 5 not in (await opened(make))["block"]
    await open_day(make.store, 5)
    assert (await opened(make))["block"] == [0, 1, 5]
