"""A process's life as a worker: its number, its heartbeat, and what follows when either is lost."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import asyncpg

import overnight
from overnight.domain import events
from overnight.monotonic import monotonic
from overnight.store import grants
from overnight.store.answers import Fenced
from overnight.store.neighbours import Neighbours
from overnight.store.pool import LOST, Session, Store
from overnight.store.statements import load

_SQL = load("worker")

DEAD_AFTER = timedelta(seconds=10)
"""A heartbeat older than this, by the database's clock, ends a worker's life."""

MAY_START_WITHIN = DEAD_AFTER.total_seconds() / 2

CUT_OFF_AFTER = DEAD_AFTER.total_seconds() - 1.0
"""Seconds without a confirmed heartbeat after which a worker takes itself for dead: surely before others do."""

BEAT_EVERY = 1.5
BEAT_WITHIN = 5.0
FAREWELL_WITHIN = 5.0

LINGERS = timedelta(hours=1)
"""For how long the slots of a frozen worker stay taken, where nobody says how long a request may take."""

_SESSION = "overnight worker "

LONGEST_LOCK_WAIT = "1s"
"""Every write of a worker is far shorter; one that holds its rows for longer is frozen."""
GONE_AT_ONCE = 1_000
"""So many lives are looked up in one statement, which has that limit, too."""
END_WITHIN_MS = 2_000
"""Milliseconds for which it is waited that the server ends a process."""


class Life:
    """The life of this process in the deployment.

    Every write of a worker is fenced by its row: once it is declared dead it can write nothing, and `beat`
    begins a new life under a new number. `on_new_life` hears of that with the number of the old one.
    """

    def __init__(
        self,
        store: Store,
        slots: int = 0,
        clock: Callable[[], float] = monotonic,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`neighbours` see at once when this process is gone; None: only its heartbeat tells."""
        self._store = store
        self.neighbours = neighbours
        self._slots = slots
        self._clock = clock
        self._beginning = asyncio.Lock()
        self._confirmed = float("-inf")
        self.no = 0
        self.on_new_life: list[Callable[[int], None]] = []
        self.running: Callable[[], int] = lambda: 0
        self.running_of_closed: Callable[[], dict[int, int]] = dict
        """By number of the batch, of those that start nothing more here."""
        self.waiting: Callable[[], list[int]] = list
        """Batches of which requests are held that do not run; of those that may start more here the oldest."""
        self.idle: Callable[[], dict[str, int]] = dict
        """By model, slots that are free here and for which nothing could be leased."""
        self.idle_elsewhere: dict[str, int] = {}
        """What the others told of theirs, up to the last heartbeat."""
        self.capped: Callable[[], bool] = lambda: False
        """Whether models have a cap, so that nothing of them starts here without a grant."""
        self.on_settings: Callable[[dict[str, object], float], None] = lambda _settings, _asked: None
        """Hears with each heartbeat what was set, as `settings.read` gives it, and when the heartbeat was sent."""
        self.began_capped = False
        """Whether others were told so at the beginning of this life."""

    async def begin(self) -> None:
        """Enter the deployment under a new number."""
        sent, capped = self._clock(), self.capped()
        row = await self._store.row(
            _SQL["register_worker"],
            host=socket.gethostname(),
            pid=os.getpid(),
            version=overnight.__version__,
            slots=self._slots,
            capped=capped,
        )
        assert row is not None
        self.began_capped = capped
        self.no = row["no"]
        self._confirmed = sent
        if self.neighbours is not None:
            self.neighbours.enter(self.no, row["started_at"])
        events.tell("worker_registered", worker=self.no)

    @property
    def session_name(self) -> str:
        return session_name(self.no)

    def may_start(self) -> bool:
        """Whether a request may be started: the last heartbeat is surely younger than half the limit.

        The fence stops writes, not spending: a worker that was frozen must not send before it knows that it lives.
        Counted from when the heartbeat was sent, by this process's own clock.
        """
        return self._clock() - self._confirmed < MAY_START_WITHIN

    def is_cut_off(self) -> bool:
        """Whether others may take this worker for dead by now, so that what it runs may run a second time."""
        return self._clock() - self._confirmed >= CUT_OFF_AFTER

    async def beat(self) -> bool:
        """One heartbeat. Where this worker was declared dead, a new life begins."""
        no, sent = self.no, self._clock()
        closed = self.running_of_closed()
        row = await self._store.row(
            _SQL["beat_if_alive"],
            worker=no,
            running=self.running(),
            closed=list(closed),
            running_of_closed=list(closed.values()),
            waiting=self.waiting(),
            idle=self.idle(),
            fresh=timedelta(seconds=MAY_START_WITHIN),
        )
        if row is None:
            await self.reborn(no)
        elif no == self.no:
            self._confirmed = sent
            self.idle_elsewhere = row["idle_elsewhere"] or {}
            self.on_settings(row["settings"] or {}, sent)
        return False

    async def try_to_beat(self) -> bool:
        """One heartbeat, as a round that comes again soon where the database cannot be reached: others count the
        seconds. Who needs the database for more tells of it; nothing starts meanwhile, as the last one grows old.
        """
        with suppress(*LOST):
            async with asyncio.timeout(BEAT_WITHIN):
                await self.beat()
        return False

    async def try_to_end(self) -> None:
        """Say that this worker leaves, where the database takes it soon; else the others find it gone."""
        with suppress(*LOST, asyncpg.PostgresError):
            async with asyncio.timeout(FAREWELL_WITHIN):
                await self.end()

    async def reborn(self, old: int) -> None:
        """Begin anew after the fence refused a write of `old`: what it held belongs to others now.

        Several of this process may learn of it at once; the first begins the one new life.
        """
        async with self._beginning:
            if old != self.no:
                return
            events.tell("worker_was_dead", worker=old)
            await self.begin()
            for heard in self.on_new_life:
                heard(old)

    async def end(self) -> None:
        """Leave the deployment: what is still held is given back at once."""
        ended = False
        try:
            async with self._store.transaction() as session:
                await session.row(_SQL["retire_worker"], worker=self.no)
                await grants.release(session, self.no)
                await give_back(session, self.no)
            ended = True
        finally:
            if self.neighbours is not None:
                self.neighbours.leave(ended=ended)


