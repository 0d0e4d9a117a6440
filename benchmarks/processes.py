"""One, two and four worker processes on one database: what a request costs and how many run a second.

With a cap over all of them the model server is the witness: how many requests it had at once, at most and on average.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks import choice, dispatch
from benchmarks.budgets import column, note
from benchmarks.dispatch import Database, database
from benchmarks.mock import Mock, Stats
from benchmarks.workers import Running, run_all
from overnight.domain import events

CAP = 256
DELAYS = (200, 600)
CAPPED_DELAYS = (300, 500)
"""Long enough for the cap to be what bounds the rate: 256 requests in 400 ms are 640 a second."""


@dataclass(frozen=True, slots=True)
class Case:
    """Worker processes, slots of all together, requests, and whether there is a cap."""

    processes: int
    slots: int
    requests: int
    is_capped: bool


CASES = {
    "1": Case(1, 4_096, 120_000, is_capped=False),
    "2": Case(2, 4_096, 120_000, is_capped=False),
    "4": Case(4, 4_096, 120_000, is_capped=False),
    "1-capped": Case(1, 1_024, 16_000, is_capped=True),
    "2-capped": Case(2, 1_024, 16_000, is_capped=True),
    "4-capped": Case(4, 1_024, 16_000, is_capped=True),
}
QUICK_PART = 3
"""A smaller version has so many times fewer requests."""


def filled(samples: list[Stats], requests: int) -> float:
    """The mean of requests in flight at the model server while the middle 60 % of them ran."""
    middle = [s for s in samples if 0.2 * requests <= s.requests <= 0.8 * requests]
    if len(middle) < 2:
        return math.nan
    seconds = middle[-1].uptime_seconds - middle[0].uptime_seconds
    return (middle[-1].in_flight_seconds - middle[0].in_flight_seconds) / seconds


async def watch(mock: Mock, workers: list[Running]) -> list[Stats]:
    """What the model server counted, until all have ended."""
    samples = [mock.stats()]
    while any(worker.is_running for worker in workers):
        await asyncio.to_thread(time.sleep, 0.1)
        samples.append(mock.stats())
    return samples


async def measure(base: Database, case: Case) -> tuple[str, float]:
    """Run one case; its row without what is said of the rate, and the rate."""
    delays = CAPPED_DELAYS if case.is_capped else DELAYS
    await base.renew(dispatch.Case(case.slots, case.requests, 1, *delays))
    cap = CAP if case.is_capped else 0
    with Mock(*delays) as mock, ExitStack() as stack:
        workers = [
            stack.enter_context(Running(base.url, mock.url, case.slots // case.processes, case.requests, cap=cap))
            for _ in range(case.processes)
        ]
        server, watching = base.cpu(), asyncio.create_task(watch(mock, workers))
        took = await asyncio.to_thread(run_all, workers)
        samples, server = await watching, base.cpu() - server
    rate = case.requests / (max(one.ended for one in took) - min(one.began for one in took))
    each = 1e6 / case.requests
    most, mean = samples[-1].max_in_flight, filled(samples, case.requests)
    row = f"| {case.processes} | {cap or '–'} | {sum(one.cpu for one in took) * each:.1f} | {server * each:.1f} "
    row += f"| {samples[-1].cpu_seconds * each:.1f} | {rate:,.0f} | {most:,} | {mean:,.1f} |"
    if case.is_capped:
        verdicts = [note("cap reached", mean / CAP * 100), note("cap exceeded", max(0, most - CAP))]
        return f"{row} {column(verdicts)} |", rate
    return row, rate


async def main(cases: dict[str, Case]) -> None:
    """Print a row for each case."""
    print("| processes | cap | workers µs | PostgreSQL µs | mock µs | requests/s | in flight at most | mean | budget |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    alone: float | None = None
    async with database() as base:
        for case in cases.values():
            row, rate = await measure(base, case)
            if not case.is_capped:
                row += f" {note('processes', rate / alone) if alone else ''} |"
                alone = alone or (rate if case.processes == 1 else None)
            print(row, flush=True)


if __name__ == "__main__":
    given = choice.parser(__doc__, CASES).parse_args()
    events.set_up_logging("warning")
    chosen = choice.rows_of(given, CASES)
    if given.quick:
        chosen = {
            name: Case(case.processes, case.slots, case.requests // QUICK_PART, is_capped=case.is_capped)
            for name, case in chosen.items()
        }
    asyncio.run(main(chosen))
