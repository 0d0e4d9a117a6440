"""How much a worker holds, writes down and flushes at once: the sizes that keep slots full without hoarding."""

from __future__ import annotations

from math import ceil

LEASE_AHEAD = 0.25
"""Seconds of work held beyond what runs. A lease takes milliseconds, and this rides out a slow one."""
LEAST_AHEAD = 16
LANE_AHEAD = 32
"""Requests held for each lane: many a group has as many, and each lane is to find one that no other serves."""
MOST_BLOCKS = 64
"""Blocks leased by one statement."""
STATEMENTS = 4
"""That lease for a route in one round, at the most. How large blocks are is learnt from those that come: the first may
be small, and alone it would put its only group of prompts on every lane."""
LEASE_BYTES = 32 * 1024 * 1024
"""Bytes of requests leased by one statement, about."""

WAVES = 2
"""A block of which something runs is left to others only where what waits of it would fill the slots more than so many
times: it goes back when that has ended."""

COMMITS_AHEAD = 1.5
"""The reserve of written-down requests lasts for so many times the time that writing more takes."""
LEAST_APART = 0.05
"""Seconds of work in a group at the least, so that a busy worker writes some twenty groups a second."""
MOST_FLOOR = 4
EACH_LANE = 2
LONGEST_COMMIT = 0.25
"""Seconds. A slower commit is an accident, which the reserve need not ride out."""


def lines_to_lease(cap: int, in_flight: int, untaken: int, rate: float, reserve: int, lanes: int = 0) -> int:
    """How many more requests to hold: enough to fill the slots and some time of work; 0 while there is enough.

    `cap` requests may run and `reserve` be written down ahead; `in_flight` do or are, `untaken` are held and wait for
    their turn, `rate` end a second. Where there are `lanes`, each needs a group of its own to go on with.
    """
    free = max(0, cap + reserve - in_flight)
    ahead = max(LEAST_AHEAD, LANE_AHEAD * lanes, rate * LEASE_AHEAD)
    if untaken >= free + ahead / 2:
        return 0
    return ceil(free + ahead) - untaken


def lines_to_keep(cap: int, running: int, rate: float, lanes: int = 0) -> int:
    """How many requests that do not run stay where they are, whoever else has free slots: those that start at once, the
    least that is written down, and as much time of work as is leased ahead.
    """
    return max(0, cap - running) + reserve_low(cap, 0.0, 0.0, lanes) + ceil(rate * LEASE_AHEAD)


def lines_to_give(surplus: int, idle: int) -> int:
    """How many of those that are held beyond that go to others who have `idle` slots and nothing to lease.

    As many as they can start; and half, as they may be faster, and what they start may be over before more comes.
    """
    return min(surplus, max(idle, ceil(surplus / 2)))


def enough_of_owner(rate: float, reserve: int, owners: int) -> float:
    """How many untaken requests of one of several owners are enough: some times its part of what may be written down
    until more is leased. An owner whose requests are cheap has more turns than others.
    """
    return max(LEAST_AHEAD / 2, (rate * LEASE_AHEAD + reserve) * 4 / (owners + 3))


def blocks_to_lease(lines: int, lines_each: float, bytes_each: float, bytes_left: float) -> int:
    """How many blocks hold so many requests, judged by those leased before, within what memory is left."""
    by_memory = int(min(bytes_left, LEASE_BYTES) // max(bytes_each, 1.0))
    return max(0, min(ceil(lines / max(lines_each, 1.0)), MOST_BLOCKS, by_memory))


def reserve_low(cap: int, rate: float, commit: float, lanes: int = 0) -> int:
    """The reserve of written-down requests is too small below this.

    It lasts for the time `commit`, in seconds, that it takes to write more, while `rate` requests end a second; and
    however few end, a slot that becomes free finds one at once: on each of `lanes` one that fits it. Where owners have
    turns for the same tokens, their lanes don't end requests as evenly; so there are two a lane.
    """
    floor = max(1, min(MOST_FLOOR, cap // 2), EACH_LANE * min(lanes, cap))
    return floor + ceil(rate * COMMITS_AHEAD * min(commit, LONGEST_COMMIT))


def lines_to_write(cap: int, running: int, written: int, rate: float, commit: float, lanes: int = 0) -> int:
    """How many more requests to write down before they are sent; 0 while the reserve of `written` ones will do.

    It is kept small: after a crash, what was written down and not answered counts as tried.
    """
    enough = max(0, cap - running) + reserve_low(cap, rate, commit, lanes)
    if written >= enough:
        return 0
    return enough + ceil(rate * LEAST_APART) - written


class Rate:
    """Requests that end a second: rises at once, falls slowly."""

    def __init__(self, since: float) -> None:
        self.value = 0.0
        self._since = since
        self._count = 0

    def add(self, count: int, now: float) -> None:
        """Count what ended until `now`, a moment of the clock of `since`."""
        self._count += count
        passed = now - self._since
        if passed < 0.1:
            return
        seen = self._count / passed
        kept = 0.5 ** (passed / 2.0)
        self.value = max(seen, self.value * kept + seen * (1 - kept))
        self._count = 0
        self._since = now


def smooth(before: float, seen: float) -> float:
    """A duration that rises at once and falls slowly."""
    return max(seen, before + (seen - before) * 0.1)
