"""Requests that servers may have died of: when one runs alone, and for how long all others wait for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

POISON = 3
"""A request that was in flight when so many workers or engines died runs alone the next time; if one dies of it
even then, it fails."""
FIRST_WAIT = 30.0
"""Seconds for which others wait at the most until one can start; the next time it is twice as long."""
OTHERS_LONGER = 3.0
"""Others then go on for so many times as long as they waited."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Whether one of these requests may have its turn, in a process; all moments are of one monotonic clock.

    While one has its turn nothing else starts: so it can run once all that runs has ended. Where that takes too long
    the turn comes to nothing. As others have three quarters of the time, they never stand still for long; as waits
    double, up to the time that any request may take, a turn that leads to a run comes for sure.
    """

    wait: float = FIRST_WAIT
    since: float = 0.0
    others_until: float = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether others need to go on no longer."""
        return now >= self.others_until

    def begin(self, now: float) -> Turns:
        """One has its turn."""
        return replace(self, since=now)

    def is_over(self, now: float, longest: float) -> bool:
        """Whether others have waited long enough for one to start; a request takes `longest` seconds at the most."""
        return now - self.since >= min(self.wait, longest + FIRST_WAIT)

    def end(self, now: float) -> Turns:
        """It ran, or cannot run now."""
        return Turns(others_until=now + OTHERS_LONGER * (now - self.since))

    def end_in_vain(self, now: float) -> Turns:
        """What ran took too long."""
        return replace(self.end(now), wait=self.wait * 2.0)
