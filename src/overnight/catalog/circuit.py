"""When a model server that keeps failing is left alone, and when it is tried again."""

from __future__ import annotations

FAILURES = 5
"""So many in a row, of those that count against the server, open its circuit."""
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 300.0


class Circuit:
    """Closed while the server answers; open after too many failures in a row; then one request probes it.

    Moments are seconds of any clock that never goes back.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server was given up for now."""
        return self._until is not None

    def most_running(self, slots: int, now: float) -> int:
        """How many requests may run: all, none while it is open, one as a probe."""
        if self._until is None:
            return slots
        return min(1, slots) if now >= self._until else 0

    def note_answer(self) -> None:
        """The server answered, whatever it said: it is there."""
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = None

    def note_failure(self, now: float) -> None:
        """A request failed by the server's fault. Failures while the circuit waits were under way before."""
        self._failures += 1
        if self._until is None:
            if self._failures >= FAILURES:
                self._until = now + self._pause
        elif now >= self._until:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            self._until = now + self._pause
