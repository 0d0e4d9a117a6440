"""Plays one run: batches, faults at random moments, everything undone, everything checked."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults import of_the_database
from tests.faults.invariants import check
from tests.faults.moments import Run
from tests.faults.stage import Stage, staged

Fault = Callable[[Run], Coroutine[None, None, None]]

SEED = "OVERNIGHT_FAULTS_SEED"


def new_seed() -> int:
    """The seed that was asked for, or a new one."""
    asked = os.environ.get(SEED)
    return int(asked) if asked else random.SystemRandom().randrange(2**32)


async def plays(folder: Path, *runs: Sequence[Fault], requests: tuple[int, int], **surroundings: Any) -> None:
    """Runs on one stage, one after the other; a failure names the seed. `surroundings` are those of `staged`."""
    seed = new_seed()
    chance = random.Random(seed)
    try:
        async with staged(folder, chance, **surroundings) as stage:
            for faults in runs:
                await play(stage, faults, chance, requests=requests)
    except BaseException as error:
        error.add_note(f"{SEED}={seed} repeats this.")
        raise


async def play(
    stage: Stage, faults: Sequence[Fault], chance: random.Random, *, batches: int = 2, requests: tuple[int, int]
) -> dict[str, float]:
    """Let faults happen side by side to batches that run; assert all invariants. Return what took how many seconds."""
    run = Run(stage, chance)
    run.database_is_well = all(fault.__module__ != of_the_database.__name__ for fault in faults)
    took: dict[str, float] = {}
    with _timed(took, "handed over"):
        await run.begin(batches, requests)
    with _timed(took, "faults"):
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(fault(run))
    with _timed(took, "ended"):
        await run.finish()
    with _timed(took, "checked"):
        await check(stage)
    return took


@contextmanager
def _timed(took: dict[str, float], what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    took[what] = time.monotonic() - began
