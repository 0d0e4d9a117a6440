"""Faults of the database and of the way to it."""

from __future__ import annotations

import asyncio

from tests.faults.moments import Run
from tests.faults.surroundings import no_space_left
from tests.faults.wire import State
from tests.store.processes import kill, postmaster_of


async def kill_postgres(run: Run) -> None:
    """kill -9 of PostgreSQL's main process; what watches it starts it again."""
    await run.somewhere()
    folder = run.stage.server.folder.path
    number = postmaster_of(folder)
    assert number, "PostgreSQL does not run"
    with run.stage.outage():
        kill(number)
        await asyncio.sleep(run.chance.uniform(0, 1))
        await run.stage.server.revive()


async def _cut(run: Run, seconds: float, state: State) -> None:
    process = run.chance.choice(list(run.stage.processes.values()))
    await run.somewhere()
    process.wire.set(state)
    try:
        await asyncio.sleep(seconds)
    finally:
        # What was on its way during a silence may come after all, or never.
        if state is State.SILENT and run.chance.random() < 0.5:
            process.wire.set(State.CUT)
        process.wire.set(State.WHOLE)


async def cut_for_1_s(run: Run) -> None:
    """Connections break and new ones are refused for a second."""
    await _cut(run, 1, State.CUT)


async def cut_for_10_s(run: Run) -> None:
    """Connections break and new ones are refused for ten seconds: longer than a heartbeat may take."""
    await _cut(run, 10, State.CUT)


async def cut_for_60_s(run: Run) -> None:
    """Connections break and new ones are refused for a minute."""
    await _cut(run, 60, State.CUT)


async def silence(run: Run) -> None:
    """Nothing comes through for a while and nobody is told."""
    await _cut(run, run.chance.choice([1, 3, run.stage.dead_after + 2]), State.SILENT)


async def cut_everyone(run: Run) -> None:
    """Nobody reaches the database for a while."""
    await run.somewhere()
    for process in run.stage.processes.values():
        process.wire.set(State.CUT)
    try:
        await asyncio.sleep(run.chance.choice([1.0, run.stage.dead_after + 1]))
    finally:
        for process in run.stage.processes.values():
            process.wire.set(State.WHOLE)


async def fill_the_disk(run: Run) -> None:
    """PostgreSQL finds no space for anything for a while; it may die of that."""
    assert run.stage.disk is not None
    await run.somewhere()
    with run.stage.outage():
        with no_space_left(run.stage.disk):
            await asyncio.sleep(run.chance.uniform(1, 4))
        await run.stage.server.revive()


ALL = (kill_postgres, cut_for_1_s, cut_for_10_s, silence, cut_everyone)
LONG = (cut_for_60_s,)
