"""Under which keys of their callers batches were made."""

from __future__ import annotations

from datetime import timedelta

from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("idempotency")

KEPT = timedelta(days=1)
"""After the batch has ended, or was deleted before that."""
PURGED_AT_ONCE = 100


async def find(session: Session, owner: int, key: str) -> Row | None:
    """What an owner made under a key: `request`, `bytes`, and `batch_id`, None where the batch has been deleted."""
    return await session.row(_SQL["find_key"], owner=owner, key=key)


async def remember(session: Session, *, owner: int, key: str, request: bytes, size: int, batch: int) -> None:
    """Note that a batch was made under a key, by a body of `size` bytes with the SHA-256 `request`.

    Raises asyncpg.UniqueViolationError where the key is in use.
    """
    await session.run(_SQL["remember_key"], owner=owner, key=key, request=request, bytes=size, batch=batch)


async def purge_round(store: Store) -> bool:
    """Forget some keys whose time is over; says whether there was anything to do."""
    found = await store.run(_SQL["note_gone"], most=PURGED_AT_ONCE)
    found += await store.run(_SQL["forget_gone"], kept=KEPT, most=PURGED_AT_ONCE)
    found += await store.run(_SQL["forget_ended"], kept=KEPT, most=PURGED_AT_ONCE)
    return found > 0
