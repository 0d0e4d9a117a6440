"""Whatever lets something start, stop or end rings in every process, by the commit that does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from overnight.batches.cancel import cancel
from overnight.batches.pause import pause, resume
from overnight.batches.retry import retry
from overnight.loops import Bell
from overnight.store import leases
from overnight.store.life import declare_dead
from overnight.store.listen import SETTINGS, TIDY, WORK, Listener
from overnight.upkeep.expire import Expire
from overnight.upkeep.validate import Validate
from tests.batches.factory import Factory, lines, serve_m


class Bells:
    """What another process hears."""

    def __init__(self) -> None:
        self.work, self.tidy, self.marks = 0, 0, Bell()

    async def heard(self, make: Factory) -> tuple[bool, bool]:
        """Whether work, and something to tidy, was told of since the last time."""
        await make.run(f"NOTIFY {SETTINGS}")
        await asyncio.wait_for(self.marks.wait(3_600), 60)
        heard = bool(self.work), bool(self.tidy)
        self.work = self.tidy = 0
        return heard


class _Count(Bell):
    def __init__(self, count: Callable[[], None]) -> None:
        super().__init__()
        self._count = count

    def ring(self) -> None:
        self._count()


@pytest.fixture
async def bells(make: Factory) -> AsyncIterator[Bells]:
    bells = Bells()

    def work() -> None:
        bells.work += 1

    def tidy() -> None:
        bells.tidy += 1

    listener = Listener(make.store, {WORK: _Count(work), TIDY: _Count(tidy), SETTINGS: bells.marks})
    await listener.round()
    await bells.marks.wait(60)
    await bells.heard(make)
    yield bells
    listener.close()


NOTHING, WORK_ONLY, TIDY_ONLY, BOTH = (False, False), (True, False), (False, True), (True, True)


async def test_a_batch_that_is_created_checked_and_answered(make: Factory, bells: Bells) -> None:
    batch = await make.batch(lines(2))
    assert await bells.heard(make) == TIDY_ONLY
    await Validate(make.deps).round()
    assert await bells.heard(make) == WORK_ONLY
    assert await make.lease(batch)
    assert await bells.heard(make) == NOTHING
    await make.answer(batch, [0])
    assert await bells.heard(make) == NOTHING
    await make.answer(batch, [1])
    assert await bells.heard(make) == TIDY_ONLY


@pytest.mark.parametrize(("verb", "expected"), [(cancel, BOTH), (pause, WORK_ONLY)])
async def test_verbs_that_stop_a_batch(
    make: Factory, bells: Bells, verb: Callable[..., Awaitable[Any]], expected: tuple[bool, bool]
) -> None:
    batch = await make.running(lines(2))
    await bells.heard(make)
    await verb(make.store, make.owner, batch.public_id)
    assert await bells.heard(make) == expected
    await verb(make.store, make.owner, batch.public_id)
    assert await bells.heard(make) == NOTHING


async def test_a_batch_that_goes_on(make: Factory, bells: Bells) -> None:
    batch = await make.running(lines(2))
    await pause(make.store, make.owner, batch.public_id)
    await bells.heard(make)
    await resume(make.store, make.owner, batch.public_id)
    assert await bells.heard(make) == WORK_ONLY


async def test_a_batch_that_is_retried(make: Factory, bells: Bells) -> None:
    batch = await make.running(lines(2))
    await cancel(make.store, make.owner, batch.public_id)
    ended = await make.sealed(batch)
    await bells.heard(make)
    await retry(make.store, make.limits, make.owner, ended.public_id)
    assert await bells.heard(make) == TIDY_ONLY


async def test_a_window_that_closes(make: Factory, bells: Bells) -> None:
    batch = await make.running(lines(2))
    await make.run("UPDATE batch SET expires_at = now() WHERE no = $1", batch.no)
    await bells.heard(make)
    assert await Expire(make.deps).round()
    assert await bells.heard(make) == BOTH


async def test_blocks_that_go_back(make: Factory, bells: Bells) -> None:
    batch = await make.running(lines(2))
    await make.lease(batch)
    await bells.heard(make)
    async with make.store.session() as session:
        await leases.end_leases(session, make.life.no, [(batch.no, 0, False)])
    assert await bells.heard(make) == WORK_ONLY
    await make.lease(batch)
    await cancel(make.store, make.owner, batch.public_id)
    await bells.heard(make)
    async with make.store.session() as session:
        await leases.end_leases(session, make.life.no, [(batch.no, 0, True)])
    assert await bells.heard(make) == TIDY_ONLY


async def test_a_worker_that_died(make: Factory, bells: Bells) -> None:
    batch, worker = await make.running(lines(2)), await make.worker()
    await make.lease(batch, worker)
    await bells.heard(make)
    assert await declare_dead(make.store, worker.no, timedelta(0))
    assert await bells.heard(make) == BOTH


async def test_a_model_that_is_served(make: Factory, bells: Bells) -> None:
    await serve_m(make.store, make.life)
    assert await bells.heard(make) == TIDY_ONLY
