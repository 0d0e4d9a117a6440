"""Closes batches whose window has ended: nothing of them is started any more, what runs may finish."""

from __future__ import annotations

from overnight.domain import events, ids
from overnight.store import batches
from overnight.upkeep.deps import Upkeep


class Expire:
    """Looks for windows that have ended by the database's clock."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps

    async def round(self) -> bool:
        """Close up to 100 batches; while batches are turned off, windows wait."""
        if not self._deps.limits.enabled:
            return False
        closed = await batches.close_if_window_ended(self._deps.store, self._deps.only())
        for row in closed:
            events.tell("batch_closed", batch=ids.show(ids.BATCH, row["id"]), unanswered=row["unanswered"])
        return bool(closed)
