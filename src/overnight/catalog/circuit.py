"""When a model server that keeps failing is left alone, and when it is tried again."""

from __future__ import annotations

FAILURES = 5
"""So many in a row, of those that count against the server, open its circuit."""
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 300.0


class Circuit:
    """Closed while the server answers; open after too many failures in a row; then one request probes it.

    Failures of requests that were sent before it opened say nothing of the server since. Where all that opened it were
    answered the server lives, and what failed may be to blame: then requests of which none failed there need not wait
    for the end of the pause, one of them probes it early. Moments are seconds of any clock that never goes back.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._opened = float("-inf")
        self._until: float | None = None
        self._answered = False
        """All failures that opened it, or the last probe's, were answers."""
        self._early: float | None = None
        """Since when a request may probe it before the pause is over."""
        self._early_failures = 0

    @property
    def is_open(self) -> bool:
        """Whether the server was given up for now."""
        return self._until is not None

    @property
    def until(self) -> float | None:
        """From when on it may be probed; None while it is closed."""
        return self._until if self._early is None else self._early

    def probe_early(self, now: float) -> None:
        """Requests have come of which none failed there: one may probe it at once, where it answered what failed.

        After several in a row that failed as well it is the server after all: they wait as all do.
        """
        if self._until is None or now >= self._until or self._early is not None:
            return
        if self._answered and self._early_failures < FAILURES:
            self._early = now

    def most_running(self, slots: int, now: float) -> int:
        """How many requests may run: all, none while it is open, one as a probe beside what was sent before."""
        if self.until is None:
            return slots
        return min(1, slots) if now >= self.until else 0

    def note_answer(self) -> None:
        """The server answered, whatever it said: it is there."""
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = self._early = None
        self._early_failures = 0

    def note_failure(self, now: float, began: float, *, answered: bool = False) -> None:
        """A request that `began` at some moment failed by the server's fault; `answered` where it said so itself."""
        if self._until is not None and self._opened <= began < self._until:
            self._end_early(began, answered)
        if began < (self._opened if self._until is None else self._until):
            return
        self._answered = answered and (self._answered or not self._failures or self._until is not None)
        self._failures += 1
        if self._until is not None:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        elif self._failures < FAILURES:
            return
        self._opened = now
        self._until = now + self._pause
        self._early = None
        self._early_failures = 0

    def _end_early(self, began: float, answered: bool) -> None:
        """A probe before the end of the pause has failed: the pause goes on as it was."""
        self._answered &= answered
        if self._early is not None and began >= self._early:
            self._early = None
            self._early_failures += 1
