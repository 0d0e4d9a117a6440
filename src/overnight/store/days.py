"""Days: the partitions of the tables that hold rows per request, and the database's clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from overnight.store.pool import Store
from overnight.store.statements import load

_SQL = load("day")

LONGEST_LOCK_WAIT = "2s"
"""Whoever waits for a table holds up everybody who comes after: better to give way and come again."""

SHORT_LOCK_WAIT = "200ms"
"""For what can wait for days itself: shorter than the time after which PostgreSQL ends one of two in a deadlock."""


async def open_day(store: Store, ahead: int) -> None:
    """Make the partitions for batches created `ahead` days from now, where they are missing.

    Raises asyncpg.LockNotAvailableError where a table was in use for too long.
    """
    async with store.transaction() as session:
        await session.ask(session.connection.execute, f"SET LOCAL lock_timeout = '{LONGEST_LOCK_WAIT}'")
        await session.row(_SQL["open_day_ahead"], ahead=ahead)


async def read_clock(store: Store) -> datetime:
    """The database's clock, which decides windows and leases."""
    row = await store.row(_SQL["read_clock"])
    assert row is not None
    now: datetime = row["now"]
    return now


async def find_partitions_of_gone_days(store: Store, kept: timedelta, most: int) -> list[str]:
    """Partitions of past days of which no batch is left, nor one that was deleted less than `kept` ago."""
    rows = await store.rows(_SQL["find_partitions_of_gone_days"], kept=kept, most=most)
    return [row["name"] for row in rows]


async def drop_partition(store: Store, name: str) -> None:
    """Drop one partition, in a transaction of its own: holding several tables at once could end in a deadlock.

    Raises asyncpg.LockNotAvailableError where it or its table is in use.
    """
    async with store.transaction() as session:
        await session.ask(session.connection.execute, f"SET LOCAL lock_timeout = '{SHORT_LOCK_WAIT}'")
        await session.row(_SQL["drop_partition"], name=name)
