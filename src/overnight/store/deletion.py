"""Deleting: a batch goes in one statement whatever its size, its rows of requests in pieces, or with their day."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg

from overnight.domain import ids
from overnight.store import blocks, rolls
from overnight.store.days import drop_partition, find_partitions_of_gone_days
from overnight.store.files import KEPT_FOR_DOWNLOADS
from overnight.store.pool import Session, Store
from overnight.store.statements import load

_SQL = load("deletion")

ROWS_KEPT_FOR_THEIR_DAY = timedelta(days=2)
"""Rows of batches that ended their time wait so long for the others of their day: dropping a whole day costs a
fraction of deleting its rows. What an owner deletes goes as soon as no download can be under way."""

BATCHES_AT_ONCE = 100
PARTITIONS_AT_ONCE = 6
SEGMENTS_AT_ONCE = 64
ROWS_AT_ONCE = 10_000
ATTEMPTS_AT_ONCE = 1_000


async def lock(session: Session, owner: int, batch_id: UUID) -> int | None:
    """Lock an owner's batch until the transaction ends, and return its number."""
    row = await session.row(_SQL["lock_batch_of_owner"], owner=owner, id=batch_id)
    return None if row is None else row["no"]


async def delete_if_idle(session: Session, batch: int) -> bool:
    """Delete a batch that is locked; False where a living worker holds a part of it."""
    return await session.row(_SQL["delete_batch_if_idle"], batch=batch, rows_kept=KEPT_FOR_DOWNLOADS) is not None


async def delete_after_retention(store: Store) -> list[UUID]:
    """Delete some batches whose time has come, and return their ids."""
    rows = await store.rows(
        _SQL["delete_batches_after_retention"], rows_kept=ROWS_KEPT_FOR_THEIR_DAY, most=BATCHES_AT_ONCE
    )
    return [row["id"] for row in rows]


async def list_deleted(store: Store, batches: Sequence[str]) -> list[str]:
    """Those of some batches, by their public ids, of which it is still known that they were deleted."""
    found = [known for batch in batches if (known := ids.read(ids.BATCH, batch)) is not None]
    return [ids.show(ids.BATCH, row["id"]) for row in await store.rows(_SQL["list_deleted_batches"], ids=found)]


async def remove_some_rows(store: Store) -> bool:
    """Remove a piece of a deleted batch; says whether there was anything to remove."""
    async with store.transaction() as session:
        row = await session.row(_SQL["lock_deleted_batch"])
        if row is None:
            return await session.run(_SQL["forget_deleted_batches"]) > 0
        for delete_some in _PIECES:
            if await delete_some(session, row["no"]):
                return True
        await session.run(_SQL["note_emptied"], batch=row["no"])
    return True


async def _segments(session: Session, batch: int) -> bool:
    return await session.run(_SQL["delete_some_segments"], batch=batch, most=SEGMENTS_AT_ONCE) == SEGMENTS_AT_ONCE


async def _answers(session: Session, batch: int) -> bool:
    return await session.run(_SQL["delete_some_answers"], batch=batch, most=ROWS_AT_ONCE) == ROWS_AT_ONCE


async def _attempts(session: Session, batch: int) -> bool:
    return await session.run(_SQL["delete_some_attempts"], batch=batch, most=ATTEMPTS_AT_ONCE) == ATTEMPTS_AT_ONCE


async def _calls(session: Session, batch: int) -> bool:
    return await session.run(_SQL["delete_some_calls"], batch=batch, most=ROWS_AT_ONCE) == ROWS_AT_ONCE


_PIECES: tuple[Callable[[Session, int], Awaitable[bool]], ...] = (
    _segments,
    blocks.delete_some,
    rolls.delete_some,
    _answers,
    _attempts,
    _calls,
)
"""Each deletes one piece, and says whether there may be more."""


async def drop_gone_days(store: Store) -> int:
    """Drop partitions of days of which no batch is left; return how many. One that is in use is left for later."""
    names = await find_partitions_of_gone_days(store, KEPT_FOR_DOWNLOADS, PARTITIONS_AT_ONCE)
    dropped = 0
    for name in names:
        try:
            await drop_partition(store, name)
        except asyncpg.LockNotAvailableError:
            break
        dropped += 1
    return dropped
