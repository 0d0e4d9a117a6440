"""Removes what is no longer needed, in bounded pieces."""

from __future__ import annotations

from overnight.domain import events, ids
from overnight.store import deletion, files, idempotency, uploads
from overnight.store.life import forget_dead
from overnight.upkeep.deps import Upkeep


class Purge:
    """What was deleted or has ended its time: batches, files, uploads, keys of creates, and workers long dead."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps

    async def round(self) -> bool:
        """Remove one piece of each kind; while batches are turned off, everything is kept."""
        if not self._deps.limits.enabled:
            return False
        store = self._deps.store
        ended = await deletion.delete_after_retention(store)
        for batch_id in ended:
            events.tell("batch_deleted", batch=ids.show(ids.BATCH, batch_id))
        found = await deletion.remove_some_rows(store)
        found |= await files.purge_round(store)
        found |= await uploads.purge_round(store)
        found |= await idempotency.purge_round(store)
        found |= await forget_dead(store)
        return found or bool(ended)
