"""Which number of requests at once brings the most: one is compared with another, from what each brought."""

from __future__ import annotations

from dataclasses import replace

from overnight.domain.concurrency.state import PATIENCE, Epoch, Level, Phase, Room, Seen, Why

FEWER = 0.75
"""The next lower number to be tried, as a part of the one before."""
LARGE_STEP = 0.25
COMPARABLE = 1.2
"""Numbers closer to each other than this bring about the same."""
WORTH = 0.15
"""A higher number is worth it where each per cent more brings at least this part of a per cent more tokens a second."""
HARDLY = 0.05
AS_GOOD = 0.95
"""A lower number that brings this part is as good."""
SLOWED = 0.75
"""A server that brings this part of what it did has something else to do, or other requests."""
MUCH_CROWDED = 0.3
CROWDED = 0.6
"""A request that gets this part of the speed that one had at the best may be in a queue. The best is overrated:
requests that end first are the short ones."""
ENOUGH = 32
MANY = 512
"""A number is judged when as many requests as are in flight have ended, but at least and at most so many."""
SHORTEST_EPOCH = 0.5
LONGEST_EPOCH = 60.0
LONGEST_PATIENCE = 300.0


def compare(room: Room, seen: Seen) -> Room:
    """Gather until the number can be judged, then judge it."""
    room = replace(room, epoch=room.epoch.plus(seen))
    epoch = room.epoch
    if epoch.ended < _enough(room) or epoch.seconds < max(SHORTEST_EPOCH, min(room.took, LONGEST_EPOCH)):
        return room
    level = epoch.level(room.number)
    match room.phase:
        case Phase.UP:
            return _judge_higher(room, level)
        case Phase.DOWN:
            return _judge_lower(room, level)
        case Phase.HOLD:
            return _judge_held(room, level)
        case _:
            room = replace(room, base=level)
            return _fewer(room) if _is_crowded(room) else _more(room)


def hold(room: Room, number: float, why: Why) -> Room:
    """Stay with a number for a while."""
    return replace(
        room,
        number=number,
        phase=Phase.HOLD,
        why=why,
        holds=room.patience,
        patience=min(room.patience * 2, LONGEST_PATIENCE),
    ).began_anew()


def _enough(room: Room) -> float:
    """How many requests must have ended: more where the difference to be seen is smaller."""
    if _is_small_step(room):
        return room.number
    times = 1 if room.phase is Phase.LOOK or room.step >= 1 else 2
    return times * max(ENOUGH, min(room.number, MANY))


def _is_small_step(room: Room) -> bool:
    return room.phase is Phase.UP and room.base is not None and room.number < room.base.number * COMPARABLE


def _is_crowded(room: Room) -> bool:
    """Whether requests seem to wait for one another. A number that the operator names needs better evidence."""
    is_named = room.bounds.sure >= room.bounds.most
    part = MUCH_CROWDED if is_named or room.phase is Phase.LOOK else CROWDED
    return room.epoch.speed < part * room.best_speed


def _judge_higher(room: Room, level: Level) -> Room:
    base = room.base or level
    if _is_small_step(room):
        if level.pace < 0.9 * base.pace:
            return hold(room, base.number, Why.PACE)
        return _more(replace(room, step=min(2 * LARGE_STEP, room.step * 2)))
    gain = base.gain(level)
    if gain >= WORTH:
        step = min(1.0, room.step * 2) if gain >= 0.5 else max(LARGE_STEP, room.step / 2)
        return _more(replace(room, base=level, step=step, least_known=True, patience=PATIENCE))
    if gain >= HARDLY:
        return hold(replace(room, base=level, step=LARGE_STEP), level.number, Why.PACE)
    if room.least_known:
        return hold(replace(room, step=LARGE_STEP), base.number, Why.PACE)
    return _fewer(replace(room, step=LARGE_STEP))


def _judge_lower(room: Room, level: Level) -> Room:
    base = room.base or level
    if level.pace >= AS_GOOD * base.pace:
        # Compared with the pace of the first one, so that small losses don't add up.
        return _fewer(replace(room, base=Level(level.number, base.pace), patience=PATIENCE))
    room = replace(room, least_known=True, step=min(room.step, 2 * LARGE_STEP))
    return hold(room, base.number, Why.PACE)


def _judge_held(room: Room, level: Level) -> Room:
    base = room.base or level
    if level.pace < SLOWED * base.pace:
        return _fewer(replace(room, base=level))
    pace = base.pace + (level.pace - base.pace) * 0.3
    room = replace(room, base=Level(level.number, pace))
    if room.holds > 0:
        return replace(room, epoch=Epoch())
    if room.number < room.bounds.most:
        return _more(replace(room, least_known=room.least_known and not _is_crowded(room)))
    return _fewer(room) if _is_crowded(room) else replace(room, epoch=Epoch(), why=Why.LIMIT)


def _more(room: Room) -> Room:
    """Try a higher number, from the one in force."""
    most = float(room.bounds.most)
    if room.number >= most:
        return hold(room, most, Why.LIMIT)
    number = min(most, max(room.number + 1, room.number * (1 + room.step)))
    return replace(room, number=number, phase=Phase.UP, why=Why.GROWING).began_anew()


def _fewer(room: Room) -> Room:
    """Try a lower number than the base."""
    number = room.base.number if room.base is not None else room.number
    if number <= 1:
        return hold(room, 1.0, Why.PACE)
    lower = max(1.0, min(number - 1, number * FEWER))
    return replace(room, number=lower, phase=Phase.DOWN, why=Why.PACE).began_anew()
