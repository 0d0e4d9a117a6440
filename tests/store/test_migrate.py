"""Bringing a database to this version's schema."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from overnight.domain.errors import Unusable
from overnight.store import migrate as module
from overnight.store.migrate import AS_GOOD, Migration, known, migrate


@pytest.fixture
async def connection(database_url: str) -> asyncpg.Connection:
    connected = await asyncpg.connect(database_url)
    yield connected
    await connected.close()


async def test_every_migration_is_applied_once_and_in_order(connection: asyncpg.Connection) -> None:
    first = await migrate(connection)
    second = await migrate(connection)

    assert first == [m.name for m in known()]
    assert [m.number for m in known()] == sorted({m.number for m in known()})
    assert second == []


async def test_two_processes_that_start_at_once_apply_each_migration_once(database_url: str) -> None:
    both = [await asyncpg.connect(database_url) for _ in range(2)]

    done = await asyncio.gather(*(migrate(one) for one in both))

    assert sorted(map(len, done)) == [0, len(known())]
    for one in both:
        await one.close()


async def test_a_database_of_a_newer_version_is_left_alone(connection: asyncpg.Connection) -> None:
    await migrate(connection)
    await connection.execute("INSERT INTO migration (number, name, digest) VALUES (9999, 'future', 'x')")

    with pytest.raises(Unusable, match="newer Overnight"):
        await migrate(connection)


async def test_a_migration_that_was_edited_after_it_was_applied_is_refused(connection: asyncpg.Connection) -> None:
    await migrate(connection)
    await connection.execute("UPDATE migration SET digest = 'other' WHERE number = 1")

    with pytest.raises(Unusable, match="differs"):
        await migrate(connection)


async def test_a_migration_that_fails_leaves_nothing_and_does_not_block_the_next_start(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = known()
    broken = Migration(9998, "9998_pre_broken.sql", "CREATE TABLE half_made (); SELECT 1 / 0;")
    monkeypatch.setattr(module, "known", lambda: [*whole, broken])

    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(connection)

    assert await connection.fetchval("SELECT to_regclass('half_made')") is None
    monkeypatch.setattr(module, "known", lambda: whole)
    assert await migrate(connection) == []


async def test_a_migration_gives_way_to_those_who_use_its_table(
    connection: asyncpg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(connection)
    whole = known()
    change = Migration(9998, "9998_pre_change.sql", "ALTER TABLE batch ADD COLUMN colour text;")
    monkeypatch.setattr(module, "known", lambda: [*whole, change])
    monkeypatch.setattr(module, "LOCK_TIMEOUT", "50ms")
    user = await asyncpg.connect(database_url)

    async with user.transaction():
        await user.fetch("SELECT no FROM batch LIMIT 1")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await migrate(connection)

    assert await migrate(connection) == [change.name]
    await user.close()


async def test_a_database_whose_first_migration_had_a_column_more_is_brought_to_the_same_schema(
    database_url: str,
) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await migrate(connection)
        (digest,) = AS_GOOD
        await connection.execute("UPDATE migration SET digest = $1 WHERE number = 1", digest)
        await connection.execute("DELETE FROM migration WHERE number = 8")
        assert await migrate(connection) == ["0008_pre_lacks.sql"]
        assert await migrate(connection) == []
    finally:
        await connection.close()
