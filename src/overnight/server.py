"""The one place where the parts of a process are built and joined, started in order and stopped in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from overnight.api.app import Deps, create_app
from overnight.api.listen import Http, listening
from overnight.catalog.from_settings import engines_of, routes_of
from overnight.catalog.routes import TEND_EVERY, Routes
from overnight.current_limits import CurrentLimits, disk_is_low
from overnight.database import neighbours_of, opened_store
from overnight.domain import events
from overnight.domain.errors import Unusable
from overnight.domain.waiting import DISK_FULL, SAYS, SERVER_UNREACHABLE, cause_of
from overnight.engine.errors import EngineError
from overnight.engine.supervise import EngineState, LocalEngine, Phase
from overnight.interactive.tell import TELL_EVERY, Telling
from overnight.loops import Bell, Round, repeat, uncancel
from overnight.monotonic import monotonic
from overnight.settings import Part, Settings, check_host, prepare_data_dir
from overnight.store import accounts
from overnight.store.batches import find_batch_no
from overnight.store.life import BEAT_EVERY, Life
from overnight.store.listen import SETTINGS, TIDY, WORK, Listener
from overnight.store.outage import DatabaseLost
from overnight.store.pool import LOST, Store
from overnight.upkeep.rescue import NEIGHBOURS_EVERY, Rescue
from overnight.upkeep.rounds import Upkeep, rounds
from overnight.worker.worker import Worker

LONGEST_WRITE_OUT = 5.0
"""Seconds; what is missing then is written at the next start."""


@dataclass(slots=True)
class Focus:
    """Which batches this process cares for: all of them, or (for `overnight run`) only its own."""

    batches: tuple[int, ...] | None = None
    """Their numbers; None: all batches."""

    def only(self) -> tuple[int, ...] | None:
        return self.batches


class Server:
    """One process of Overnight: what runs in it, and whether it is well."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        limits: CurrentLimits,
        life: Life,
        routes: Routes,
        engines: list[LocalEngine],
        focus: Focus,
    ) -> None:
        self.settings = settings
        self.store = store
        self.limits = limits
        self.life = life
        self.routes = routes
        self.focus = focus
        self.running = Bell()
        """There may be something new to run or to stop."""
        self.tidying = Bell()
        """There may be something new to check, seal or write out."""
        self.listener = Listener(store, {WORK: self.running, TIDY: self.tidying, SETTINGS: limits.bell})
        life.on_settings = self._take_settings
        self.engines = engines
        self.worker: Worker | None = None
        self.follow: Round | None = None
        self.http: Http | None = None
        self.url = ""

    def hurry(self) -> None:
        """Let the grace of a stop end now."""
        for part in (self.http, self.worker):
            if part is not None:
                part.hurry()

    async def care_for(self, batch_id: str) -> None:
        """Run, check and seal this batch, and no others but those named before."""
        number = await find_batch_no(self.store, batch_id)
        if number is None:
            raise Unusable(f"The batch {batch_id} is not in this database.")
        self.focus.batches = (*(self.focus.batches or ()), number)
        self.running.ring()
        self.tidying.ring()

    def why_waiting(self) -> str | None:
        """What keeps every request waiting now, in a few words; None when nothing does."""
        cause = cause_of([route.blocked for route in self.routes])
        if cause == SERVER_UNREACHABLE:
            return f"{', '.join(route.name for route in self.routes)} cannot be reached or fails"
        return None if cause is None else SAYS[cause]

    def _take_settings(self, stored: Mapping[str, object], asked: float) -> None:
        """A heartbeat told what was set."""
        if self.limits.take(stored, asked):
            self.running.ring()

    async def failed(self) -> None:
        """Wait for ever, or until a local engine turns out to be unable to start: then raise Unusable."""
        try:
            await asyncio.gather(*(engine.wait_ready() for engine in self.engines))
        except EngineError as e:
            raise Unusable(str(e)) from None
        await asyncio.Event().wait()

    async def unhealthy(self) -> str | None:
        """Why this process can't do its work now; None when it is well."""
        for engine in self.engines:
            if not engine.is_ready:
                phase, reason = engine.state.phase, engine.state.reason
                if phase is not Phase.LOADING:
                    return f"engine: {reason or phase}"
                return "loading" if reason is None else f"loading: again, since {reason}"
        if disk_is_low(self.settings.data_dir):
            return "disk: less than 5 % or 1 GiB is free"
        try:
            await self.store.check(5)
        except TimeoutError as e:
            return f"database: {e}"
        except LOST as e:
            return f"database: {type(e.__cause__ if isinstance(e, DatabaseLost) else e).__name__}"
        if not self.life.may_start():
            return "worker stalled: its heartbeat is not confirmed"
        return None


