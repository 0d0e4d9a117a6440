"""Refusals that come by chance: a few of all requests, whatever the number, which no smaller number would prevent.

A server that has reached a limit takes a number and refuses what is beyond it: again as soon as the slot is filled
again, and nothing any more once the number is clearly smaller. So refusals are by chance that come one by one, each
after many answers, and that go on where the number is clearly smaller than what the server took when they began.
"""

from __future__ import annotations

from dataclasses import replace

from overnight.domain.concurrency.state import Phase, Refusals, Room, Seen

OVER = 200
"""Requests over which the part that is refused is averaged."""
ENOUGH = 30
"""Requests that say something about it."""
CUT_IN_VAIN = 0.75
"""The number came down to this part of what the server took, and refusals go on."""
AT_ONCE = 0.25
"""A slot that is filled again is refused again before this part of the number was answered."""
FEW = 2
"""Refusals that may be accidents."""
LONG_AGO = 100
"""… or so many requests."""
MOSTLY = 0.6
"""Refusals by chance come one by one, but for so many."""
LONE = 2.5
"""Of about OVER requests: so few that come one by one are never worth a smaller number."""
MOST = 0.2
"""A server that refuses more than this has too much to do, whatever the number."""
MORE = 2.5
MORE_OF_FEW = 0.05
"""Refusals are tolerated up to so many times the part that was refused in vain, or so much more, since of few requests
that part is known badly."""
DOUBTED_FOR = 120.0
"""Seconds after refusals were more than that: until then none are tolerated again."""


def note(room: Room, seen: Seen, started: int) -> Room:
    """Note how many were refused beside those that started, and what the server took when that began."""
    was = room.refusals
    total = seen.refused + started
    kept = 1 - min(1.0, total / OVER)
    low = was.took if was.came_down else max(1.0, was.took * CUT_IN_VAIN)
    came_down = was.settled and room.number <= low
    if came_down and not was.came_down:
        # What was refused of more says nothing about so few.
        kept = 0.0
    since = was.since + started
    is_lone = seen.refused == 1 and since >= min(room.number * AT_ONCE, LONG_AGO)
    took, settled = _took(room, seen)
    found = Refusals(
        count=was.count * kept + total,
        refused=was.refused * kept + seen.refused,
        lone=was.lone * kept + is_lone,
        took=took,
        settled=settled,
        came_down=came_down,
        tolerated=was.tolerated,
        doubted=max(0.0, was.doubted - seen.seconds),
        since=0.0 if seen.refused else since,
        is_lone=is_lone,
    )
    return replace(room, refusals=found)


def _took(room: Room, seen: Seen) -> tuple[float, bool]:
    """What the server took when refusals began, and whether that is known."""
    was = room.refusals
    if not was.took:
        return (max(1.0, room.number - seen.refused), False) if seen.refused else (0.0, False)
    if not was.settled:
        return min(was.took, max(1.0, room.number - seen.refused)), room.guard <= 0
    is_over = not seen.refused and room.number >= was.took and room.holds <= 0
    return (0.0, False) if is_over else (was.took, True)


def are_tolerated(room: Room, seen: Seen) -> bool:
    """Whether the refusals of a period say nothing about the number, or too little to cut it further."""
    found = room.refusals
    if seen.ended == 0 and seen.left == 0:
        return False
    if found.part <= found.tolerated:
        return True
    if found.doubted > 0:
        return False
    if found.came_down and (found.is_lone or found.count < ENOUGH):
        return found.refused <= max(FEW, MOST * found.count)
    return found.is_lone and found.refused <= LONE


def judge(room: Room) -> Room:
    """Tolerate refusals from now on, where those before were cut in vain, and go back to what the server took.

    Where they turn out to be more then, they were none by chance.
    """
    found = room.refusals
    if found.tolerated and found.part > found.tolerated:
        return replace(room, refusals=replace(found, tolerated=0.0, doubted=DOUBTED_FOR))
    if found.doubted > 0 or not (found.came_down and found.count >= ENOUGH and found.part <= MOST):
        return room
    if found.lone < max(LONE, MOSTLY * found.refused):
        # A limit that is looked for again and again is found by one lone refusal each time, and another at once.
        return room
    return replace(
        room,
        phase=Phase.RAMP,
        trusted=max(found.took, float(min(room.bounds.sure, room.bounds.most))),
        refusals=replace(found, tolerated=max(MORE * found.part, found.part + MORE_OF_FEW)),
        guard=0.0,
        holds=0.0,
    )
