"""What a request costs in batches of 1,000 to 1,000,000 requests, from its lease to its stored answer.

Small batches follow one another until enough requests have run to say something.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass

from benchmarks import choice
from benchmarks.budgets import note
from benchmarks.dispatch import Case, Database, database
from benchmarks.mock import Mock
from benchmarks.workers import Running
from overnight.domain import events

SLOTS = 256
DELAYS = (0, 10)
AT_LEAST = 20_000
"""Requests of each size together."""
SIZES = {"1000": 1_000, "10000": 10_000, "100000": 100_000, "1000000": 1_000_000}


@dataclass(frozen=True, slots=True)
class Found:
    """Microseconds of CPU a request, and requests a second."""

    worker: float
    postgres: float
    rate: float

    @property
    def cpu(self) -> float:
        """Of both."""
        return self.worker + self.postgres


async def measure(base: Database, size: int) -> Found:
    """Run batches of this size, one after the other."""
    batches = max(1, AT_LEAST // size)
    total = size * batches
    await base.renew(Case(SLOTS, total, batches, *DELAYS), begun=0)
    with Mock(*DELAYS) as mock, Running(base.url, mock.url, SLOTS, total, steps=batches) as worker:
        server = base.cpu()
        worker.go()
        took = await asyncio.to_thread(worker.took)
        server = base.cpu() - server
    return Found(took.cpu / total * 1e6, server / total * 1e6, total / (took.ended - took.began))


async def main(sizes: dict[str, int], rounds: int) -> None:
    """Print a row for each size, and what the largest costs against the smallest."""
    print(f"{SLOTS} in flight; growth is CPU of both against that of the smallest and of the cheapest smaller size\n")
    print("| requests in a batch | worker µs | PostgreSQL µs | requests/s | growth | of the cheapest | budget |")
    print("|---|---|---|---|---|---|---|", flush=True)
    seen: list[Found] = []
    async with database() as base:
        for size in sizes.values():
            runs = [await measure(base, size) for _ in range(rounds)]
            found = min(runs, key=lambda run: abs(run.cpu - statistics.median([one.cpu for one in runs])))
            seen.append(found)
            growth = found.cpu / seen[0].cpu
            cheapest = found.cpu / min([one.cpu for one in seen[:-1] or seen])
            is_last = len(seen) == len(sizes) > 1
            print(
                f"| {size:,} | {found.worker:.1f} | {found.postgres:.1f} | {found.rate:,.0f} "
                f"| {growth:.2f} × | {cheapest:.2f} × | {note('growth', growth) if is_last else ''} |",
                flush=True,
            )


if __name__ == "__main__":
    given = choice.parser(__doc__, SIZES, rounds=3).parse_args()
    events.set_up_logging("warning")
    chosen = choice.rows_of(given, SIZES)
    if given.quick and not given.only:
        chosen.pop("1000000")
    asyncio.run(main(chosen, choice.rounds_of(given)))
