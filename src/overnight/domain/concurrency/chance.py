"""Refusals that come by chance: a few of all requests, whatever the number, which no smaller number would prevent."""

from __future__ import annotations

from dataclasses import replace

from overnight.domain.concurrency.state import Phase, Refusals, Room, Seen

OVER = 200
"""Requests over which the part that is refused is averaged."""
ENOUGH = 60
"""Requests that say something about it."""
FORGOTTEN = 10_000
"""Requests after which the worst part is forgotten: it was of a few, maybe."""
CUT_IN_VAIN = 0.6
"""The number came down to this part of where refusals began, and they go on as before."""
AS_BEFORE = 0.5
FEW = 2
"""Refusals that may be accidents."""
LEAST = 0.008
"""Looking for a limit from time to time costs less than this."""
MOST = 0.2
"""A server that refuses more than this has too much to do, whatever the number."""
MORE = 2.5
MORE_OF_FEW = 0.03
"""Refusals are tolerated up to so many times the part that was refused in vain, or so much more, since of few requests
that part is known badly."""
DOUBTED_FOR = 300.0
"""Seconds after refusals were more than that: until then none are tolerated again."""


def note(room: Room, seen: Seen) -> Room:
    """Note how many were refused, and where the number stood when that began."""
    was = room.refusals
    total = seen.refused + seen.ended
    kept = 1 - min(1.0, total / OVER)
    came_down = was.began > 0 and room.number <= max(1.0, was.began * CUT_IN_VAIN)
    if came_down and not was.came_down:
        # What was refused of more says nothing about so few.
        kept = 0.0
    count, refused = was.count * kept + total, was.refused * kept + seen.refused
    began = was.began
    if seen.refused and not began:
        began = room.number
    elif not seen.refused and room.number >= began and room.holds <= 0:
        began = 0.0
    worst = was.worst * (1 - min(1.0, total / FORGOTTEN)) if began else 0.0
    if began and count >= ENOUGH:
        worst = max(worst, refused / count)
    doubted = max(0.0, was.doubted - seen.seconds)
    return replace(room, refusals=Refusals(count, refused, began, worst, came_down, was.tolerated, doubted))


def are_tolerated(room: Room, seen: Seen) -> bool:
    """Whether the refusals of a period say nothing about the number, or too little to cut it further."""
    found = room.refusals
    if seen.ended == 0 and seen.left == 0:
        return False
    is_gathering = found.came_down and found.count < ENOUGH and found.doubted <= 0
    return found.part <= found.tolerated or (is_gathering and found.refused <= max(FEW, MOST * found.count))


def judge(room: Room) -> Room:
    """After a cut: tolerate refusals from now on, where those before were cut in vain, and go back to where they began.

    Where they turn out to be more then, they were none by chance.
    """
    found = room.refusals
    if found.tolerated and found.part > found.tolerated:
        return replace(room, refusals=replace(found, tolerated=0.0, doubted=DOUBTED_FOR))
    as_before = max(found.worst * AS_BEFORE, LEAST) <= found.part <= MOST
    if found.doubted > 0 or not (found.came_down and found.count >= ENOUGH and as_before):
        return room
    return replace(
        room,
        phase=Phase.RAMP,
        trusted=max(found.began, float(min(room.bounds.sure, room.bounds.most))),
        refusals=replace(found, tolerated=max(MORE * found.part, found.part + MORE_OF_FEW)),
        guard=0.0,
        holds=0.0,
    )
