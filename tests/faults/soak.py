"""`make soak`: random faults to random deployments for SOAK_SECONDS (an hour) or SOAK_RUNS; prints two lines a run.

A deployment under fault mostly waits, so SOAK_SIDE_BY_SIDE (3) of them are played at once, each by a process of its own
and by a seed of its own. OVERNIGHT_FAULTS_SEED plays the one of that seed again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import of_callers, of_engines, of_model_servers, of_processes, of_the_database
from tests.faults.play import SEED, Fault, play
from tests.faults.stage import Stage, staged
from tests.faults.surroundings import shifted_clock, small_disk
from tests.faults.uses import used

RUNS_OF_A_STAGE = 6
OF_ENGINES = 0.15
"""The part of the deployments before which one with a local engine is played."""
OF_LONG_CUTS = 0.3
"""The part of the database's faults that last a minute: half of all runs have one of these faults."""
PLAYED = "played "
"""What the line begins with by which the process of a deployment says what it played."""


@dataclass
class Played:
    """What was played; `violations` are the seeds of deployments on which something did not hold."""

    runs: int = 0
    held: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[int] = field(default_factory=list)

    def add(self, other: Played) -> None:
        self.runs += other.runs
        self.held += other.held
        self.requests += other.requests
        self.faults += other.faults
        self.violations += other.violations

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in self.faults.most_common())
        return (
            f"{self.runs} runs, {self.held} held, {len(self.violations)} violations; {self.requests:,} requests;"
            f" {self.faults.total()} faults: {faults}"
        )


# -- one deployment --------------------------------------------------------------------------------------------------


async def play_one(seed: int, ends: float) -> Played:
    """Some runs on one deployment, all of them by one seed; until `ends` of the monotonic clock."""
    chance = random.Random(seed)
    played = Played()
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
            print(", ".join(about), flush=True)
            if chance.random() < OF_ENGINES:
                await poison_an_engine(folder, chance, played)
            async with staged(folder, chance, times=times, env=env, disk=disk, cap=cap) as stage:
                for _ in range(RUNS_OF_A_STAGE):
                    if time.monotonic() < ends:
                        await one_run(stage, chance, played)
    except Exception:  # noqa: BLE001 - whatever it was, it is shown, and the next deployment is another one
        played.violations.append(seed)
        print(f"{traceback.format_exc()}VIOLATION: {SEED}={seed} repeats this; its logs are in {folder}", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return played


async def poison_an_engine(folder: Path, chance: random.Random, played: Played) -> None:
    """A run beside those of the deployment: one with a local engine, that a request kills each time."""
    played.runs += 1
    played.faults["poison_of_an_engine"] += 1
    began = time.monotonic()
    await asyncio.to_thread(of_engines.poison, folder / "engine", chance)
    played.requests += of_engines.REQUESTS
    played.held += 1
    print(f"run {played.runs}: poison of an engine held after {time.monotonic() - began:.0f} s", flush=True)


async def one_run(stage: Stage, chance: random.Random, played: Played) -> None:
    """One to five faults at once."""
    faults = choose(chance, with_disk=stage.disk is not None)
    names = [getattr(fault, "__name__", "?") for fault in faults]
    began, jobs = time.monotonic(), len(stage.jobs)
    played.runs += 1
    played.faults += Counter(names)
    print(f"run {played.runs}: {' + '.join(names)} …", flush=True)
    took = await play(stage, faults, chance, batches=chance.randint(1, 3), requests=(100, 500))
    requests = sum(len(job.custom_ids) for job in stage.jobs[jobs:])
    played.requests += requests
    played.held += 1
    uses = " ".join([f"{name}:{await used(process)}" for name, process in stage.processes.items()])
    seconds = ", ".join(f"{what} {seconds:.1f}" for what, seconds in took.items())
    print(
        f"run {played.runs}: held after {time.monotonic() - began:.0f} s ({seconds}), {requests} requests in "
        f"{len(stage.jobs) - jobs} batches, at most {stage.recorder.most_open} open at once, uses {uses}",
        flush=True,
    )


def choose(chance: random.Random, *, with_disk: bool) -> list[Fault]:
    """Some faults that can happen side by side."""
    of_database: tuple[Fault, ...] = of_the_database.ALL
    if with_disk:
        of_database = (of_the_database.fill_the_disk,)
    elif chance.random() < OF_LONG_CUTS:
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


# -- many deployments, each in a process of its own -------------------------------------------------------------------


class Soak:
    """Plays deployment after deployment until the time is over or so many runs were played."""

    def __init__(self, seconds: float, runs: int) -> None:
        self.played = Played()
        self._ends = time.monotonic() + seconds
        self._runs = runs

    async def run(self, side_by_side: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(side_by_side):
                group.create_task(self._one_after_the_other())

    async def _one_after_the_other(self) -> None:
        while (left := self._ends - time.monotonic()) > 0 and self.played.runs < self._runs:
            await self._one(random.SystemRandom().randrange(2**32), left)

    async def _one(self, seed: int, seconds: float) -> None:
        env = {**os.environ, SEED: str(seed), "SOAK_SECONDS": str(seconds)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.soak", stdout=asyncio.subprocess.PIPE, env=env
        )
        assert process.stdout is not None
        found = Played(runs=1, violations=[seed])
        try:
            async for line in process.stdout:
                text = line.decode().rstrip()
                if text.startswith(PLAYED):
                    told = json.loads(text.removeprefix(PLAYED))
                    found = Played(**{**told, "faults": Counter(told["faults"])})
                else:
                    print(f"{seed}: {text}", flush=True)
            await process.wait()
        finally:
            if process.returncode is None:
                # It ends what it started, and so does whoever waits for it.
                process.send_signal(signal.SIGINT)
                await asyncio.shield(process.wait())
        self.played.add(found)
        print(f"so far {self.played}", flush=True)


def main() -> int:
    """Play until all is played, or one seed where it was asked for; 1 where anything did not hold."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # Whatever ends it, what it started ends with it.
        signal.signal(number, signal.default_int_handler)
    seconds = float(os.environ.get("SOAK_SECONDS", "3600"))
    if asked := os.environ.get(SEED):
        played = asyncio.run(play_one(int(asked), time.monotonic() + seconds))
        print(PLAYED + json.dumps(vars(played)), flush=True)
        return 1 if played.violations else 0
    soak = Soak(seconds, int(os.environ.get("SOAK_RUNS", "1000000")))
    try:
        asyncio.run(soak.run(int(os.environ.get("SOAK_SIDE_BY_SIDE", "3"))))
    finally:
        print(soak.played)
        for seed in soak.played.violations:
            print(f"  {SEED}={seed} make soak")
    return 1 if soak.played.violations else 0


if __name__ == "__main__":
    sys.exit(main())
