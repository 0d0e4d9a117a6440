"""Runs requests: leases blocks, keeps the slots of its routes full, and stores what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import asyncpg

from overnight.catalog.route import Route
from overnight.catalog.routes import TEND_EVERY, WATCH_EVERY, Routes
from overnight.domain import events
from overnight.domain.limits import Limits
from overnight.loops import Bell, repeat
from overnight.monotonic import monotonic
from overnight.store.answers import Fenced
from overnight.store.life import BEAT_EVERY, Life
from overnight.store.pool import LOST, Session, Store
from overnight.worker.attempt import Attempts
from overnight.worker.clock import Clock
from overnight.worker.connection import Connection
from overnight.worker.ending import Endings
from overnight.worker.grants import Grants
from overnight.worker.held import Held, Superseded
from overnight.worker.lease import Lessee
from overnight.worker.queued import Queued
from overnight.worker.record import Recorder
from overnight.worker.request import Request
from overnight.worker.start import Starter
from overnight.worker.surplus import Surplus
from overnight.worker.watch import Watch

LOOK_EVERY = 0.25
"""Seconds between two rounds when nothing rings."""
IDLE_LOOK_EVERY = 1.0
"""The same while nothing is held."""
CUT_OFF_EVERY, IDLE_CUT_OFF_EVERY = 0.25, 2.0
"""Seconds between two looks whether others may take this worker for dead, and between two while nothing runs. These
are surely less than the time from a heartbeat so old that nothing starts by it to that moment."""
STORE_WITHIN = 5.0
"""Seconds after the grace in which a stopping worker stores its answers; more are needed only without a database."""


class Worker:
    """One process's share of the running.

    Requests start and end in callbacks (`Starter`). Everything that touches the database is one sequence of
    statements on one connection, a round after the other: so no two of them can overtake each other.
    """

    def __init__(
        self,
        store: Store,
        life: Life,
        limits: Limits,
        routes: Routes,
        *,
        bell: Bell,
        only: Callable[[], Sequence[int] | None] = lambda: None,
        on_committed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`bell` rings when there may be new work or a cancelled batch; `only` restricts the worker to some batches.

        `on_committed` hears the number of each batch of which answers became durable.
        """
        self._store = store
        self._life = life
        self._limits = limits
        self._routes = routes
        self._outer_bell = bell
        self.bell = Bell()
        """Rings when a round is due."""
        self._routes_bell = Bell()
        self._rounds = asyncio.Lock()
        self._ends = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._connection = Connection(store, life)
        clock = Clock()
        self._held = Held(life.no)
        self._recorder = Recorder(self._held, self.bell.ring, on_committed)
        self._grants = Grants(self._held, limits, life, routes.load)
        self._queued = Queued(self._held)
        self._endings = Endings(self._held, self._queued, clock, self._recorder)
        self._starter = Starter(
            self._held, life, limits, self._grants, clock, self._recorder, self._endings, self.bell.ring
        )
        self._surplus = Surplus(self._held, routes, limits, life, self._grants, only)
        self._lessee = Lessee(
            self._held, routes, limits, self._grants, clock, only, self._surplus, self._endings.give_up
        )
        self._attempts = Attempts(self._held, limits, self._grants, self._recorder)
        self._watch = Watch(self._held, clock)
        self._follow(life, routes)

    @property
    def running(self) -> int:
        """Requests that run now."""
        return self._held.running

    @property
    def is_idle(self) -> bool:
        """Nothing is held, nothing waits to be stored."""
        return not self._held.batches and not self._held.unsent and self._recorder.is_empty

    @property
    def models(self) -> int:
        """How many models requests are or lately were held of."""
        return len(self._held.flows)

    @property
    def is_stopping(self) -> bool:
        """Nothing starts any more."""
        return self._endings.stopping

    @property
    def unstored(self) -> int:
        """Bytes of answers that are not durable yet."""
        return self._recorder.bytes

    def holds(self, batch: int) -> bool:
        """Whether blocks of a batch are held."""
        return batch in self._held.batches

    def wake(self) -> None:
        """There may be new work, a cancelled batch, or a server that came up."""
        self._lessee.look_now()
        self._watch.look_now()
        self._queued.look_now()
        self.bell.ring()

    async def run(self) -> None:
        """Run until cancelled. Routes are looked after and the heartbeat beats meanwhile."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(repeat("beat", self._life.try_to_beat, every=BEAT_EVERY))
                group.create_task(repeat("routes", self.tend_routes, every=TEND_EVERY, bell=self._routes_bell))
                group.create_task(repeat("signals", self._routes.watch, every=WATCH_EVERY))
                group.create_task(repeat("work", self.round, every=self._look_every, bell=self.bell))
                group.create_task(repeat("cut off", self.give_up_if_cut_off, every=self._cut_off_every))
                group.create_task(self._listen())
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection; what is held stays leased until this worker is declared dead or ends."""
        if self._timer is not None:
            self._timer.cancel()
        await self._connection.close()

    async def give_up_if_cut_off(self) -> bool:
        """Stop what runs of models with a cap once others may go on with it, so that it never runs twice at once."""
        await self._starter.give_up_if_cut_off()
        return False

    async def tend_routes(self) -> bool:
        """Look after the routes and tell the deployment what they serve."""
        return await self._routes.round(self._store, self._life)

    async def round(self) -> bool:
        """Do once all that touches the database; says whether to come again at once."""
        async with self._rounds:
            if self._held.worker != self._life.no:
                self._begin_anew(self._held.worker)
            worker = self._held.worker
            try:
                return await self._take_steps(await self._connection.session())
            except Superseded:
                return True
            except Fenced:
                await self._life.reborn(worker)
                return True
            except LOST as error:
                await self._connection.lose(error)
                self._lessee.look_now()
                return False

    async def stop(self, grace: float) -> None:
        """Start nothing more, store what ends within `grace` seconds, and give back the rest.

        Ends soon after the grace, whatever happens. The heartbeat must beat on until it returns.
        """
        self._endings.stopping = True
        self._ends = min(self._ends, monotonic() + grace)
        while not self.is_idle and (left := self._ends + STORE_WITHIN - monotonic()) > 0:
            if left <= STORE_WITHIN and not self._endings.cutting:
                self._cut()
            try:
                # Where the database stands still, a round takes as long as a statement may.
                async with asyncio.timeout(left):
                    if await self.round():
                        continue
            except TimeoutError:
                continue
            except asyncpg.PostgresError as error:
                # Such as a full disk: it may pass while there is time, and what stays held is taken over.
                events.tell("round_failed", error, round="work", in_a_row=1)
            await self.bell.wait(0.05)
        self._cut()

    def hurry(self) -> None:
        """Let the grace of a stop end now."""
        self._ends = monotonic()
        self.bell.ring()

    def _follow(self, life: Life, routes: Routes) -> None:
        """Let its heartbeats tell what is held, and hear of what lets requests start."""
        routes.on_change.append(self.wake)
        routes.load.on_end.append(self._take_slot_back)
        life.running = lambda: self._held.running
        life.running_of_closed = lambda: self._held.running_of_closed
        life.waiting = lambda: self._held.waiting
        life.idle = lambda: {} if self._endings.stopping else self._surplus.idle(monotonic())
        life.on_new_life.append(self._begin_anew)

    async def _take_steps(self, session: Session) -> bool:
        if self._connection.is_new:
            await self._lessee.reconcile(session)
            self._connection.is_new = False
        await self._watch.round(session)
        if self._endings.stopping:
            for batch in self._held.batches.values():
                self._held.close(batch)
        self._held.give_up_stuck(monotonic(), may_start=self._limits.slots > 0)
        self._surplus.look(monotonic())
        self._held.take_up_due(monotonic())
        found = False
        found |= await self._attempts.take_back(session)
        # Directly before blocks go back: whoever leases one finds what became of its requests.
        while await self._recorder.note_calls(session):
            found = True
        found |= await self._watch.let_go(session)
        if not self._endings.stopping:
            found |= await self._lessee.round(session)
        await self._queued.round(session)
        await self._grants.round(session)
        if not self._endings.stopping:
            found |= await self._attempts.round(session)
            self._starter.pump_all()
        done = (self._endings.stopping or self._held.alone is not None) and not self._held.running
        found |= await self._recorder.flush(session, everything=done)
        self._set_timer()
        return found

    def _set_timer(self) -> None:
        """Ring when the next flush or the next try of a waiting request is due."""
        now = monotonic()
        due = self._held.next_due()
        waits = [] if due is None else [due - now]
        if not self._recorder.is_empty:
            waits.append(self._recorder.wait(now))
        if self._timer is not None:
            self._timer.cancel()
        if waits:
            self._timer = asyncio.get_running_loop().call_later(max(min(waits), 0.0), self.bell.ring)

    def _cut_off_every(self) -> float:
        return CUT_OFF_EVERY if self._held.running else IDLE_CUT_OFF_EVERY

    def _look_every(self) -> float:
        return IDLE_LOOK_EVERY if self.is_idle else LOOK_EVERY

    async def _listen(self) -> None:
        while True:
            await self._outer_bell.wait(LOOK_EVERY * 1_000)
            self.wake()

    def _take_slot_back(self, route: Route) -> None:
        """An interactive request has ended."""
        self._starter.pump_route(route)
        if self._grants.is_changed() or any(flow.is_blocked for flow in self._held.flows_of(route)):
            self.bell.ring()

    def _begin_anew(self, old: int) -> None:
        """What was held belongs to others: forget it, and give up what runs."""
        calls = self._held.begin(self._life.no)
        self._recorder.forget()
        self._lessee.forget()
        for call in calls:
            assert type(call.what) is Request
            call.what.block.source.flow.route.cancel(call)
        # Only from here on others may have the slots of these calls.
        self._grants.begin_anew(old)
        self._routes_bell.ring()
        self.wake()

    def _cut(self) -> None:
        """Give up what still runs: it goes back."""
        self._endings.cutting = True
        self._starter.give_up_running()
