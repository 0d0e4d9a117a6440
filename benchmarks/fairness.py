"""How evenly two owners are served who both always wait, what a newcomer waits, and what choosing costs.

Both owners run through the real worker against the mock. What they were served is counted in weighted tokens of answers
that are durable, as long as both have requests waiting.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import uvloop

from benchmarks import choice
from benchmarks.budgets import note
from benchmarks.dispatch import SETTINGS
from benchmarks.mock import Mock
from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain import events, ids
from overnight.domain.fairness import OUTPUT_WEIGHT, Shares, estimate
from overnight.domain.limits import BLOCK_LINES, Limits
from overnight.loops import Bell
from overnight.store import zstd
from overnight.store.embedded import ensure
from overnight.store.life import Life
from overnight.store.migrate import migrate
from overnight.store.pool import Store
from overnight.worker.pick import Turns
from overnight.worker.worker import Worker

SLOTS = 256
DELAYS = (20, 60)
LONG_BYTES = 470
"""A reply of so many bytes has about 20 tokens, which makes 240 weighted ones with the 200 of its prompt."""
LONG = "/v1/chat/completions"
SHORT = "/v1/completions"
"""The mock answers these with 6 tokens to a prompt of 12: 24 weighted ones."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one owner hands over: batches of so many requests."""

    batches: int
    each: int
    endpoint: str


CASES = {
    "lengths": ("ten times longer requests against short ones", (Work(1, 18_000, LONG), Work(1, 180_000, SHORT))),
    "batches": ("one batch against 1,000 batches", (Work(1, 18_000, LONG), Work(1_000, 18, LONG))),
    "both": ("one batch of short ones against 1,000 of long ones", (Work(1, 180_000, SHORT), Work(1_000, 18, LONG))),
}


# -- two owners through the worker -----------------------------------------------------------------------------


async def seed(connection: asyncpg.Connection, owner: int, work: Work) -> None:
    """Store one owner's batches, ready to run."""
    target = "chat" if work.endpoint == LONG else "completions"
    lines = [line(i, work.endpoint) for i in range(work.each)]
    blocks = [
        (first // BLOCK_LINES, list(range(first, min(first + BLOCK_LINES, work.each))),
         zstd.compress(b"\n".join(lines[first : first + BLOCK_LINES])))
        for first in range(0, work.each, BLOCK_LINES)
    ]  # fmt: skip
    for _ in range(work.batches):
        no = await connection.fetchval(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, status, model, completion_window, retention,"
            " total, expires_at, in_progress_at) VALUES (next_batch_no(now()), $1, $2, $3, $4, 'file',"
            " 'in_progress', 'mock', '24h', '7 days', $5, now() + interval '1 day', now()) RETURNING no",
            *(ids.new(time.time_ns() % 2**40), owner, target, work.endpoint, work.each),
        )
        await connection.copy_records_to_table(
            "block",
            columns=("batch", "seq", "model", "state", "count", "lines", "ids", "data"),
            records=[(no, seq, "mock", "ready", len(at), at, at, data) for seq, at, data in blocks],
        )


def line(number: int, endpoint: str) -> bytes:
    """One request, whose prompt is about as long as the mock says."""
    asks = {"messages": [{"role": "user", "content": "Go on. " * 100}]} if endpoint == LONG else {"prompt": "Go."}
    body = {"model": "mock", **asks}
    return json.dumps({"custom_id": f"r{number}", "method": "POST", "url": endpoint, "body": body}).encode()


async def served(connection: asyncpg.Connection) -> dict[int, tuple[int, float]]:
    """By owner: weighted tokens served, and the share of its requests that is answered."""
    rows = await connection.fetch(
        "SELECT owner, sum(input_tokens + $1 * output_tokens)::bigint AS tokens,"
        " sum(completed + failed)::float8 / sum(total) AS done FROM batch GROUP BY owner",
        OUTPUT_WEIGHT,
    )
    return {row["owner"]: (row["tokens"], row["done"]) for row in rows}


async def newcomer(connection: asyncpg.Connection, worker: Worker) -> float:
    """Milliseconds until one request of an owner that comes now has its answer."""
    owner = await connection.fetchval("INSERT INTO account (name, role) VALUES ('new', 'free') RETURNING no")
    await seed(connection, owner, Work(1, 1, SHORT))
    began = time.monotonic()
    worker.wake()
    while not (await served(connection))[owner][1]:
        await asyncio.sleep(0.005)
    return (time.monotonic() - began) * 1000


