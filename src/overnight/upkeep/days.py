"""Opens the partitions of the days to come, and drops those of days of which nothing is left."""

from __future__ import annotations

from overnight.domain import events
from overnight.store.days import open_day
from overnight.store.deletion import drop_gone_days
from overnight.upkeep.deps import Upkeep

DAYS_AHEAD = 2
"""Two midnights may pass without a round before a create has to open its day itself."""


class OpenDays:
    """Keeps today and the next two days open."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps

    async def round(self) -> bool:
        """Open what is missing."""
        for ahead in range(DAYS_AHEAD + 1):
            await open_day(self._deps.store, ahead)
        return False


class DropDays:
    """Drops what is left of past days once their last batch is gone."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps

    async def round(self) -> bool:
        """Drop some tables; those that are in use are left for another time."""
        dropped = await drop_gone_days(self._deps.store)
        if dropped:
            events.tell("days_dropped", tables=dropped)
        return dropped > 0
