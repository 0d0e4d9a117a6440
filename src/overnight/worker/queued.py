"""Models that wait for a machine: once one process was told so, none of them starts anything of it for a while."""

from __future__ import annotations

from datetime import timedelta

from overnight.monotonic import monotonic
from overnight.store import grants
from overnight.store.pool import Session
from overnight.worker.flow import Flow
from overnight.worker.held import Held

LOOK_EVERY = 2.0
"""Seconds between two looks at what others were told, while there is work; a model is looked up before its first."""


class Queued:
    """Tells the others which models are queued, and hears it from them."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._to_tell: dict[str, float] = {}
        self._looked_up: set[Flow] = set()
        self._look_at = 0.0

    def hold(self, model: str, until: float) -> None:
        """A server said that a model waits for a machine: nothing of it starts before a moment of this clock."""
        self._hold_here(model, until)
        self._to_tell[model] = max(until, self._to_tell.get(model, 0.0))

    def look_now(self) -> None:
        """Something may have been told."""
        self._look_at = 0.0

    async def round(self, session: Session) -> None:
        """Tell what was heard here, then look at what was heard elsewhere."""
        worker = self._held.worker
        if self._to_tell:
            told = dict(self._to_tell)
            asked = monotonic()
            await grants.hold(session, worker, {m: timedelta(seconds=until - asked) for m, until in told.items()})
            self._held.check(worker)
            self._to_tell = {m: until for m, until in self._to_tell.items() if until > told.get(m, 0.0)}
        flows = {flow for flow in self._held.flows.values() if flow.untaken or flow.reserve or flow.waiting.lone}
        now = monotonic()
        if not flows or (now < self._look_at and flows <= self._looked_up):
            return
        self._look_at = now + LOOK_EVERY
        self._looked_up = flows
        for model, wait in (await grants.held(session, sorted({flow.model for flow in flows}))).items():
            self._hold_here(model, now + wait.total_seconds())

    def _hold_here(self, model: str, until: float) -> None:
        for flow in self._held.flows.values():
            if flow.model == model:
                flow.held_until = max(flow.held_until, until)
