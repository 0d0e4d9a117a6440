"""A worker in a process of its own, whose CPU is measured: `python -m benchmarks.workers DATABASE UPSTREAM …`.

It says `ready`, begins at a line on its standard input, and says what the running took as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain import events
from overnight.domain.limits import Limits
from overnight.loops import Bell
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Took:
    """What a worker used while it ran: seconds of CPU, when it began and ended by the wall clock, MiB at most."""

    cpu: float
    began: float
    ended: float
    peak_mib: float


class Running:
    """A worker process that waits for `go`; use it as a context manager, so that it never outlives the block."""

    def __init__(self, url: str, upstream: str, slots: int, requests: int, *, cap: int = 0, steps: int = 1) -> None:
        """It ends when `requests` are answered in the whole database; with `steps`, a batch after the other."""
        given = (url, upstream, slots, requests, cap, steps)
        self._command = [sys.executable, "-m", "benchmarks.workers", *map(str, given)]

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit("the worker did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def go(self) -> None:
        """Let it begin."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    @property
    def is_running(self) -> bool:
        """Whether it is still at work."""
        return self.process.poll() is None

    def took(self) -> Took:
        """Wait for its end."""
        said = self.process.communicate()[0]
        if self.process.returncode:
            raise SystemExit("the worker failed")
        return Took(**json.loads(said))


def run_all(workers: Sequence[Running]) -> list[Took]:
    """Let all begin at once and wait for their ends."""
    for worker in workers:
        worker.go()
    return [worker.took() for worker in workers]


# -- in that process -------------------------------------------------------------------------------------------


@asynccontextmanager
async def working(store: Store, upstream: str, slots: int, cap: int, committed: Bell) -> AsyncIterator[Worker]:
    """A worker as a served process has it, which the block lets run and stops."""
    limits = Limits(slots=slots, per_model=cap or None)
    life = Life(store, slots)
    life.capped = lambda: limits.per_model is not None
    await life.begin()
    routes = Routes([UpstreamRoute(upstream, slots=slots, most_reply_bytes=lambda: limits.result_bytes)])
    await routes.round(store, life)
    worker = Worker(store, life, limits, routes, bell=Bell(), on_committed=lambda _: committed.ring())
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    yield worker
    await routes.close()
    await life.end()


async def work(given: argparse.Namespace) -> Took:
    """Run all requests of a database, or all that nobody else does."""
    store, committed = await Store(given.database).open(), Bell()
    async with working(store, given.upstream, given.slots, given.cap, committed) as worker:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before, began = _cpu(), time.time()
        running = asyncio.create_task(worker.run())
        for step in range(given.steps):
            await _let_next_run(store, worker)
            while await _answered(store) < given.requests * (step + 1) // given.steps:
                # Where batches follow one another none waits for the next look; else a look is a statement more.
                await committed.wait(0.1) if given.steps > 1 else await asyncio.sleep(0.1)
        took = Took(_cpu() - before, began, time.time(), _peak_mib())
        await worker.stop(1.0)
        running.cancel()
        await asyncio.wait([running])
    await store.close()
    return took


async def _let_next_run(store: Store, worker: Worker) -> None:
    """Batches that follow one another are seeded as not begun."""
    async with store.session() as session:
        await session.connection.execute(
            "UPDATE batch SET status = 'in_progress' WHERE no = (SELECT min(no) FROM batch WHERE status = 'validating')"
        )
    worker.wake()


async def _answered(store: Store) -> int:
    async with store.session() as session:
        return int(await session.connection.fetchval("SELECT coalesce(sum(completed + failed), 0) FROM batch"))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mib() -> float:
    # The kernel's own count of the peak would begin with that of the process that started this one.
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def cpu_of_server(folder: Path) -> float:
    """Seconds of CPU that all processes of the PostgreSQL in this folder have used, the ended ones too."""
    first = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == first:
                ticks += sum(int(fields[i]) for i in (11, 12, 13, 14))
            elif int(fields[1]) == first:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Read what to do, do it, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database")
    parser.add_argument("upstream")
    for name in ("slots", "requests", "cap", "steps"):
        parser.add_argument(name, type=int)
    events.set_up_logging("warning")
    took = uvloop.run(work(parser.parse_args()))
    print(json.dumps({name: getattr(took, name) for name in Took.__slots__}))


if __name__ == "__main__":
    main()
