"""When a model server that keeps failing is left alone, and when it is tried again."""

from __future__ import annotations

FAILURES = 5
"""So many in a row, of those that count against the server, open its circuit."""
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 300.0


class Circuit:
    """Closed while the server answers; open after too many failures in a row; then one request probes it.

    Failures of requests that were sent before it opened say nothing of the server since. Moments are seconds of any
    clock that never goes back.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._opened = float("-inf")
        self._until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server was given up for now."""
        return self._until is not None

    @property
    def until(self) -> float | None:
        """From when on it may be probed; None while it is closed."""
        return self._until

    def most_running(self, slots: int, now: float) -> int:
        """How many requests may run: all, none while it is open, one as a probe beside what was sent before."""
        if self._until is None:
            return slots
        return min(1, slots) if now >= self._until else 0

    def note_answer(self) -> None:
        """The server answered, whatever it said: it is there."""
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = None

    def note_failure(self, now: float, began: float) -> None:
        """A request that `began` at some moment failed by the server's fault."""
        if began < (self._opened if self._until is None else self._until):
            return
        self._failures += 1
        if self._until is not None:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        elif self._failures < FAILURES:
            return
        self._opened = now
        self._until = now + self._pause