@asynccontextmanager
async def running(settings: Settings, focus: Focus | None = None) -> AsyncIterator[Server]:
    """Run a whole process of Overnight while the block runs. Raises Unusable where something it needs is missing.

    On leaving, running requests get their grace, the rest is handed back, and everything that was started is stopped.
    """
    check_host(settings.host)
    prepare_data_dir(settings.data_dir)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(settings))
        limits = CurrentLimits(store, settings.limits, partial(disk_is_low, settings.data_dir))
        slots = settings.limits.slots if Part.WORKER in settings.parts else 0
        life = Life(store, slots, neighbours=neighbours_of(settings))
        life.capped = lambda: settings.limits.per_model is not None
        await life.begin()
        stack.push_async_callback(life.try_to_end)
        await limits.take_first(os.environ)
        await limits.round()
        engines = engines_of(settings) if Part.WORKER in settings.parts else []
        routes = Routes(routes_of(settings, engines), runs_batches=Part.WORKER in settings.parts)
        routes.all_blocked = lambda: DISK_FULL if limits.is_disk_low else None
        stack.push_async_callback(routes.close)
        server = Server(settings, store, limits, life, routes, engines, focus or Focus())
        for engine in engines:
            engine.on_change(partial(_tell_of_engine, engine))
            await engine.start()
            stack.push_async_callback(engine.stop)
        # Once before anything is answered, so that the first batch finds the models there.
        with contextlib.suppress(*LOST):
            await routes.round(store, life)
        if Part.API in settings.parts:
            await stack.enter_async_context(_listening(server))
        async with _loops(server):
            gc.collect()
            # What was made so far lives as long as the process: the collector need not look at it again.
            gc.freeze()
            gc.set_threshold(50_000, 50, 100)
            events.tell("started", url=server.url, data_dir=str(settings.data_dir))
            yield server


def _tell_of_engine(engine: LocalEngine, state: EngineState) -> None:
    told = {Phase.LOADING: "engine_starting", Phase.READY: "engine_ready", Phase.DOWN: "engine_down"}
    if state.phase in told:
        events.tell(told[state.phase], model=engine.model.id, starts=state.starts, reason=state.reason)


@asynccontextmanager
async def _listening(server: Server) -> AsyncIterator[None]:
    """Answer HTTP calls at the address of the settings; in the end they have what batches have left of the grace."""
    settings = server.settings
    deps = Deps(
        store=server.store,
        limits=settings.limits,
        owner=await accounts.local_owner(server.store),
        health=server.unhealthy,
        hosts=settings.hosts,
        disk_is_low=lambda: disk_is_low(settings.data_dir),
        bell=Bell(server.running, server.tidying),
        routes=server.routes,
    )
    async with listening(create_app(deps), settings.host, settings.port) as server.http:
        server.url = server.http.url
        yield


def _telling(one: Round, bell: Bell) -> Round:
    """A round that, having done something, lets the worker look at what became of it."""

    async def round_() -> bool:
        found = await one()
        if found:
            bell.ring()
        return found

    return round_


def _work(server: Server) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
    """What runs in this process beside answering calls: the worker and the rounds of upkeep, each by its name."""
    settings = server.settings
    limits = server.limits
    look = _telling(limits.round_if_due, server.running)
    yield "limits", repeat("limits", look, every=limits.wait, bell=limits.bell)
    yield "listen", server.listener.run()
    if Part.WORKER in settings.parts:
        server.worker = Worker(
            server.store,
            server.life,
            settings.limits,
            server.routes,
            bell=server.running,
            only=server.focus.only,
            on_committed=lambda _batch: server.tidying.ring(),
        )
        yield "worker", server.worker.run()
    else:
        yield "beat", repeat("beat", server.life.try_to_beat, every=BEAT_EVERY)
        tend = partial(server.routes.round, server.store, server.life)
        yield "routes", repeat("routes", tend, every=TEND_EVERY)
        telling = Telling(server.store, server.life, settings.limits, server.routes.load)
        yield "interactive", repeat("interactive", telling.round, every=TELL_EVERY)
    yield from _upkeep(server)


def _upkeep(server: Server) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
    """The rounds of upkeep; where that is not among the parts, only the look at the neighbours."""
    settings = server.settings
    deps = Upkeep(
        store=server.store,
        life=server.life,
        limits=settings.limits,
        only=server.focus.only,
        incremental_dir=settings.incremental_dir or settings.data_dir / "incremental",
    )
    if Part.UPKEEP not in settings.parts:
        look = _telling(Rescue(deps).look_at_neighbours, server.running)
        yield "neighbours", repeat("neighbours", look, every=NEIGHBOURS_EVERY)
        return
    for name, one, every in rounds(deps):
        if name == "follow":
            server.follow = one
        yield name, repeat(name, _telling(one, server.running), every=every, bell=server.tidying)


async def _write_out(server: Server) -> None:
    """Let the incremental files have what was committed last; after a crash the next start does this."""
    if server.follow is None:
        return
    with contextlib.suppress(*LOST):
        async with asyncio.timeout(LONGEST_WRITE_OUT):
            while await server.follow():
                pass


@asynccontextmanager
async def _loops(server: Server) -> AsyncIterator[None]:
    """Run the worker and the rounds of upkeep while the block runs; then stop them, the worker with its grace."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work, name=name) for name, work in _work(server)]
            try:
                yield
            finally:
                uncancel()
                if server.http is not None:
                    server.http.stop_by = monotonic() + server.settings.grace_seconds
                if server.worker is not None:
                    await server.worker.stop(server.settings.grace_seconds)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await _write_out(server)
    except BaseExceptionGroup as failed:
        # An error of the block itself comes out as it went in.
        if len(failed.exceptions) == 1:
            raise failed.exceptions[0] from None
        raise
