"""Counts what happens on a route between two looks at it."""

from __future__ import annotations

from overnight.domain.concurrency.rule import is_refusal
from overnight.domain.concurrency.state import Seen, Signals
from overnight.domain.outcome import Try, Usage


class Tally:
    """A few additions for each request. Moments are seconds of any clock that never goes back."""

    __slots__ = (
        "_aside_before",
        "_ended",
        "_peak",
        "_retry_after",
        "_since",
        "_stamps",
        "_taken",
        "_tokens",
        "aside",
        "lost",
        "refused",
        "running",
    )

    def __init__(self, now: float = 0.0) -> None:
        """The first period begins at `now`."""
        self.running = 0
        """Requests in flight, interactive ones included."""
        self.aside = 0
        """Of those that were set aside, how many are still in flight."""
        self._aside_before = float("-inf")
        self._begin_period(now)

    def _begin_period(self, now: float) -> None:
        self.refused = 0
        """Refusals since the last look."""
        self.lost = 0
        """Of these, how many because the server was gone."""
        self._since = now
        self._ended = 0
        self._tokens = 0
        self._taken = 0.0
        self._retry_after = 0.0
        self._peak = self.running
        # Moments of ends minus moments of starts: with `running` times now it is the time spent in flight.
        self._stamps = -self.running * now

    def begin(self, now: float, count: int = 1) -> None:
        """So many requests were sent."""
        running = self.running = self.running + count
        self._stamps -= now * count
        if running > self._peak:
            self._peak = running

    def end(self, now: float, began: float = float("inf")) -> None:
        """A request that `began` at some moment ended, whatever it came to; one without that was never set aside."""
        self.running -= 1
        self._stamps += now
        if began < self._aside_before:
            self.aside -= 1

    def set_aside(self, count: int, now: float) -> None:
        """So many requests, all that began before now, may hang: they are counted by themselves until they end."""
        self.aside = count
        self._aside_before = now

    def answer(self, took: float, usage: Usage) -> None:
        """It was answered well, after so many seconds."""
        self._ended += 1
        self._taken += took
        self._tokens += usage.input + usage.output

    def fail(self, tried: Try) -> None:
        """A try came to no response: that counts where it says that its server has too much to do, or is gone."""
        if is_refusal(tried):
            self.refuse(tried.retry_after.total_seconds() if tried.retry_after else 0.0, is_lost=tried.gone)

    def refuse(self, retry_after: float, *, is_lost: bool = False) -> None:
        """It was refused, and the server asked for so many seconds; or `is_lost`, since the server was gone."""
        self.refused += 1
        self.lost += is_lost
        if retry_after > self._retry_after:
            self._retry_after = retry_after

    def take(self, now: float, signals: Signals | None) -> Seen:
        """What happened since the last look; a new period begins."""
        seconds = max(now - self._since, 1e-6)
        seen = Seen(
            seconds=seconds,
            in_flight=max(0.0, self._stamps + self.running * now) / seconds,
            peak=self._peak,
            left=self.running,
            ended=self._ended,
            work=float(self._tokens or self._ended),
            taken=self._taken,
            refused=self.refused,
            lost=self.lost,
            retry_after=self._retry_after,
            signals=signals,
        )
        self._begin_period(now)
        return seen
