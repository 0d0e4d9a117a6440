"""What a kill -9 of a worker process costs: how long its requests wait until another one runs them, and what is lost.

Two processes of `overnight serve` share one PostgreSQL, with their default times. The model server is the witness: it
knows by whom each request was sent and when. An answer that was stored before the kill must stay and never run again.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from benchmarks import choice
from benchmarks.budgets import column, note
from overnight.store.embedded import Embedded, ensure
from tests.faults.recorder import MODEL, Recorder, Send
from tests.process import Served, chat

KILLS = 5
SLOTS = 128
PACE = (1.0, 3.0)
"""Seconds that the model server takes: some requests are new at the kill, some nearly done."""
REQUESTS = 2_500
"""For each kill: more than two processes run until the next."""
WARM_SECONDS = 6.0
STORED_WITHIN = 1.0
"""After so long nothing that a killed process had sent to the database is still on its way."""
WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """What one kill came to."""

    in_flight: int
    unstored: int
    """Of those answered by the model server, but not stored: their answers died with the process."""
    first: float
    """Seconds until the first of all these ran elsewhere, and until the last did."""
    last: float
    again: int
    """Requests that were sent again though their answers were stored."""


class Deployment:
    """Processes that are killed and started again, on one database, before one model server."""

    def __init__(self, folder: Path, database: Embedded, recorder: Recorder, admin: asyncpg.Connection) -> None:
        self._folder, self._database, self.recorder, self.admin = folder, database, recorder, admin
        self._number = 0

    async def start(self) -> tuple[str, Served]:
        """One more process; its name is the first part of the path under which it sends."""
        self._number += 1
        name = f"p{self._number}"
        given = ("--database-url", self._database.dsn, "--upstream", self.recorder.url(name))
        served = Served(self._folder / name, *given, "--upstream-slots", str(SLOTS))
        await asyncio.to_thread(served.start)
        return name, served

    async def stored(self) -> set[str]:
        """Names of the requests of which answers are durable."""
        rows = await self.admin.fetch("SELECT line FROM answer")
        return {f"r{row['line']}" for row in rows}

    def open_of(self, process: str) -> list[Send]:
        """What it had sent and has no reply yet."""
        sends = [send for sends in self.recorder.sends.values() for send in sends]
        return [send for send in sends if send.process == process and not send.ended]

    def answered_of(self, process: str) -> set[str]:
        """Names that the model server answered to it."""
        sends = [send for sends in self.recorder.sends.values() for send in sends]
        return {send.name for send in sends if send.process == process and send.ended}


async def kill_one(deployed: Deployment, name: str, served: Served) -> Found:
    """Kill a process in the middle of its work and wait until all that it left runs elsewhere."""
    recorder = deployed.recorder
    in_flight, answered = {send.name for send in deployed.open_of(name)}, deployed.answered_of(name)
    killed = time.time()
    await asyncio.to_thread(served.kill)
    await asyncio.sleep(STORED_WITHIN)
    stored = await deployed.stored()
    left = (in_flight | answered) - stored
    while missing := {n for n in left if not any(send.at > killed for send in recorder.sends[n])}:
        if time.time() > killed + WITHIN:
            raise SystemExit(f"{len(missing)} requests did not run again within {WITHIN:.0f} s of the kill")
        await asyncio.sleep(0.05)
    moments = [min(send.at for send in recorder.sends[n] if send.at > killed) - killed for n in left]
    again = [n for n in stored if any(send.at > killed + STORED_WITHIN for send in recorder.sends[n])]
    return Found(len(in_flight), len(left - in_flight), min(moments), max(moments), len(again))


async def measure(deployed: Deployment, kills: int) -> None:
    """Kill one process after the other, each time the older one, and see at the end that nothing is missing."""
    processes = [await deployed.start(), await deployed.start()]
    try:
        total = REQUESTS * kills
        batch = await asyncio.to_thread(
            processes[0][1].submit, [chat(f"r{n}", f"r{n}", model=MODEL) for n in range(total)]
        )
        for number in range(kills):
            await asyncio.sleep(WARM_SECONDS)
            found = await kill_one(deployed, *processes.pop(0))
            show(number + 1, found)
            processes.append(await deployed.start())
        ended = await asyncio.to_thread(processes[0][1].wait, batch, 600)
        lines = await asyncio.to_thread(processes[0][1].lines, ended["output_file_id"])
        names = [line["custom_id"] for line in lines]
        lost, twice = total - len(set(names)), len(names) - len(set(names))
        print(f"\n{total:,} requests, {len(names):,} answers: {lost} lost ({note('lost', lost)}), {twice} doubled")
    finally:
        for _, served in processes:
            await asyncio.to_thread(served.stop)


def show(number: int, found: Found) -> None:
    """Print the row of a kill."""
    verdicts = column([note("takeover", found.last), note("again", found.again)])
    print(
        f"| {number} | {found.in_flight} | {found.unstored} | {found.first:.1f} s | {found.last:.1f} s | {found.again} "
        f"| {verdicts} |",
        flush=True,
    )


@asynccontextmanager
async def deployment(folder: Path) -> AsyncIterator[Deployment]:
    """An empty one, with its database and its model server."""
    recorder = Recorder(1)
    recorder.pace = PACE
    async with await ensure(folder / "postgres") as database:
        await recorder.up()
        admin = await asyncpg.connect(database.dsn)
        yield Deployment(folder, database, recorder, admin)
        await admin.close()
        await recorder.down()


async def main(kills: int) -> None:
    """Print a row for each kill."""
    print(f"{SLOTS} slots a process, replies after {PACE[0]:.0f}–{PACE[1]:.0f} s\n")
    print(
        "| kill | in flight | answered, not stored | first elsewhere | all elsewhere | stored and run again | budget |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        async with deployment(Path(scratch)) as deployed:
            await measure(deployed, kills)


if __name__ == "__main__":
    given = choice.parser(__doc__, rounds=KILLS).parse_args()
    asyncio.run(main(choice.rounds_of(given)))
