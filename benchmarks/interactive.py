"""What interactive requests notice of Overnight, and of the batches that run in the same process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from benchmarks import choice, dispatch, house
from benchmarks.budgets import note
from benchmarks.mock import Mock
from benchmarks.relay import Relay
from overnight.api.app import Deps, create_app
from overnight.api.listen import listening
from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain.limits import Limits
from overnight.loops import Bell
from overnight.store import accounts
from overnight.store.embedded import ensure
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.store.served import Offer
from overnight.worker.worker import Worker

DELAY_MS = 200
CALLERS = 16
PAUSE = 0.1
"""Seconds at the most, by chance, between an answer and its caller's next request: or all callers would fall into step,
and their answers, which come in the same moment, would wait for one another."""
SECONDS = 10.0
QUICK_SECONDS = 3.0
A_SECOND = 3_500
"""Requests of batches at the most."""
LAG_EVERY = 0.005
ASKED = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}).encode()


@dataclass(frozen=True, slots=True)
class Case:
    """What runs beside the interactive requests: so many requests of batches, of their model or of another one."""

    says: str
    in_flight: int = 0
    other: bool = False
    yields: bool = True


CASES = (
    Case("nothing else runs"),
    Case("512 of the same model, yielding", 512),
    Case("512 of the same model, not yielding", 512, yields=False),
    Case("10,000 of another model", 10_000, other=True),
)


class Other(UpstreamRoute):
    """A server that says it serves another model than it does."""

    @property
    def offers(self) -> tuple[Offer, ...]:
        return (Offer("other", (), None, ("chat",)),)


# -- the callers, in a process of their own --------------------------------------------------------------------


async def call(port: int, until: float, took: list[float]) -> None:
    """One caller, whose requests come one after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    asked = f"{head}Content-Length: {len(ASKED)}\r\n\r\n".encode() + ASKED
    while time.monotonic() < until:
        began = time.perf_counter()
        writer.write(asked)
        told = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not told.startswith(b"http/1.1 200"):
            raise RuntimeError(told.decode())
        await reader.readexactly(int(told.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        took.append((time.perf_counter() - began) * 1_000)
        await asyncio.sleep(random.uniform(0, PAUSE))
    writer.close()


async def calls(port: int, seconds: float) -> None:
    """All callers; prints what one request took, in milliseconds."""
    took: list[float] = []
    until = time.monotonic() + seconds
    await asyncio.gather(*(call(port, until, took) for _ in range(CALLERS)))
    took.sort()
    print(json.dumps({"count": len(took), "p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)]}))


async def measure(port: int, seconds: float) -> dict[str, float]:
    """What the callers saw of the server at a port."""
    command = (sys.executable, "-m", "benchmarks.interactive", "--call", str(port), "--seconds", str(seconds))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    seen: dict[str, float] = json.loads(said)
    return seen


# -- the process that they call --------------------------------------------------------------------------------


@asynccontextmanager
async def working(dsn: str, case: Case, mock: Mock, slow: Mock) -> AsyncIterator[tuple[str, Worker]]:
    """The application and a worker on one loop, as in `overnight serve`."""
    store = await Store(dsn).open()
    limits = Limits(yields_to_interactive=case.yields)
    life = Life(store, limits.slots)
    await life.begin()

    def most() -> int:
        return limits.result_bytes

    routes = Routes(
        [
            UpstreamRoute(mock.url, slots=512, most_reply_bytes=most),
            Other(slow.url, slots=10_000, most_reply_bytes=most),
        ]
    )
    await routes.round(store, life)
    worker = Worker(store, life, limits, routes, bell=Bell())
    running = asyncio.create_task(worker.run())
    deps = Deps(store, limits, await accounts.local_owner(store), house.well, Bell(), routes=routes)
    async with listening(create_app(deps), "127.0.0.1", 0) as http:
        # As a served process does.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        yield http.url, worker
    await worker.stop(0.0)
    running.cancel()
    await asyncio.wait([running])
    await routes.close()
    await life.end()
    await store.close()


async def lag(late: list[float]) -> None:
    """Note in milliseconds how late the loop comes to what is due."""
    while True:
        due = time.perf_counter() + LAG_EVERY
        await asyncio.sleep(LAG_EVERY)
        late.append((time.perf_counter() - due) * 1_000)


async def run(case: Case, dsn: str, mock: Mock, slow: Mock, seconds: float) -> None:
    """One row of the table."""
    requests = int(A_SECOND * (seconds + 15)) if case.in_flight else 0
    await dispatch.seed(dsn, dispatch.Case(case.in_flight, requests, 1, 0, 0))
    if case.other:
        await rename(dsn)
    async with working(dsn, case, mock, slow) as (url, worker):
        while worker.running < 0.9 * case.in_flight:
            await asyncio.sleep(0.1)
        direct = await measure(mock.port, seconds / 2)
        with Relay(mock.port) as relay:
            relayed = await measure(relay.port, seconds / 2)
        late: list[float] = []
        watching = asyncio.create_task(lag(late))
        before = resource.getrusage(resource.RUSAGE_SELF)
        seen = await measure(int(url.rsplit(":", 1)[1]), seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
        beside = worker.running
        watching.cancel()
    late.sort()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    of_calls = [f"{seen[part] - direct[part]:.2f}" for part in ("p50", "p99")]
    shown = [f"{value:.1f}" for value in (direct["p50"], direct["p99"], seen["p50"], seen["p99"])]
    shown.insert(2, f"{relayed['p50'] - direct['p50']:.2f}")
    of_process = [f"{cpu / seen['count'] * 1e6:,.0f}", f"{late[int(len(late) * 0.99)]:.1f}", f"{late[-1]:.1f}"]
    budget = note("interactive", seen["p50"] - direct["p50"])
    print("|", " | ".join([case.says, f"{beside:,}", *shown, *of_calls, *of_process, budget]), "|", flush=True)


async def rename(dsn: str) -> None:
    """Let all batches be of the other model."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE batch SET model = 'other'; UPDATE block SET model = 'other'")
    await connection.close()


async def table(folder: Path, seconds: float) -> None:
    """Print the table."""
    print(
        f"Replies after {DELAY_MS} ms, {CALLERS} callers, each with pauses of up to {PAUSE * 1_000:g} ms.\n\n"
        "| beside | in flight | direct p50, ms | direct p99 | a bare relay over it | p50 | p99 | over it p50 | p99 "
        "| CPU of the process a call, µs | loop late p99, ms | most | budget |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    async with await ensure(folder, settings=dispatch.SETTINGS) as database:
        for number, case in enumerate(CASES):
            with Mock(DELAY_MS, DELAY_MS) as mock, Mock(2_000, 6_000) as slow:
                connection = await asyncpg.connect(database.dsn)
                await connection.execute(f"CREATE DATABASE case_{number}")
                await connection.close()
                await run(case, database.dsn_of(f"case_{number}"), mock, slow, seconds)


def main() -> None:
    """Read the arguments and measure."""
    parser = choice.parser(__doc__)
    parser.add_argument("--seconds", type=float, help=f"how long each case is measured (default: {SECONDS:g})")
    parser.add_argument("--call", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    if given.call is not None:
        asyncio.run(calls(given.call, seconds))
        return
    house.run(lambda folder: table(folder, seconds))


if __name__ == "__main__":
    main()
