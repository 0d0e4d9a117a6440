"""What running a request costs: the worker's and PostgreSQL's CPU, requests a second, memory, slots filled."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import asyncpg

from benchmarks import choice, statements
from benchmarks.budgets import column, note
from benchmarks.mock import Mock
from benchmarks.workers import Running, cpu_of_server
from overnight.domain import events, ids
from overnight.domain.limits import BLOCK_LINES
from overnight.store import zstd
from overnight.store.embedded import ensure
from overnight.store.migrate import migrate

CHAT = "/v1/chat/completions"
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "track_io_timing": "off"}
WORDS = Path(__file__).with_name("mock_upstream.py").read_text().split()
MOST_MADE = 100 * BLOCK_LINES
"""Requests of one batch that differ; those of a larger one come again."""


@dataclass(frozen=True, slots=True)
class Case:
    """Slots, requests in all, batches that they are spread over, and the mock's delays in milliseconds."""

    slots: int
    requests: int
    batches: int
    fastest: int
    slowest: int


CASES = {
    "64": Case(64, 60_000, 1, 0, 3),
    "1000": Case(1_000, 60_000, 1, 50, 150),
    "10000": Case(10_000, 200_000, 1, 200, 600),
    "mixed": Case(10_000, 200_000, 1_000, 200, 600),
    "10240": Case(10_240, 100_000, 1, 2_000, 6_000),
}
QUICK = {"64": 20_000, "1000": 20_000, "10000": 60_000, "mixed": 60_000, "10240": 30_720}
"""Requests in all, where a smaller version is asked for."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one run came to; CPU in µs and the log in bytes are those of a request."""

    worker: float
    postgres: float
    mock: float
    rate: float
    peak_mib: float
    filled: float
    wal: float


# -- what runs -------------------------------------------------------------------------------------------------


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


async def seed(url: str, case: Case, *, begun: int | None = None) -> None:
    """Fill a database with batches of which requests may run; only the first `begun` of them, where that is given."""
    connection = await asyncpg.connect(url)
    await migrate(connection)
    each = case.requests // case.batches
    made = lines(min(each, MOST_MADE))
    whole = [zstd.compress(b"\n".join(made[at : at + BLOCK_LINES])) for at in range(0, len(made), BLOCK_LINES)]
    last = zstd.compress(b"\n".join(made[: each % BLOCK_LINES]))
    for i in range(case.batches):
        no = await connection.fetchval(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, status, model, completion_window, retention,"
            " total, expires_at, in_progress_at) VALUES (next_batch_no(now()), $1, 1, 'chat', $2, 'file',"
            " $4, 'mock', '24h', '7 days', $3, now() + interval '1 day', now()) RETURNING no",
            *(ids.new(i), CHAT, each, "in_progress" if begun is None or i < begun else "validating"),
        )
        records = []
        for seq in range(math.ceil(each / BLOCK_LINES)):
            at = list(range(seq * BLOCK_LINES, min((seq + 1) * BLOCK_LINES, each)))
            data = whole[seq % len(whole)] if len(at) == BLOCK_LINES else last
            records.append((no, seq, "mock", "ready", len(at), at, at, data))
        columns = ("batch", "seq", "model", "state", "count", "lines", "ids", "data")
        await connection.copy_records_to_table("block", columns=columns, records=records)
    await connection.execute("VACUUM ANALYZE")
    await connection.execute("CHECKPOINT")
    await connection.close()


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL of our own with a database that is made anew for every run."""

    folder: Path
    admin: asyncpg.Connection
    url: str

    async def renew(self, case: Case, *, begun: int | None = None) -> None:
        """As `seed`, in an empty one."""
        await self.admin.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
        await self.admin.execute("CREATE DATABASE bench")
        await seed(self.url, case, begun=begun)

    async def wal(self) -> int:
        """Bytes of write-ahead log so far."""
        return int(await self.admin.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return cpu_of_server(self.folder)


@asynccontextmanager
async def database(settings: dict[str, str] | None = None) -> AsyncIterator[Database]:
    """A server for the block, with settings beside ours."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "postgres"
        async with await ensure(folder, settings={**SETTINGS, **(settings or {})}) as embedded:
            admin = await asyncpg.connect(embedded.dsn)
            yield Database(folder, admin, embedded.dsn_of("bench"))
            await admin.close()


def watch(mock: Mock, worker: Running, case: Case) -> float:
    """The share of slots filled while the middle 40 % of the requests ran."""
    samples = [mock.stats()]
    while worker.is_running:
        time.sleep(0.1)
        samples.append(mock.stats())
    middle = [s for s in samples if 0.3 * case.requests <= s.requests <= 0.7 * case.requests]
    if len(middle) < 2:
        return math.nan
    filled = middle[-1].in_flight_seconds - middle[0].in_flight_seconds
    return filled / (middle[-1].uptime_seconds - middle[0].uptime_seconds) / case.slots


