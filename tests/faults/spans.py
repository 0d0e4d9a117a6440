"""When something was not as it should be: spans of the wall clock, in seconds."""

from __future__ import annotations

import time


class Spans:
    """Spans that begin and end; the last one may go on."""

    def __init__(self) -> None:
        self._all: list[tuple[float, float]] = []
        self._since: float | None = None

    def begin(self) -> None:
        """From now on; where one goes on, it goes on."""
        if self._since is None:
            self._since = time.time()

    def end(self) -> None:
        """Until now, where one goes on."""
        if self._since is not None:
            self._all.append((self._since, time.time()))
            self._since = None

    def note(self) -> None:
        """One that is over as soon as it began."""
        self._all.append((time.time(), time.time()))

    def touching(self, since: float, until: float) -> list[tuple[float, float]]:
        """Those that have a moment in common with this one."""
        spans = [*self._all, *([] if self._since is None else [(self._since, float("inf"))])]
        return [(began, ended) for began, ended in spans if began <= until and ended >= since]
