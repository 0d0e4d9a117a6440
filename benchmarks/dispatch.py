"""What running a request costs: the worker's and PostgreSQL's CPU, requests a second, memory, slots filled."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import uvloop

from benchmarks.mock import Mock
from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain import events, ids
from overnight.domain.limits import BLOCK_LINES, Limits
from overnight.loops import Bell
from overnight.store import zstd
from overnight.store.embedded import ensure
from overnight.store.life import Life
from overnight.store.migrate import migrate
from overnight.store.pool import Store
from overnight.worker.worker import Worker

CHAT = "/v1/chat/completions"
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "track_io_timing": "off"}
WORDS = Path(__file__).with_name("mock_upstream.py").read_text().split()


@dataclass(frozen=True, slots=True)
class Case:
    """Slots, requests in all, batches that they are spread over, and the mock's delays in milliseconds."""

    slots: int
    requests: int
    batches: int
    fastest: int
    slowest: int


CASES = (
    Case(64, 60_000, 1, 0, 3),
    Case(1_000, 60_000, 1, 50, 150),
    Case(10_000, 200_000, 1, 200, 600),
    Case(10_000, 200_000, 1_000, 200, 600),
)
LONG = Case(10_240, 100_000, 1, 2_000, 6_000)


# -- what is measured, in a process of its own -----------------------------------------------------------------


async def work(url: str, upstream: str, slots: int, requests: int) -> dict[str, float]:
    """Run all requests of a database; returns what it took."""
    store = await Store(url).open()
    life = Life(store, slots)
    await life.begin()
    limits = Limits(slots=slots)
    routes = Routes([UpstreamRoute(upstream, slots=slots, most_reply_bytes=lambda: limits.result_bytes)])
    await routes.round(store, life)
    finished = asyncio.Event()
    worker = Worker(store, life, limits, routes, bell=Bell(), on_committed=lambda _: finished.set())
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    running = asyncio.create_task(worker.run())
    while not await is_done(store, requests):
        await asyncio.sleep(0.1)
    took = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    # The kernel's own count of the peak would begin with that of the process that started this one.
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    await worker.stop(1.0)
    running.cancel()
    await asyncio.wait([running])
    await routes.close()
    await life.end()
    await store.close()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "seconds": took, "peak_mib": peak}


async def is_done(store: Store, requests: int) -> bool:
    """Whether every request was answered well."""
    async with store.session() as session:
        done = await session.connection.fetchval("SELECT coalesce(sum(completed + failed), 0) FROM batch")
        return int(done) >= requests


# -- around it -------------------------------------------------------------------------------------------------


def lines(count: int) -> list[bytes]:
    """Requests of about 1 KB that share 50 system prompts."""
    draw = random.Random(1)
    prompts = [" ".join(draw.choices(WORDS, k=30))[:300] for _ in range(50)]
    found = []
    for i in range(count):
        messages = [
            {"role": "system", "content": prompts[i * len(prompts) // count]},
            {"role": "user", "content": " ".join(draw.choices(WORDS, k=60))[:550]},
        ]
        body = {"model": "mock", "messages": messages, "max_tokens": 100}
        found.append(json.dumps({"custom_id": f"request-{i}", "method": "POST", "url": CHAT, "body": body}).encode())
    return found


async def seed(url: str, case: Case) -> None:
    """Fill a database with batches that may run."""
    connection = await asyncpg.connect(url)
    await migrate(connection)
    each = case.requests // case.batches
    made = lines(each)
    blocks = [
        (first // BLOCK_LINES, len(made[first : first + BLOCK_LINES]),
         list(range(first, min(first + BLOCK_LINES, each))),
         zstd.compress(b"\n".join(made[first : first + BLOCK_LINES])))
        for first in range(0, each, BLOCK_LINES)
    ]  # fmt: skip
    for i in range(case.batches):
        no = await connection.fetchval(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, status, model, completion_window, retention,"
            " total, expires_at, in_progress_at) VALUES (next_batch_no(now()), $1, 1, 'chat', $2, 'file',"
            " 'in_progress', 'mock', '24h', '7 days', $3, now() + interval '1 day', now()) RETURNING no",
            ids.new(i), CHAT, each,
        )  # fmt: skip
        await connection.copy_records_to_table(
            "block",
            columns=("batch", "seq", "model", "state", "count", "lines", "ids", "data"),
            records=[(no, seq, "mock", "ready", count, at, at, data) for seq, count, at, data in blocks],
        )
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")
    await connection.close()


def cpu_of_server(folder: Path) -> float:
    """Seconds of CPU that all processes of the server have used, the ended ones too."""
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


def watch(mock: Mock, process: subprocess.Popen[str], case: Case) -> float:
    """The share of slots filled while the middle 40 % of the requests ran."""
    samples = [mock.stats()]
    while process.poll() is None:
        time.sleep(0.1)
        samples.append(mock.stats())
    middle = [s for s in samples if 0.3 * case.requests <= s.requests <= 0.7 * case.requests]
    if len(middle) < 2:
        return float("nan")
    filled = middle[-1].in_flight_seconds - middle[0].in_flight_seconds
    return filled / (middle[-1].uptime_seconds - middle[0].uptime_seconds) / case.slots


async def measure(folder: Path, dsn: str, url: str, case: Case) -> None:
    """Run one case and print its row."""
    admin = await asyncpg.connect(dsn)
    await admin.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
    await admin.execute("CREATE DATABASE bench")
    await seed(url, case)
    wal = await admin.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
    server = cpu_of_server(folder)
    with Mock(case.fastest, case.slowest) as mock:
        command = [sys.executable, "-m", "benchmarks.dispatch", "--work", url, mock.url]
        command += [str(case.slots), str(case.requests)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        filled = await asyncio.to_thread(watch, mock, process, case)
        assert process.stdout is not None
        said = process.stdout.read()
        if process.wait() != 0:
            raise SystemExit("the worker failed")
        upstream = mock.stats().cpu_seconds
    took = json.loads(said)
    each = 1e6 / case.requests
    server = (cpu_of_server(folder) - server) * each
    wal = (await admin.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn") - wal) / case.requests
    await admin.close()
    print(
        f"| {case.slots:,} ({case.fastest}–{case.slowest} ms) | {case.requests:,} in {case.batches:,} "
        f"| {took['cpu'] * each:.1f} | {server:.1f} | {upstream * each:.1f} | {case.requests / took['seconds']:,.0f} "
        f"| {took['peak_mib']:.0f} | {filled:.3f} | {float(wal):.0f} |",
        flush=True,
    )


async def main(cases: list[Case]) -> None:
    """Measure on a server of our own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "postgres"
        async with await ensure(folder, settings=SETTINGS) as database:
            print("| in flight | requests in batches | worker µs | PostgreSQL µs | mock µs | requests/s | peak MiB "
                  "| slots filled | WAL B |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
            for case in cases:
                await measure(folder, database.dsn, database.dsn_of("bench"), case)


def read_case(text: str) -> Case:
    """`slots,requests,batches,fastest,slowest`"""
    return Case(*map(int, text.split(",")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--case", action="append", type=read_case, help=read_case.__doc__)
    parser.add_argument("--long", action="store_true", help="also 10,240 slots with replies after 2 to 6 s")
    given = parser.parse_args()
    if given.work:
        events.set_up_logging("warning")
        print(json.dumps(uvloop.run(work(given.work[0], given.work[1], int(given.work[2]), int(given.work[3])))))
    else:
        asyncio.run(main(given.case or [*CASES, *([LONG] if given.long else [])]))
