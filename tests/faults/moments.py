"""When a fault strikes: somewhere in the middle of what runs or at its end, wherever that is this time."""

from __future__ import annotations

import asyncio
import random
import time

from overnight.domain import ids
from tests.faults.job import Job
from tests.faults.stage import Stage

LONGEST_WAIT = 8.0
"""Seconds after which a fault strikes even where fewer requests came than were to come."""
IN_DOUBT = 5.0
"""Seconds in which a create ends, one way or the other, whose caller has hung up."""
AT_AN_END = 0.25
"""The part of the faults that strike as a batch ends and is sealed."""

_LEFT = """
    SELECT status = 'validating' OR total - completed - failed - cancelled > $2
    FROM batch WHERE id = $1 AND ended_at IS NULL"""


class Run:
    """One run on a stage: the batches that it began with, and its own chance."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage = stage
        self.chance = chance
        self.jobs: list[Job] = []
        self.database_is_well = True
        """Nothing happens to it, or to the way to it, in this run."""
        self._arrived = stage.recorder.arrived

    async def begin(self, batches: int, requests: tuple[int, int]) -> None:
        """Hand over so many batches, each with a number of requests in this range."""
        for _ in range(batches):
            self.jobs.append(await self.stage.submit(self.chance.randint(*requests)))

    async def somewhere(self) -> None:
        """Return when a random share of the requests has arrived, and a moment later; or as a batch ends."""
        if self.jobs and self.chance.random() < AT_AN_END:
            await self.as_it_ends(self.chance.choice(self.jobs))
            return
        await self.in_the_middle()

    async def in_the_middle(self) -> None:
        """Return when a random share of the requests has arrived, and a moment later."""
        share = self.chance.uniform(0.05, 0.7)
        wanted = self._arrived + int(share * sum(len(job.custom_ids) for job in self.jobs))
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                await self.stage.recorder.until_arrived(wanted)
        except TimeoutError:
            pass
        await asyncio.sleep(self.chance.uniform(0, 0.3))

    async def as_it_ends(self, job: Job) -> None:
        """Return when a batch has answers to all its requests but for a few: what comes next races with its end."""
        few = self.chance.choice([0, 0, 1, 5, 20])
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                while await self.stage.value(_LEFT, ids.read(ids.BATCH, job.batch or ""), few):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass
        await asyncio.sleep(self.chance.choice([0, 0, 0.05, 0.2]) * self.chance.random())

    async def some_time_of(self, job: Job) -> None:
        """Return in the middle of what runs, or as a batch ends."""
        if self.chance.random() < 0.5:
            await self.in_the_middle()
        else:
            await self.as_it_ends(job)

    async def finish(self) -> None:
        """Undo what is left of the faults, and wait until all batches of the run have ended."""
        await self.stage.heal()
        for job in self.stage.jobs:
            if job.in_doubt is not None:
                await asyncio.sleep(job.in_doubt + IN_DOUBT - time.time())
                await self.stage.look_up(job)
                job.in_doubt = None
            if job.batch is not None:
                await self.stage.until_ended(job)
