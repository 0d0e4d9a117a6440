"""Sees within a second when a batch is cancelled, paused or closed, and lets go of blocks that have ended."""

from __future__ import annotations

from overnight.domain import events
from overnight.monotonic import monotonic
from overnight.store import leases
from overnight.store.pool import Session
from overnight.worker.clock import Clock
from overnight.worker.held import Held

LOOK_EVERY = 1.0
LET_GO_EVERY = 0.2
"""Seconds between two groups of blocks that are let go while their batches run on."""
LET_GO_AT_ONCE = 1_000


class Watch:
    """Looks at the batches of which blocks are held."""

    def __init__(self, held: Held, clock: Clock) -> None:
        self._held = held
        self._clock = clock
        self._look_at = 0.0
        self._let_go_at = 0.0

    def look_now(self) -> None:
        """Something may have changed."""
        self._look_at = 0.0

    async def round(self, session: Session) -> None:
        """Close here what may start nothing more: nothing of it starts, what runs may end."""
        asked = monotonic()
        if asked < self._look_at or not self._held.batches:
            return
        self._look_at = asked + LOOK_EVERY
        worker = self._held.worker
        looked_at = list(self._held.batches.values())
        states, now = await leases.states(session, [batch.no for batch in looked_at])
        self._held.check(worker)
        if now is not None:
            self._clock.set(now, asked)
        for batch in looked_at:
            state = states.get(batch.no)
            if not batch.closed and (state is None or not state.is_live):
                self._held.close(batch)
            if state is not None:
                batch.keep_pace(state.pace)

    async def let_go(self, session: Session) -> bool:
        """Give up the leases of blocks of which nothing is pending; says whether there were any."""
        ended = self._held.let_go[:LET_GO_AT_ONCE]
        if not ended or not self._is_urgent(monotonic()):
            return False
        worker = self._held.worker
        await leases.end_leases(session, worker, [(b.source.batch.no, b.seq, b.whole) for b in ended])
        self._held.check(worker)
        del self._held.let_go[: len(ended)]
        back = sum(not block.whole for block in ended)
        if back:
            events.tell("blocks_handed_back", blocks=back)
        for block in ended:
            self._held.part_with(block)
        return True

    def _is_urgent(self, now: float) -> bool:
        """Others wait for the blocks: to seal a batch, or to run what goes back. Else a group is collected."""
        if now >= self._let_go_at or any(not b.whole or not b.source.batch.unanswered for b in self._held.let_go):
            self._let_go_at = now + LET_GO_EVERY
            return True
        return False