async def run(url: str, name: str, works: Sequence[Work]) -> None:
    """Run one case until one of the owners has little left, and print its row."""
    connection = await asyncpg.connect(url)
    await migrate(connection)
    other = await connection.fetchval("INSERT INTO account (name, role) VALUES ('other', 'free') RETURNING no")
    for owner, work in zip((1, other), works, strict=True):
        await seed(connection, owner, work)
    await connection.execute("VACUUM ANALYZE")
    store = await Store(url).open()
    life = Life(store, SLOTS)
    await life.begin()
    limits = Limits(slots=SLOTS)
    with Mock(*DELAYS, reply_bytes=LONG_BYTES) as mock:
        routes = Routes([UpstreamRoute(mock.url, slots=SLOTS, most_reply_bytes=lambda: limits.result_bytes)])
        await routes.round(store, life)
        worker = Worker(store, life, limits, routes, bell=Bell())
        running = asyncio.create_task(worker.run())
        drift, in_flight, waited = 0, 0, None
        while True:
            await asyncio.sleep(0.05)
            now = await served(connection)
            if max(now[1][1], now[other][1]) > 0.8:
                break
            if waited is None and now[1][1] > 0.3:
                waited = await newcomer(connection, worker)
            drift = max(drift, abs(now[1][0] - now[other][0]))
            in_flight = max(in_flight, sum(flow.in_flight for flow in worker._held.flows.values()))
        await worker.stop(1.0)
        running.cancel()
        await asyncio.wait([running])
        await routes.close()
    await life.end()
    await store.close()
    await connection.close()
    bound = bound_of(max(cost_of(work) for work in works), in_flight)
    waited = waited or float("nan")
    print(
        f"| {name} | {now[1][0]:,} | {now[other][0]:,} | {drift:,} | {in_flight:,} | {bound:,} | {waited:.0f} "
        f"| {note('drift', drift / bound)} |",
        flush=True,
    )


def bound_of(most: int, in_flight: int) -> int:
    """How far apart two owners' tokens of durable answers may be, with a request of at most so many."""
    return 2 * (most + 2 * in_flight * most) + 2 * in_flight * most


def cost_of(work: Work) -> int:
    """Weighted tokens of one of its requests."""
    return 240 if work.endpoint == LONG else 24


# -- what choosing costs ---------------------------------------------------------------------------------------


def time_turns(batches: int, owners: int, most: int = 300, rounds: int = 200) -> float:
    """Microseconds a request, where `most` are chosen at once."""
    standings = [
        SimpleNamespace(owner=i % owners, untaken=10**9, latest_start=float(i), last_turn=-1) for i in range(batches)
    ]
    shares = Shares()
    began = time.process_time()
    for _ in range(rounds):
        shares.see({batch.owner for batch in standings})
        turns = Turns(shares, standings)
        for _ in range(most):
            turns.next()
            turns.charge(estimate(1_100, 100))
    return (time.process_time() - began) / rounds / most * 1e6


async def main(cases: dict[str, tuple[str, tuple[Work, Work]]]) -> None:
    """Measure on a server of our own."""
    print("| batches | owners | µs a request chosen |\n|---|---|---|")
    for batches, owners in ((2, 1), (2, 2), (256, 1), (256, 2), (256, 100)):
        print(f"| {batches} | {owners} | {time_turns(batches, owners):.2f} |", flush=True)
    print("\n| case | tokens of the first | of the second | largest drift | most in flight | bound "
          "| newcomer's answer, ms | budget |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        async with await ensure(Path(scratch) / "postgres", settings=SETTINGS) as database:
            admin = await asyncpg.connect(database.dsn)
            for name, works in cases.values():
                await admin.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
                await admin.execute("CREATE DATABASE bench")
                await run(database.dsn_of("bench"), name, works)
            await admin.close()


if __name__ == "__main__":
    given = choice.parser(__doc__, CASES).parse_args()
    events.set_up_logging("warning")
    chosen = choice.rows_of(given, CASES)
    uvloop.run(main({"lengths": CASES["lengths"]} if given.quick and not given.only else chosen))
