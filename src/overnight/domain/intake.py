"""What waits in the queue, and whether it has room for another batch."""

from __future__ import annotations

from overnight.domain.limits import ALMOST_FULL, SMALL


def waiting(unanswered: int, running: int, ending: int) -> int:
    """How many requests wait: those of batches that may start more, less what runs of these.

    `running` counts the requests of all batches, `ending` those of batches that start nothing more, which are not among
    the unanswered ones. Workers tell both with their heartbeats, so they may be more than there are for a moment.
    """
    return max(unanswered - (running - ending), 0)


def has_room(waiting: int, more: int, capacity: int) -> bool:
    """Say whether `more` requests may join the `waiting` ones: all of them or none.

    In a queue that is almost full the rest is kept for small batches, so that one large batch, which would have
    to wait for most of the night anyway, does not shut out all others.
    """
    if waiting + more > capacity:
        return False
    return waiting <= ALMOST_FULL * capacity or more <= SMALL * capacity
