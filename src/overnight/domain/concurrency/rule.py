"""How many requests a route is given at once, found from what it does with those it has.

`follow` is called once a period, a fraction of a second. It

- ramps from a few upwards, at most doubling each period, to the number that may be tried without evidence;
- then tries numbers one after the other: higher ones while they bring more tokens a second, lower ones while they
  bring as many, if requests seem to stand in each other's way;
- holds the best one, and tries its neighbours again from time to time, the more rarely the less that helped;
- gives way at once where the server refuses, and comes near that point again by small steps, unless that was in vain;
- believes a server that tells how many requests wait in it.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from overnight.domain.concurrency import chance
from overnight.domain.concurrency.compare import LARGE_STEP, LONGEST_PATIENCE, compare, hold
from overnight.domain.concurrency.state import (
    PATIENCE,
    START,
    Epoch,
    Phase,
    Room,
    Seen,
    Signals,
    Why,
)
from overnight.domain.outcome import Try

FULL = 0.9
"""The number is in use where this part of it was in flight."""
FASTEST = 2.0
"""A period at most multiplies the number by this."""
CUT = 0.05
CUT_EACH = 2.0
"""Of the requests that a server took beside those it refused, so many are given up for each refusal, or that part."""
REFUSED_PATIENCE = 60.0
"""Seconds after which a number near one that was refused is tried again, at the latest."""
SMALL_STEP = 0.025
IDLE = 30.0
"""Seconds with not half of the number in flight, after which it is reached by a ramp again."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
LONGEST_GUARD = 10.0
STEADILY = 2
"""Looks at a server in a row that find requests waiting."""
MEMORY_FULL = 0.92
MEMORY_FREE = 0.8
FASTEST_DOWN = 0.8
"""A look at a server that finds requests waiting at most multiplies the number by this."""


_REFUSALS = frozenset({"rate_limited", "service_unavailable", "timeout"})
_OVERLOADED = 529
"""What Anthropic and others answer when they have too many requests, of anybody's."""


def is_refusal(tried: Try) -> bool:
    """Whether a try says that its server has too much to do: 429, 503, 529, no connection, no answer in time."""
    return not tried.queued and (tried.code in _REFUSALS or tried.status == _OVERLOADED or tried.lost_server)


def follow(room: Room, seen: Seen) -> Room:
    """The room after a period, given what was seen in it."""
    started = max(0, seen.ended + seen.left - room.in_flight)
    room = chance.note(_pass(room, seen), seen, started)
    if seen.lost > seen.left:
        # It is gone, which says nothing of how much it bears: when it is back, it is given as much as before.
        return chance.judge(_pause(room, seen, kept=room.number))
    if seen.refused and not chance.are_tolerated(room, seen):
        return chance.judge(_give_way(room, seen))
    if seen.refused:
        room = chance.judge(room)
    if seen.ended:
        room = replace(room, last_pause=0.0)
    if seen.signals is not None:
        room = _believe(room, seen.signals, seen)
    if seen.peak < max(1, int(room.number * FULL)):
        return _rest(room, seen)
    room = replace(room, idle=0.0)
    if room.why is Why.WORK:
        room = replace(room, why=Why.PACE if room.phase in (Phase.HOLD, Phase.DOWN) else Why.GROWING)
    if room.phase is Phase.RAMP:
        return _ramp(room)
    return compare(room, seen)


def _pass(room: Room, seen: Seen) -> Room:
    """Time passes; what requests take and how fast they are is noted."""
    took, best = room.took, room.best_speed
    if seen.ended:
        mean = seen.taken / seen.ended
        took = mean if took == 0 else took + (mean - took) * 0.2
        # The best fades, since what requests are like changes in the course of a batch.
        best = best * (1 - min(0.5, seen.seconds / LONGEST_PATIENCE))
        if seen.ended >= START // 2 and seen.taken > 0:
            best = max(best, seen.work / seen.taken)
    return replace(
        room,
        in_flight=seen.left,
        took=took,
        best_speed=best,
        holds=max(0.0, room.holds - seen.seconds),
        guard=max(0.0, room.guard - seen.seconds),
        pause=max(0.0, room.pause - seen.seconds),
    )


# -- what the server does and says -----------------------------------------------------------------------------


