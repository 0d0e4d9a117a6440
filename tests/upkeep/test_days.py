"""The days to come have their partitions before the first batch of the day."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from overnight.store.days import open_day
from overnight.upkeep.days import DropDays, OpenDays
from tests.batches.factory import Factory

TABLES = ("block", "roll", "attempt", "segment", "answer", "call")
ALL_OPEN = {table: [0, 1, 2] for table in TABLES}


@pytest.fixture(autouse=True)
async def of_today(make: Factory) -> None:
    """The database is a copy of one that may have been made before midnight."""
    today = await make.value("SELECT days_since_1970(now())")
    for table in TABLES:
        await make.run(f"DROP TABLE IF EXISTS {table}_{today - 1}")
    for day in (today, today + 1):
        await make.run("SELECT open_day($1)", day)


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


async def open_past(make: Factory, *ago: int) -> list[int]:
    """Open days of the past and return their numbers."""
    days = []
    for n in ago:
        days.append(await make.value("SELECT days_since_1970(now()) - $1::integer", n))
        await make.run("SELECT open_day($1)", days[-1])
    return days


async def drop_all(make: Factory) -> None:
    while await DropDays(make.deps).round():
        pass


async def test_days_without_a_batch_are_dropped_and_yesterday_is_not(make: Factory) -> None:
    await open_past(make, 1, 2, 400)
    await drop_all(make)
    assert await opened(make) == {table: [-1, 0, 1] for table in TABLES}


async def test_a_day_stays_until_its_last_batch_is_gone_and_no_download_of_it_is_under_way(make: Factory) -> None:
    with_batch, lately, long_ago = await open_past(make, 10, 9, 8)
    await make.run(
        "INSERT INTO batch (no, id, owner, target, endpoint, source, status, completion_window, retention)"
        " SELECT $1::bigint << 32, gen_random_uuid(), no, 'chat', '/v1/chat/completions', 'file', 'validating',"
        " '24h', '7 days' FROM account WHERE name = 'local'",
        with_batch,
    )
    for day, since in ((lately, "59 minutes"), (long_ago, "61 minutes")):
        await make.run(
            "INSERT INTO deleted_batch (no, id, owner, deleted_at, rows_go_at)"
            " VALUES (($1::bigint << 32) + 5, gen_random_uuid(), 1, now() - $2::text::interval, now() + '1 day')",
            *(day, since),
        )
    await drop_all(make)
    assert await opened(make) == {table: [-10, -9, 0, 1] for table in TABLES}


async def test_dropping_gives_way_where_a_table_is_in_use_and_comes_again(make: Factory) -> None:
    await open_past(make, 5)
    async with make.open_transaction() as session:
        await session.connection.execute("LOCK TABLE block IN ACCESS SHARE MODE")
        await drop_all(make)
        assert (await opened(make))["block"] == [-5, 0, 1]
    await drop_all(make)
    assert await opened(make) == {table: [0, 1] for table in TABLES}
