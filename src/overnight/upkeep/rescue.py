"""Declares workers dead whose heartbeat went stale, so that others go on with what they held."""

from __future__ import annotations

import time
from datetime import timedelta

import asyncpg

from overnight.domain import events
from overnight.store.life import DEAD_AFTER, declare_dead, end_sessions, find_stale, free_lingering
from overnight.upkeep.deps import Upkeep

TRIES = 3

FREE_EVERY = 10.0
"""Seconds between two looks for slots of dead workers that have become free."""


class Rescue:
    """Looks after the other workers of the deployment; its own process knows by its heartbeat whether it lives."""

    def __init__(self, deps: Upkeep, dead_after: timedelta = DEAD_AFTER) -> None:
        self._deps = deps
        self._dead_after = dead_after
        self._free_at = 0.0

    async def round(self) -> bool:
        """Declare up to 100 workers dead."""
        store = self._deps.store
        stale = await find_stale(store, self._dead_after)
        declared = [worker for worker in stale if worker != self._deps.life.no and await self._declare(worker)]
        now = time.monotonic()
        if now >= self._free_at:
            self._free_at = now + FREE_EVERY
            await free_lingering(store)
        return bool(declared)

    async def _declare(self, worker: int) -> bool:
        """A frozen worker may hold its row locked for ever: then its connections are ended, and it is tried again."""
        lingers = timedelta(seconds=self._deps.limits.request_seconds)
        for _ in range(TRIES):
            try:
                dead = await declare_dead(self._deps.store, worker, self._dead_after, lingers=lingers)
            except asyncpg.LockNotAvailableError:
                await end_sessions(self._deps.store, worker)
                continue
            if dead:
                events.tell("worker_declared_dead", worker=worker)
            return dead
        return False
