"""Whether the queue has room for another batch."""

from __future__ import annotations

from overnight.domain.limits import ALMOST_FULL, SMALL


def has_room(waiting: int, more: int, capacity: int) -> bool:
    """Say whether `more` requests may join the `waiting` ones: all of them or none.

    In a queue that is almost full the rest is kept for small batches, so that one large batch, which would have
    to wait for most of the night anyway, does not shut out all others.
    """
    if waiting + more > capacity:
        return False
    return waiting <= ALMOST_FULL * capacity or more <= SMALL * capacity