async def measure(base: Database, case: Case) -> Found:
    """Run one case."""
    await base.renew(case)
    with Mock(case.fastest, case.slowest) as mock, Running(base.url, mock.url, case.slots, case.requests) as worker:
        wal, server = await base.wal(), base.cpu()
        worker.go()
        filled = await asyncio.to_thread(watch, mock, worker, case)
        took, upstream = worker.took(), mock.stats().cpu_seconds
        each = 1e6 / case.requests
        return Found(
            worker=took.cpu * each,
            postgres=(base.cpu() - server) * each,
            mock=upstream * each,
            rate=case.requests / (took.ended - took.began),
            peak_mib=took.peak_mib,
            filled=filled,
            wal=(await base.wal() - wal) / case.requests,
        )


# -- the table -------------------------------------------------------------------------------------------------


def judge(name: str, found: Found, one_batch: Found | None) -> str:
    """What the budgets say of a row."""
    if name == "10000":
        cells = [("worker", found.worker), ("postgres", found.postgres), ("rate", found.rate), ("wal", found.wal)]
    elif name == "mixed":
        cells = [("wal", found.wal), ("mixed", found.rate / one_batch.rate if one_batch else math.nan)]
    elif name == "10240":
        cells = [("filled", found.filled * 100), ("memory", found.peak_mib)]
    else:
        cells = []
    return column([note(*cell) for cell in cells])


async def tell_statements(base: Database, case: Case) -> None:
    """Run a case once more and print what its statements took."""
    await base.renew(case)
    await statements.begin(base.admin)
    with Mock(case.fastest, case.slowest) as mock, Running(base.url, mock.url, case.slots, case.requests) as worker:
        server = base.cpu()
        worker.go()
        await asyncio.to_thread(worker.took)
        cpu = base.cpu() - server
    print(f"\n{case.slots:,} in flight: {cpu * 1e6 / case.requests:.1f} µs of PostgreSQL's CPU a request\n")
    print("| statement | calls | µs a request | ms a call |\n|---|---|---|---|")
    for cost in await statements.most_costly(base.admin, "bench"):
        each = cost.milliseconds * 1e3 / case.requests
        print(f"| `{cost.name}` | {cost.calls:,} | {each:.2f} | {cost.milliseconds / cost.calls:.2f} |", flush=True)


async def main(cases: dict[str, Case], rounds: int, *, by_statement: bool = False) -> None:
    """Print the medians of each case; `by_statement` what PostgreSQL's statements took instead."""
    if by_statement:
        async with database(statements.LIBRARY) as base:
            for case in cases.values():
                await tell_statements(base, case)
        return
    print("| in flight | requests in batches | worker µs | PostgreSQL µs | mock µs | requests/s | peak MiB "
          "| slots filled | WAL B | budget |\n|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    seen: dict[str, Found] = {}
    async with database() as base:
        for name, case in cases.items():
            runs = [await measure(base, case) for _ in range(rounds)]
            found = Found(*(statistics.median([getattr(run, f.name) for run in runs]) for f in fields(Found)))
            seen[name] = found
            print(
                f"| {case.slots:,} ({case.fastest}–{case.slowest} ms) | {case.requests:,} in {case.batches:,} "
                f"| {found.worker:.1f} | {found.postgres:.1f} | {found.mock:.1f} | {found.rate:,.0f} "
                f"| {found.peak_mib:.0f} | {found.filled:.3f} | {found.wal:.0f} "
                f"| {judge(name, found, seen.get('10000'))} |",
                flush=True,
            )


def read_case(text: str) -> Case:
    """`slots,requests,batches,fastest,slowest`"""
    return Case(*map(int, text.split(",")))


def read_cases(given: argparse.Namespace) -> dict[str, Case]:
    """Those that were asked for."""
    cases = choice.rows_of(given, CASES)
    if given.quick:
        cases = {name: replace(case, requests=QUICK[name]) for name, case in cases.items()}
    return {str(case): case for case in given.case} if given.case else cases


if __name__ == "__main__":
    parser = choice.parser(__doc__, CASES, rounds=3)
    parser.add_argument("--case", action="append", type=read_case, help=read_case.__doc__)
    parser.add_argument(
        "--statements", action="store_true", help="what PostgreSQL's statements took, in a run by itself"
    )
    given = parser.parse_args()
    events.set_up_logging("warning")
    asyncio.run(main(read_cases(given), choice.rounds_of(given), by_statement=given.statements))
