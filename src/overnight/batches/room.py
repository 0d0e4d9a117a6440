"""Whether there is room for another batch: within the limits of its owner, and in the queue."""

from __future__ import annotations

from overnight.domain.errors import CapacityExceeded
from overnight.domain.intake import has_room, waiting
from overnight.domain.limits import Limits
from overnight.domain.owner_limits import RETRY_AFTER, refuse_batch
from overnight.store import batches, intake
from overnight.store.pool import Session


async def refuse_without_room(session: Session, limits: Limits, owner: int, requests: int, *, is_local: bool) -> None:
    """Raise TooManyBatches, TooManyQueued or CapacityExceeded where no batch of so many requests can be taken now.

    0 requests are those of a batch that will be refused: it needs no room. The session must have called
    `batches.serialise_creates`: no other batch joins the queue until it commits. What waits is what the pool shows.
    """
    if not is_local:
        refuse_batch(limits, *await batches.measure_owner(session, owner), requests)
    if requests == 0:
        return
    work = await intake.measure_work(session)
    queued = waiting(work["unanswered"], work["running"], work["ending"])
    if not has_room(queued, requests, limits.intake):
        raise CapacityExceeded(
            f"The queue holds {queued:,} of {limits.intake:,} requests and has no room for {requests:,} more. "
            "Try again later.",
            retry_after=RETRY_AFTER,
        )
