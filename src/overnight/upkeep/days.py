"""Opens the partitions of the days to come."""

from __future__ import annotations

from overnight.store.days import open_day
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