def session_name(worker: int) -> str:
    """How the writing connection of a worker shows itself to the server, so that it can be ended from outside."""
    return f"{_SESSION}{worker}"


async def hold_fence(session: Session, worker: int) -> None:
    """Keep a worker from being declared dead until this transaction ends. Raises Fenced where it was before.

    The connection bears the worker's name as long, so that it can be ended from outside should this process freeze.
    """
    if await session.row(_SQL["hold_fence"], worker=worker, name=session_name(worker)) is None:
        raise Fenced


async def find_stale(store: Store, limit: timedelta) -> list[int]:
    """Living workers whose heartbeat is older than `limit`."""
    return [row["no"] for row in await store.rows(_SQL["find_stale_workers"], limit=limit)]


async def declare_dead(store: Store, worker: int, limit: timedelta | None, *, lingers: timedelta = LINGERS) -> bool:
    """End a worker's life and give back what it held, in one transaction; False if it ended before.

    Its heartbeat must be older than `limit`, else it is False, too; None: its process is gone, however young that is.
    Where one of its sessions is there, or was until `end_sessions`, it may be frozen and still have requests at a
    server: the slots that it had of models with a cap stay taken for as long as these may take, `lingers`.
    Raises asyncpg.LockNotAvailableError where one of its connections, or somebody else, holds a row for too long.
    """
    async with store.transaction() as session:
        await session.ask(session.connection.execute, f"SET LOCAL lock_timeout = '{LONGEST_LOCK_WAIT}'")
        if limit is None:
            dead = await session.row(_SQL["retire_worker"], worker=worker)
        else:
            dead = await session.row(_SQL["declare_dead_if_stale"], worker=worker, limit=limit)
        if dead is None:
            return False
        await grants.settle_death(session, worker, session_name(worker), lingers)
        await give_back(session, worker)
    return True


async def find_gone(store: Store, neighbours: Neighbours) -> list[int]:
    """Living workers of this database whose processes were neighbours and are gone, by their files.

    Files of those that were declared dead are removed; so are, once they are old, those that nobody looks for.
    """
    neighbours.forget_old()
    marks = neighbours.gone()[:GONE_AT_ONCE]
    if not marks:
        return []
    rows = await store.rows(
        _SQL["list_lives"], workers=[mark.no for mark in marks], started=[mark.started for mark in marks]
    )
    ended = {row["no"]: row["has_ended"] for row in rows}
    neighbours.pass_over(mark for mark in marks if mark.no not in ended)
    neighbours.forget(mark for mark in marks if ended.get(mark.no))
    return sorted(no for no, has_ended in ended.items() if not has_ended)


async def end_sessions(store: Store, worker: int, *, is_gone: bool = False) -> int:
    """End the writing connections of a worker; what they had not committed is undone. Returns how many there were.

    Where its process `is_gone`, they would have ended by themselves, and their absence says so.
    """
    if not is_gone:
        await grants.expect_end_of_sessions(store, worker, session_name(worker))
    return len(await store.rows(_SQL["end_sessions_of_worker"], name=session_name(worker)))


async def end_lost(session: Session, name: str, pids: Sequence[int]) -> None:
    """End what the server still does for lost connections of that name; what it had not committed is undone.

    `pids` are those of its processes. Raises ConnectionError, one of LOST, where one of them does not end.
    """
    rows = await session.rows(_SQL["end_backends_of_worker"], name=name, pids=pids, milliseconds=END_WITHIN_MS)
    if not all(row["ended"] for row in rows):
        raise ConnectionError("a statement of a lost connection is still under way")


async def free_lingering(store: Store) -> bool:
    """Free the slots of dead workers of which nothing can run any more; says whether there were any."""
    return await grants.release_ended(store, _SESSION)


async def forget_dead(store: Store) -> bool:
    """Remove some rows of workers that died long ago, and of models that nobody uses; says whether there were any."""
    models = await grants.forget_models(store)
    return await store.run(_SQL["forget_dead_workers"]) > 0 or models


async def give_back(session: Session, worker: int) -> None:
    """Give back whatever a dead worker held: the batches that it was checking or sealing, and its blocks."""
    await session.run(_SQL["give_back_batches_of_dead"], worker=worker)
    await session.run(_SQL["give_back_blocks_of_dead"], worker=worker)
