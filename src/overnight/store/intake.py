"""The queue of the whole deployment as it is stored: what waits and what runs."""

from __future__ import annotations

from datetime import timedelta

from overnight.store.life import MAY_START_WITHIN
from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("intake")
_FRESH = timedelta(seconds=MAY_START_WITHIN)


async def measure_work(session: Session) -> Row:
    """Requests `unanswered` of batches that may start more, `running` of all, `ending` of those that may not."""
    row = await session.row(_SQL["measure_work"], fresh=_FRESH)
    assert row is not None
    return row


async def measure_pool(store: Store) -> Row:
    """The same with the `slots`, the unfinished `batches`, and `oldest_waiting_seconds`."""
    row = await store.row(_SQL["measure_pool"], fresh=_FRESH)
    assert row is not None
    return row
