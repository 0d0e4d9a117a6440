"""Cancel a batch: what has not started never will, what runs may finish."""

from __future__ import annotations

from overnight.batches import find
from overnight.batches.shape import BatchView
from overnight.domain import events, ids
from overnight.store import batches
from overnight.store.pool import Store


async def cancel(store: Store, owner: int, batch_id: str) -> BatchView:
    """Cancel an owner's batch and return it; one that is ending or has ended is returned as it is.

    Writes one row, whatever the size of the batch. Raises BatchNotFound.
    """
    known = ids.read(ids.BATCH, batch_id)
    if known is None:
        raise find.not_found(batch_id)
    async with store.session() as session:
        number = await batches.find_place(session, owner, known)
        is_ours = number is not None and await batches.cancel_if_unfinished(session, owner, number)
        view = await find.in_session(session, owner, known)
    if view is None:
        raise find.not_found(batch_id)
    if is_ours:
        events.tell("batch_cancelling", batch=view.public_id, unanswered=view.counts.unanswered)
    return view
