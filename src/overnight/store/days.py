"""Days: the partitions of the tables that hold rows per request, and the database's clock."""

from __future__ import annotations

from datetime import datetime

from overnight.store.pool import Store
from overnight.store.statements import load

_SQL = load("day")

LONGEST_LOCK_WAIT = "2s"
"""Whoever waits for a table holds up everybody who comes after: better to give way and come again."""


async def open_day(store: Store, ahead: int) -> None:
    """Make the partitions for batches created `ahead` days from now, where they are missing.

    Raises asyncpg.LockNotAvailableError where a table was in use for too long.
    """
    async with store.transaction() as session:
        await session.connection.execute(f"SET LOCAL lock_timeout = '{LONGEST_LOCK_WAIT}'")
        await session.row(_SQL["open_day_ahead"], ahead=ahead)


async def read_clock(store: Store) -> datetime:
    """The database's clock, which decides windows and leases."""
    row = await store.row(_SQL["read_clock"])
    assert row is not None
    now: datetime = row["now"]
    return now
