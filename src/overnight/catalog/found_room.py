"""The number of requests that one server is given at once, found while it runs from what it does and says."""

from __future__ import annotations

from overnight.catalog.signals import Inquiry
from overnight.catalog.tally import Tally
from overnight.domain import events
from overnight.domain.concurrency.rule import follow
from overnight.domain.concurrency.state import Bounds, Room, Signals
from overnight.upstreams.http import Endpoint

PERIOD = 0.2
"""Seconds at least between two steps of the number of requests; rounds of a worker come every 0.25 s."""

_NEVER = float("-inf")


class FoundRoom:
    """Follows one life of a server. Make it inside the event loop.

    `name` is that of its route in the metrics, `tally` hears of every request there. The number follows
    `domain.concurrency`, within `bounds`.
    """

    def __init__(self, name: str, endpoint: Endpoint, bounds: Bounds, tally: Tally) -> None:
        self._name = name
        self._tally = tally
        self._room = Room.begin(bounds)
        self._allowed = self._room.allowed
        self._look_at = _NEVER
        self._signals: Signals | None = None
        self._inquiry = Inquiry(endpoint)

    @property
    def most(self) -> int:
        """The number never exceeds this."""
        return self._room.bounds.most

    @property
    def allowed(self) -> int:
        """The number now."""
        return self._room.allowed

    @property
    def soon(self) -> int:
        """What the number may be within a moment."""
        return min(self.most, 2 * self._room.allowed)

    @property
    def is_paused(self) -> bool:
        """The server refused all there was, and is let alone for a while."""
        return self._room.pause > 0

    def most_running(self, now: float) -> int:
        """How many requests may run there now, `now` by the monotonic clock."""
        if now >= self._look_at:
            self._look(now)
        # What was just refused is not sent again in the same place.
        return max(0, self._allowed - self._tally.refused)

    def _look(self, now: float) -> None:
        before = self._room.why
        seen = self._tally.take(now, self._signals)
        # The first period began before this life of the server.
        if self._look_at > _NEVER:
            self._room = follow(self._room, seen)
        self._look_at = now + PERIOD
        self._signals = None
        self._allowed = 0 if self.is_paused else self._room.allowed
        events.show_room(
            self._name,
            allowed=self._room.allowed,
            in_flight=self._tally.running,
            why=self._room.why,
            before=before,
        )

    async def watch(self) -> None:
        """Ask the server how busy it is, where it tells."""
        self._signals = await self._inquiry.ask()

    async def close(self) -> None:
        """Close its connection."""
        await self._inquiry.pool.close()
