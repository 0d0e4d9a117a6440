"""A deployment under fault: one PostgreSQL, three processes each with a wire to it, a recording model server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from overnight.domain import ids
from overnight.store.embedded import GONE, Embedded, ensure
from tests.conftest import BINARIES
from tests.faults.caller import Caller
from tests.faults.job import Job, plan
from tests.faults.lateness import Lateness
from tests.faults.launch import DEAD_AFTER
from tests.faults.process import Process
from tests.faults.recorder import Recorder
from tests.faults.spans import Spans
from tests.faults.uses import Uses, used_at_rest
from tests.faults.watcher import Watcher
from tests.faults.wire import State, Wire

LAYOUTS = (
    {"a": "api,worker,upkeep", "b": "worker", "c": "worker,upkeep"},
    {"a": "api", "b": "worker,upkeep", "c": "worker,upkeep"},
    {"a": "api,upkeep", "b": "worker", "c": "api,worker,upkeep"},
)
"""What the processes do; the first one is called."""
SETTINGS = {"shared_buffers": "32MB", "max_connections": "100", "fsync": "off"}
"""A process that is killed loses nothing that it gave to the kernel; only a machine that dies would."""
ON_A_SMALL_DISK = {"max_wal_size": "32MB", "min_wal_size": "32MB"}
WORKS_WITHIN = 60.0
END_WITHIN = 300.0
LONG = 15.0
"""Seconds after which it is worth a line what a batch still has: nothing that was healed takes so long."""
FINAL = ("completed", "failed", "expired", "cancelled")


class Stage:
    """What faults are done to, and what is known of it from outside."""

    def __init__(self, folder: Path, server: Embedded, chance: random.Random, times: str) -> None:
        self.folder = folder
        self.server = server
        self.chance = chance
        self.dead_after = DEAD_AFTER[times]
        self.times = times
        self.recorder = Recorder(chance.randrange(2**32))
        self.processes: dict[str, Process] = {}
        """They are called through the first one, `a`."""
        self.jobs: list[Job] = []
        self.watcher = Watcher(server.dsn)
        self.late = Lateness()
        self.caller = Caller(lambda: self.processes["a"].url, chance)
        self.disk: Path | None = None
        """The small disk that the server keeps its data on, where there is one."""
        self.checked: dict[str, int] = {}
        """Batches of earlier runs, by tag, that were found right, and how often requests of each had been sent."""
        self.outages = Spans()
        """When the database was away, for all of them."""
        self.baseline: dict[str, Uses] = {}
        """What each process used when it had started and nothing had happened yet."""
        self.ended_alone: list[str] = []
        """Processes that ended though nobody had ended them."""
        self._number = 0

    async def add(self, name: str, parts: str, env: Mapping[str, str] | None = None) -> None:
        """Add a process that is not started yet."""
        folder = self.server.dsn_kwargs()
        wire = Wire(Path(str(folder["host"])) / f".s.PGSQL.{folder['port']}")
        await wire.start()
        process = Process(name, parts, self.folder, wire, {"OVERNIGHT_FAULTS_TIMES": self.times, **(env or {})})
        process.upstream = self.recorder.url(name)
        self.processes[name] = process

    @property
    def workers(self) -> list[Process]:
        """Processes that run requests."""
        return [process for process in self.processes.values() if process.runs]

    async def start(self, name: str) -> None:
        """Start a process, and let the model server know it by its id."""
        process = self.processes[name]
        starting = asyncio.create_task(process.start())  # awaited below; it sets the id at once
        while not process.pid and not starting.done():
            await asyncio.sleep(0)
        while not starting.done():
            self.recorder.pids[name] = process.pid
            await asyncio.sleep(0.02)
        await starting
        self.recorder.pids[name] = process.pid

    async def take_baseline(self) -> None:
        """Note what each process uses once all of them are at work: a worker says what it serves with its first round,
        a moment after it has started."""
        async with asyncio.timeout(WORKS_WITHIN):
            while await self.value("SELECT count(DISTINCT worker) FROM served") < len(self.workers):
                await asyncio.sleep(0.05)
        for process in self.processes.values():
            self.baseline[process.name] = await used_at_rest(process)

    def kill(self, name: str) -> None:
        """kill -9 of a process."""
        self.processes[name].kill()

    async def submit(self, requests: int, source: str | None = None) -> Job:
        """Hand over a batch of so many requests."""
        job = self.plan(requests, source)
        await self.caller.create(job)
        return job

    def plan(self, requests: int, source: str | None = None) -> Job:
        """A batch that is known here and not handed over yet."""
        self._number += 1
        job = plan(f"job{self._number:03}", requests, self.chance, self.recorder, source)
        self.jobs.append(job)
        return job

    async def sql(self, statement: str, *given: Any) -> list[Any]:
        """Rows of a statement, as nobody's wire sees them; asked again while the server is away."""
        deadline = time.monotonic() + 180
        while True:
            try:
                connection = await asyncpg.connect(self.server.dsn, timeout=10)
                try:
                    rows: list[Any] = await connection.fetch(statement, *given)
                    return rows
                finally:
                    connection.terminate()
            except GONE:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def value(self, statement: str, *given: Any) -> Any:
        """The first value of the first row."""
        rows = await self.sql(statement, *given)
        return rows[0][0] if rows else None

    async def look_up(self, job: Job) -> None:
        """Find the batch of a job by what its create said of it."""
        rows = await self.sql("SELECT id FROM batch WHERE metadata->>'tag' = $1", job.tag)
        assert len(rows) <= 1, f"{len(rows)} batches were made of one create call"
        job.batch = ids.show(ids.BATCH, rows[0]["id"]) if rows else None

    async def until_ended(self, job: Job) -> None:
        """Wait until a batch is final or deleted."""
        began = time.monotonic()
        told = False
        status = None
        while (waited := time.monotonic() - began) < END_WITHIN:
            if waited > LONG and not told:
                told = True
                print(f"{job.tag} is {status} after {LONG:.0f} s: {await self.left(job)}", flush=True)
            status = await self.value("SELECT status FROM batch WHERE id = $1", ids.read(ids.BATCH, job.batch or ""))
            if status is None or status in FINAL:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{job.tag} ({job.batch}) is {status} after {END_WITHIN:.0f} s: {await self.left(job)}")

    async def left(self, job: Job) -> str:
        """What a batch that does not end still has."""
        rows = await self.sql(
            """SELECT b.status, b.ends_as, b.paused, b.total, b.completed, b.failed, b.validator, b.sealer,
                (SELECT jsonb_agg(jsonb_build_array(seq, state, worker, leases)) FROM block k WHERE k.batch = b.no),
                (SELECT now() - max(at) FROM attempt a WHERE a.batch = b.no) AS written_down,
                (SELECT now() - max(at) FROM segment s WHERE s.batch = b.no) AS answered,
                (SELECT jsonb_agg(jsonb_build_array(w.no, pid, dead_at, now() - beat.at, running))
                    FROM worker w JOIN beat ON beat.worker = w.no WHERE dead_at IS NULL) AS workers,
                (SELECT jsonb_agg(jsonb_build_array(line, try, code, counted, lost, now() - at, again_at - now()))
                    FROM call c WHERE c.batch = b.no AND again_at > now()) AS waiting
            FROM batch b WHERE id = $1""",
            ids.read(ids.BATCH, job.batch or ""),
        )
        return str([dict(row) for row in rows])

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The database is away for all while the block runs."""
        self.outages.begin()
        try:
            yield
        finally:
            self.outages.end()

    async def heal(self) -> None:
        """Undo every fault: whole wires, all processes running, a model server that is well."""
        await self.server.revive()
        await self.recorder.up()
        for process in self.processes.values():
            process.wire.set(State.WHOLE)
            process.thaw()
            if process.running is not None and process.running.poll() is not None:
                self.ended_alone.append(f"{process.name} ended by itself, with {process.running.returncode}")
            if process.running is None or process.running.poll() is not None:
                await self.start(process.name)

    async def close(self) -> None:
        """End everything that was started."""
        for process in self.processes.values():
            process.thaw()
            process.kill()
            await process.wire.stop()
        await self.recorder.down()


@asynccontextmanager
async def staged(
    folder: Path,
    chance: random.Random,
    *,
    times: str = "short",
    env: Mapping[str, Mapping[str, str]] | None = None,
    disk: Path | None = None,
    cap: int | None = None,
) -> AsyncIterator[Stage]:
    """A running deployment; `env` are variables of single processes, `disk` is a small one for the server's data.

    `cap` is how many requests may run at once over all processes; None: as many as each of them may.
    """
    binaries = Path(BINARIES) if BINARIES else None
    settings = SETTINGS if disk is None else {**SETTINGS, **ON_A_SMALL_DISK}
    async with await ensure((disk or folder) / "postgres", binaries=binaries, settings=settings) as server:
        stage = Stage(folder, server, chance, times)
        stage.disk = disk
        stage.recorder.cap = cap
        await stage.recorder.up()
        watching = [asyncio.create_task(look.run()) for look in (stage.watcher, stage.late)]  # cancelled below
        try:
            for name, parts in chance.choice(LAYOUTS).items():
                more = {} if cap is None else {"BATCH_MODEL_CONCURRENCY": str(cap)}
                await stage.add(name, parts, {**more, **(env or {}).get(name, {})})
            await asyncio.gather(*(stage.start(name) for name in stage.processes))
            await stage.take_baseline()
            yield stage
        finally:
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)
            await stage.close()