def _give_way(room: Room, seen: Seen) -> Room:
    """The server refused: keep a little less than what it took."""
    if seen.left == 0 and seen.ended == 0:
        return _pause(room, seen, kept=room.number / 2)
    kept = max(1.0, room.number - seen.refused)
    if room.guard > 0:
        return replace(room, number=kept, trusted=kept).began_anew()
    kept = max(1.0, kept - min(kept * CUT, CUT_EACH * seen.refused))
    return replace(
        room,
        number=kept,
        trusted=kept,
        phase=Phase.HOLD,
        why=Why.REFUSED,
        base=None,
        step=SMALL_STEP,
        least_known=True,
        holds=max(min(room.patience, REFUSED_PATIENCE), min(seen.retry_after, LONGEST_PATIENCE)),
        patience=min(room.patience * 2, LONGEST_PATIENCE),
        guard=min(max(room.took, seen.seconds), LONGEST_GUARD),
    ).began_anew()


def _pause(room: Room, seen: Seen, kept: float) -> Room:
    """The server refused all there was: try one request after a while; when it answers, ramp to what is `kept`."""
    first = room.last_pause == 0
    pause = min(max(FIRST_PAUSE, room.last_pause * 2, seen.retry_after), LONGEST_PAUSE)
    return replace(
        room,
        number=1.0,
        trusted=max(1.0, kept) if first else room.trusted,
        phase=Phase.RAMP,
        why=Why.REFUSED,
        epoch=Epoch(),
        base=None,
        step=SMALL_STEP,
        least_known=True,
        pause=pause,
        last_pause=pause,
    )


def _believe(room: Room, signals: Signals, seen: Seen) -> Room:
    """What a server says of itself is better evidence than what can be measured from outside."""
    slack = max(1.0, 0.05 * signals.running)
    room = replace(room, queued=room.queued + 1 if signals.waiting > slack else 0)
    if room.queued >= STEADILY:
        return _shorten_queue(room, signals, slack, seen)
    if signals.memory is not None and signals.memory >= MEMORY_FULL and room.phase in (Phase.RAMP, Phase.UP):
        return hold(room, room.number, Why.MEMORY)
    free = signals.waiting == 0 and (signals.memory is None or signals.memory < MEMORY_FREE)
    if free and signals.running >= 0.7 * seen.in_flight and room.phase in (Phase.RAMP, Phase.LOOK) and room.step >= 1:
        # It computes all that it was given: the ramp may go on without a comparison, which takes a while.
        return replace(room, phase=Phase.RAMP, trusted=max(room.trusted, room.number * FASTEST))
    return room


def _shorten_queue(room: Room, signals: Signals, slack: float, seen: Seen) -> Room:
    """Have no more in flight than our share of what it computes, and a little to keep it busy.

    Where others send it requests too, they go first, but for a few of ours.
    """
    there = signals.running + signals.waiting
    share = ceil(seen.in_flight * (signals.running + slack) / there)
    with_others = there > 1.5 * seen.in_flight + slack
    least = min(room.number, float(START)) if with_others else 1.0
    number = min(room.number, max(share, room.number * FASTEST_DOWN, least))
    held = hold(room, number, Why.QUEUE)
    # The server is looked at every second or two, so patience need not grow.
    return replace(held, base=None, trusted=number, step=LARGE_STEP / 2, least_known=True, patience=room.patience)


# -- how it goes on --------------------------------------------------------------------------------------------


def _rest(room: Room, seen: Seen) -> Room:
    """There is too little work to fill the number, so nothing can be learned."""
    idle = room.idle + seen.seconds if seen.peak < room.number / 2 else 0.0
    number = min(room.number, float(max(START, FASTEST * seen.peak)))
    if idle < IDLE or number >= room.number:
        why = Why.REFUSED if room.last_pause else Why.WORK
        return replace(room, idle=idle, why=why).began_anew()
    return replace(
        room,
        number=number,
        trusted=room.number,
        phase=Phase.RAMP,
        why=Why.WORK,
        base=None,
        least_known=False,
        patience=PATIENCE,
        idle=0.0,
    )


def _ramp(room: Room) -> Room:
    if room.last_pause:
        # The one request that may show whether it refuses still has no answer.
        return room
    limit = min(room.trusted, float(room.bounds.most))
    if room.number < limit:
        return replace(room, number=min(room.number * FASTEST, limit), why=Why.GROWING)
    why = Why.LIMIT if room.number >= room.bounds.most else Why.GROWING
    return replace(room, phase=Phase.LOOK, why=why).began_anew()
