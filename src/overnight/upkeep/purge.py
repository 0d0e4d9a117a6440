"""Removes what is no longer needed, in bounded pieces."""

from __future__ import annotations

from overnight.store import files, idempotency, uploads
from overnight.store.life import forget_dead
from overnight.upkeep.deps import Upkeep


class Purge:
    """Deleted and expired files, uploads given up or expired, keys of old creates, workers that died long ago."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps

    async def round(self) -> bool:
        """Remove one piece of each kind."""
        found = await files.purge_round(self._deps.store)
        found |= await uploads.purge_round(self._deps.store)
        found |= await idempotency.purge_round(self._deps.store)
        return await forget_dead(self._deps.store) or found
