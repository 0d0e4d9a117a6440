"""Delete a batch with its requests and results."""

from __future__ import annotations

from overnight.batches import find
from overnight.domain import events, ids
from overnight.domain.errors import BatchRunning
from overnight.store import deletion
from overnight.store.pool import Store


async def delete(store: Store, owner: int, batch_id: str) -> None:
    """Delete an owner's batch for good; its result files are gone with it, an input file stays.

    Writes a few rows, whatever the size. An answer that comes later is dropped. Raises BatchNotFound, and
    BatchRunning where a living worker holds requests of it.
    """
    known = ids.read(ids.BATCH, batch_id)
    if known is None:
        raise find.not_found(batch_id)
    async with store.transaction() as session:
        number = await deletion.lock(session, owner, known)
        if number is None:
            raise find.not_found(batch_id)
        if not await deletion.delete_if_idle(session, number):
            raise BatchRunning(
                f"Requests of {batch_id} are running. Cancel it, or pause it, wait until nothing of it runs, "
                "and delete it then."
            )
    events.tell("batch_deleted", batch=batch_id)
