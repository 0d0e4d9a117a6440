"""Faults of the model server: down, coming and going, slow, failing, talking garbage."""

from __future__ import annotations

import asyncio

from tests.faults.moments import Run
from tests.faults.recorder import Mood


async def down(run: Run) -> None:
    """It is gone for a while."""
    await run.somewhere()
    await run.stage.recorder.down()
    await asyncio.sleep(run.chance.uniform(1, 5))
    await run.stage.recorder.up()


async def flapping(run: Run) -> None:
    """It comes and goes."""
    await run.somewhere()
    for _ in range(run.chance.randint(2, 5)):
        await run.stage.recorder.down()
        await asyncio.sleep(run.chance.uniform(0.05, 0.6))
        await run.stage.recorder.up()
        await asyncio.sleep(run.chance.uniform(0.05, 0.6))


async def slow(run: Run) -> None:
    """Its replies take seconds for a while."""
    recorder = run.stage.recorder
    await run.somewhere()
    usual, recorder.pace = recorder.pace, (0.5, 3.0)
    try:
        await asyncio.sleep(run.chance.uniform(1, 4))
    finally:
        recorder.pace = usual


async def _in_a_mood(run: Run, mood: Mood) -> None:
    await run.somewhere()
    run.stage.recorder.mood = mood
    try:
        await asyncio.sleep(run.chance.uniform(0.5, 3))
    finally:
        run.stage.recorder.mood = Mood.WELL


async def failing(run: Run) -> None:
    """Half of its replies are errors that may pass."""
    await _in_a_mood(run, Mood.FAILING)


async def garbage(run: Run) -> None:
    """Some of its replies are no HTTP, break off, or are no JSON."""
    await _in_a_mood(run, Mood.GARBAGE)


ALL = (down, flapping, slow, failing, garbage)
