"""Declares workers dead that are gone or whose heartbeat went stale, so that others go on with what they held."""

from __future__ import annotations

import time
from datetime import timedelta

import asyncpg

from overnight.domain import events
from overnight.store.life import (
    DEAD_AFTER,
    declare_dead,
    end_sessions,
    find_gone,
    find_stale,
    free_lingering,
)
from overnight.upkeep.deps import Upkeep

TRIES = 3

NEIGHBOURS_EVERY = 2.0
"""Seconds between two looks at the neighbours where nobody looks after the other workers."""

FREE_EVERY = 10.0
"""Seconds between two looks for slots of dead workers that have become free."""


class Rescue:
    """Looks after the other workers of the deployment; its own process knows by its heartbeat whether it lives."""

    def __init__(self, deps: Upkeep, dead_after: timedelta = DEAD_AFTER) -> None:
        self._deps = deps
        self._dead_after = dead_after
        self._free_at = 0.0

    async def round(self) -> bool:
        """Declare workers dead: those that are gone from this machine, and up to 100 that were not heard of."""
        store = self._deps.store
        found = await self.look_at_neighbours()
        stale = await find_stale(store, self._dead_after)
        declared = [worker for worker in stale if worker != self._deps.life.no and await self._declare(worker)]
        now = time.monotonic()
        if now >= self._free_at:
            self._free_at = now + FREE_EVERY
            await free_lingering(store)
        return found or bool(declared)

    async def look_at_neighbours(self) -> bool:
        """Declare workers dead whose processes were on this machine and are gone; it asks nothing if there are none."""
        life, store = self._deps.life, self._deps.store
        if life.neighbours is None:
            return False
        gone = [worker for worker in await find_gone(store, life.neighbours) if worker != life.no]
        return any([await self._declare(worker, is_gone=True) for worker in gone])

    async def _declare(self, worker: int, *, is_gone: bool = False) -> bool:
        """A frozen worker may hold its row locked for ever: then its connections are ended, and it is tried again.

        So is one that is gone, of which the server has not noticed yet that its connections are closed.
        """
        store, lingers = self._deps.store, timedelta(seconds=self._deps.limits.request_seconds)
        for _ in range(TRIES):
            try:
                dead = await declare_dead(store, worker, None if is_gone else self._dead_after, lingers=lingers)
            except asyncpg.LockNotAvailableError:
                await end_sessions(store, worker, is_gone=is_gone)
                continue
            if dead:
                events.tell("worker_gone" if is_gone else "worker_declared_dead", worker=worker)
            return dead
        return False
