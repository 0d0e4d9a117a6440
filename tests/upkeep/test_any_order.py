"""Whatever is asked for in whatever order, with processes that die in between: everything fits together afterwards."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from overnight.batches import create as creating
from overnight.batches import find
from overnight.batches.cancel import cancel
from overnight.batches.delete import delete
from overnight.batches.pause import pause, resume
from overnight.batches.request import NewBatch
from overnight.batches.retry import retry
from overnight.batches.shape import BatchView
from overnight.domain.errors import Refusal
from overnight.domain.states import FINAL
from overnight.files.delete import delete as delete_file
from overnight.store import answers
from overnight.store.answers import ERROR, OUTPUT, Answer, Fenced
from overnight.store.leases import LeasedBlock
from overnight.store.life import Life, declare_dead
from overnight.store.pool import Store
from overnight.upkeep import unfollow
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.expire import Expire
from overnight.upkeep.follow import Follow
from overnight.upkeep.purge import Purge
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate
from tests.batches.factory import CHAT, Factory, an_answer, line, lines, serve_m
from tests.upkeep.fuse import Crash, Fuse, FusedStore
from tests.upkeep.orphans import no_orphans, over

STEPS = 60


class Deployment:
    """Some batches, and one worker at a time, which may die at any step."""

    def __init__(self, make: Factory, chance: random.Random, folder: Path) -> None:
        self.make = make
        self.chance = chance
        self.folder = folder
        self.life = make.life
        self.held: list[LeasedBlock] = []

    @property
    def store(self) -> Store:
        """The store, which one time in three cuts whoever uses it off after a few statements."""
        if self.chance.random() < 0.67:
            return self.make.store
        return FusedStore(self.make.store, Fuse(self.chance.randrange(25)))

    async def any_batch(self) -> str:
        found, _ = await find.page(self.make.store, self.make.owner, limit=100, after=None)
        return self.chance.choice(found).public_id if found else "batch_" + "0" * 32

    async def create(self) -> None:
        count = self.chance.randint(1, 5)
        if self.chance.random() < 0.3:
            text = lines(count) if self.chance.random() < 0.8 else lines(count) + b"nonsense"
            file = await self.make.file(text)
            new = NewBatch(file.public_id, CHAT)
        else:
            new = NewBatch(None, None, requests=[msgspec.Raw(line(f"r{i}")) for i in range(count)])
        await creating.create(self.store, self.make.limits, self.make.owner, new)

    async def verb(self) -> None:
        verb: Callable[[Store, int, str], Awaitable[Any]] = self.chance.choice([cancel, pause, resume, delete])
        await verb(self.store, self.make.owner, await self.any_batch())

    async def retry(self) -> None:
        await retry(self.store, self.make.limits, self.make.owner, await self.any_batch())

    async def round(self) -> None:
        deps = Upkeep(self.store, self.life, self.make.limits)
        seal = Seal(deps).round
        await self.chance.choice([Validate(deps).round, seal, seal, Expire(deps).round, Purge(deps).round])()

    async def follow(self) -> None:
        following = Follow(dataclasses.replace(self.make.deps, store=self.store, incremental_dir=self.folder))
        try:
            await following.round()
        finally:
            following.close()

    async def lease(self) -> None:
        batch = await find.get(self.make.store, self.make.owner, await self.any_batch())
        self.held += await self.make.lease(batch, self.life, most=1)

    async def answer(self) -> None:
        """Answer some of a block, and give it back, done or not; its batch may be gone by now."""
        if not self.held:
            await self.lease()
            return
        block = self.held.pop(self.chance.randrange(len(self.held)))
        done = set(await self.make.value(
            "SELECT array_agg(line) FROM answer WHERE batch = $1", block.batch.no) or ())  # fmt: skip
        numbers = [number for number in block.lines if number not in done]
        some = numbers if self.chance.random() < 0.6 else numbers[: len(numbers) // 2]
        found = [an_answer(block.batch.id, n, kind=self.chance.choice([OUTPUT, OUTPUT, ERROR])) for n in some]
        await self.record(self.life, block, found)
        await self.make.let_go([block], self.life, done=some == numbers)

    async def die(self) -> None:
        """The worker falls silent and another one takes over; what it does from now on counts for nothing."""
        await self.make.run("UPDATE beat SET at = now() - interval '1 hour' WHERE worker = $1", self.life.no)
        gone, self.life = self.life, Life(self.make.store)
        await self.life.begin()
        await serve_m(self.make.store, self.life)
        assert await declare_dead(self.make.store, gone.no, timedelta(seconds=10))
        for block in self.held:
            with pytest.raises(Fenced):
                await self.record(gone, block, [an_answer(block.batch.id, block.lines[0])])
        self.held = []

    async def record(self, life: Life, block: LeasedBlock, found: list[Answer]) -> None:
        if found:
            async with self.make.store.session() as session:
                await answers.record(session, life.no, [(block.batch.no, found)])

    async def time_goes_by(self) -> None:
        await self.chance.choice(
            [self.close_a_window, self.end_a_retention, lambda: over(self.make), self.delete_a_file]
        )()

    async def close_a_window(self) -> None:
        await self.make.close_window(await find.get(self.make.store, self.make.owner, await self.any_batch()))

    async def end_a_retention(self) -> None:
        await self.make.run("UPDATE batch SET ended_at = ended_at - interval '30 days' WHERE random() < 0.3")

    async def delete_a_file(self) -> None:
        name = await self.make.value("SELECT 'file-' || replace(id::text, '-', '') FROM file LIMIT 1")
        await delete_file(self.store, self.make.owner, name or "file-1")

    async def settle(self) -> list[BatchView]:
        """Let everything that was begun come to its end, and return the batches that are left."""
        await self.die()
        await self.make.run("UPDATE batch SET paused = NULL WHERE ended_at IS NULL")
        await self.make.run("UPDATE batch SET expires_at = now() + interval '1 day' WHERE ended_at IS NULL")
        deps = Upkeep(self.make.store, self.life, self.make.limits)
        busy = True
        while busy:
            busy = False
            for one_round in (Validate(deps).round, Expire(deps).round, Seal(deps).round):
                busy |= await one_round()
            found, _ = await find.page(self.make.store, self.make.owner, limit=100, after=None)
            for batch in found:
                self.held += await self.make.lease(batch, self.life)
            while self.held:
                busy = True
                await self.answer()
        for _ in range(2):
            # What goes after its retention in the first time has its own time of grace.
            while await Purge(deps).round():
                pass
            await over(self.make)
        while await Purge(deps).round():
            pass
        return (await find.page(self.make.store, self.make.owner, limit=100, after=None))[0]


@pytest.mark.parametrize("seed", range(4))
async def test_in_any_order(make: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(unfollow, "EVERY", 0)
    it = Deployment(make, random.Random(seed), tmp_path)
    likely = [it.create] * 3 + [it.round] * 6 + [it.answer] * 5 + [it.verb] * 2
    acts = [*likely, it.retry, it.follow, it.die, it.time_goes_by]
    for _ in range(STEPS):
        with suppress(Crash, Refusal):
            await it.chance.choice(acts)()
        await no_orphans(make)

    left = await it.settle()

    assert {batch.status for batch in left} <= FINAL
    assert all(batch.counts.unanswered == 0 for batch in left)
    await no_orphans(make, settled=True)
    following = Follow(dataclasses.replace(make.deps, incremental_dir=tmp_path))
    while await following.round():
        pass
    following.close()
    names = {path.name.partition(".")[0] for path in tmp_path.iterdir() if path.name != ".lock"}
    assert names <= {batch.public_id for batch in left}
    for batch in left:
        file = tmp_path / f"{batch.public_id}.jsonl"
        assert not file.exists() or file.read_bytes() == await make.stream(batch, OUTPUT)
