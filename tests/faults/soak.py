"""`make soak`: random faults to random deployments, side by side, for SOAK_SECONDS (an hour); prints a line a run."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from tests.faults import of_callers, of_model_servers, of_processes, of_the_database
from tests.faults.play import SEED, Fault, play
from tests.faults.stage import Stage, staged
from tests.faults.surroundings import shifted_clock, small_disk

RUNS_OF_A_STAGE = 6


class Soak:
    """Counts what was played; `violations` are the seeds of stages on which something did not hold."""

    def __init__(self) -> None:
        self.runs = 0
        self.requests = 0
        self.violations: list[int] = []

    async def stage(self, seed: int, ends: float) -> None:
        """Some runs on one deployment, all of them by one seed; until `ends` of the monotonic clock."""
        chance = random.Random(seed)
        folder = Path(tempfile.mkdtemp(prefix="overnight-faults-"))
        folder.chmod(0o755)
        try:
            with ExitStack() as stack:
                disk = stack.enter_context(small_disk(folder / "disk")) if chance.random() < 0.15 else None
                off = chance.choice([-3600, 3600])
                clock = shifted_clock(folder, off) if chance.random() < 0.25 else None
                env = {chance.choice("abc"): clock} if clock else {}
                cap = chance.choice([None, None, None, 12])
                times = "real" if chance.random() < 0.08 else "short"
                about = [times, *(f"clock of {name} off by {off} s" for name in env), *(["small disk"] if disk else [])]
                about += [f"{cap} slots"] if cap else []
                print(f"{SEED}={seed}: {', '.join(about)}", flush=True)
                async with staged(folder, chance, times=times, env=env, disk=disk, cap=cap) as stage:
                    for _ in range(RUNS_OF_A_STAGE):
                        if time.monotonic() < ends:
                            await self.run(stage, chance)
        except Exception:  # noqa: BLE001 - whatever it was, it is shown, and the next stage is another one
            self.violations.append(seed)
            traceback.print_exc()
            print(f"VIOLATION: {SEED}={seed} repeats this; its logs are in {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    async def run(self, stage: Stage, chance: random.Random) -> None:
        """One to five faults at once."""
        faults = choose(chance, with_disk=stage.disk is not None)
        names = " + ".join(getattr(fault, "__name__", "?") for fault in faults)
        began, jobs = time.monotonic(), len(stage.jobs)
        self.runs += 1
        print(f"  run {self.runs}: {names} …", flush=True)
        await play(stage, faults, chance, batches=chance.randint(1, 3), requests=(100, 500))
        requests = sum(len(job.custom_ids) for job in stage.jobs[jobs:])
        self.requests += requests
        uses = " ".join(f"{name}:{'/'.join(map(str, p.uses()))}" for name, p in stage.processes.items())
        print(
            f"  run {self.runs}: held after {time.monotonic() - began:.0f} s, {requests} requests in "
            f"{len(stage.jobs) - jobs} batches, files/threads/MiB {uses}",
            flush=True,
        )


def choose(chance: random.Random, *, with_disk: bool) -> list[Fault]:
    """Some faults that can happen side by side."""
    of_database: tuple[Fault, ...] = of_the_database.ALL
    if with_disk:
        of_database = (of_the_database.fill_the_disk,)
    elif chance.random() < 0.03:
        of_database = of_the_database.LONG
    chosen: list[Fault] = []
    if chance.random() < 0.6:
        chosen.append(chance.choice(of_processes.ALL))
    # Nobody else may die while it is found out who dies of the poison.
    if of_processes.poison not in chosen and (chance.random() < 0.5 or with_disk):
        chosen.append(chance.choice(of_database))
    if chance.random() < 0.35:
        chosen.append(chance.choice(of_model_servers.ALL))
    chosen += chance.sample(of_callers.ALL, chance.choice([0, 1, 1, 2]))
    return chosen or [of_processes.kill_a_worker]


def main() -> int:
    """Play until the time is over, or one seed where it was asked for; 1 where anything did not hold."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # Whatever ends it, what it started ends with it.
        signal.signal(number, signal.default_int_handler)
    soak = Soak()
    asked = os.environ.get(SEED)
    ends = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "3600"))
    if asked:
        asyncio.run(soak.stage(int(asked), float("inf")))
    while not asked and time.monotonic() < ends:
        asyncio.run(soak.stage(random.SystemRandom().randrange(2**32), ends))
    print(f"{soak.runs} runs, {len(soak.violations)} violations; {soak.requests:,} requests")
    for seed in soak.violations:
        print(f"  {SEED}={seed} make soak")
    return 1 if soak.violations else 0


if __name__ == "__main__":
    sys.exit(main())
