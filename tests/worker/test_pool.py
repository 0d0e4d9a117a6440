"""What waits, what runs and what is free add up at every moment, for any number of processes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from overnight.batches.pool import pool_status
from overnight.domain.limits import Limits
from overnight.store.life import declare_dead
from overnight.store.pool import Store
from tests.scripted_upstream import Asked, Say, Turnstile, Upstream, echo, failure
from tests.worker.rig import Rig, add_batch, request, rigged, value

NAMES = ("intake_pool_size", "scheduling_pool_active", "scheduling_pool_free", "active_batches")
END = "UPDATE batch SET status = 'cancelling', cancelling_at = now(), ends_as = 'cancelled' WHERE no = $1"
PAUSE = 'UPDATE batch SET paused = \'{"reason": "user"}\' WHERE no = $1'

CREATED = "UPDATE batch SET created_at = now() - make_interval(mins => $2) WHERE no = $1"


async def some_badly(asked: Asked) -> Say:
    """Answer those badly of which the name begins with `bad`."""
    return Say(400, failure("no")) if asked.name.startswith("bad") else await echo(asked)


async def pool(store: Store, *rigs: Rig) -> tuple[Any, ...]:
    """What waits, runs and is free, and how many batches are not over, after a heartbeat of each worker."""
    for rig in rigs:
        await rig.life.beat()
    status = await pool_status(store, Limits())
    return tuple(status[name] for name in NAMES)


async def waited(store: Store, rig: Rig) -> Any:
    """Seconds for which the oldest request has waited, after a heartbeat."""
    await rig.life.beat()
    return (await pool_status(store, Limits()))["oldest_waiting_seconds"]


async def answered(rig: Rig, store: Store, count: int) -> None:
    """Let a worker go on until so many answers are stored and its slots are full again."""
    async with asyncio.timeout(60):
        while await value(store, "SELECT count(*) FROM answer") < count or rig.worker.running < 4:
            await rig.worker.round()
            await rig.worker.bell.wait(0.02)


async def test_the_pool_adds_up_while_requests_fail_batches_are_cancelled_and_a_worker_dies(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = turnstile = Turnstile(some_badly)
    async with rigged(store, upstream, slots=4) as first:
        assert await pool(store, first) == (0, 0, 4, 0)
        stopped = await add_batch(store, [request(f"bad{i}") for i in range(20)], of_each=5)
        assert await pool(store, first) == (20, 0, 4, 1)

        await first.until(lambda: first.worker.running == 4)
        assert await pool(store, first) == (16, 4, 0, 1)
        turnstile.let_pass(2)
        await answered(first, store, 2)
        assert await pool(store, first) == (14, 4, 0, 1), "two failed, and two others took their slots"

        await add_batch(store, [request(f"r{i}") for i in range(30)], of_each=5)
        async with rigged(store, upstream, slots=3) as second:
            await value(store, END, stopped)
            for rig in (first, second):
                rig.worker.wake()
            await first.worker.round()
            assert await pool(store, first, second) == (30, 4, 3, 2), "what runs of a cancelled batch is in no queue"
            await second.until(lambda: second.worker.running == 3)
            assert await pool(store, first, second) == (27, 7, 0, 2)

            await declare_dead(store, second.life.no, timedelta(seconds=-60))
            assert await pool(store, first) == (30, 4, 0, 2), "what a dead worker ran waits again"

        turnstile.let_pass(100)
        await first.finish()
        assert await pool(store, first) == (0, 0, 4, 2), "nothing waits or runs; they are still to be sealed"
    assert await value(store, "SELECT completed FROM batch WHERE no <> $1", stopped) == 30


async def test_what_runs_of_a_paused_batch_is_not_taken_for_waiting(store: Store, upstream: Upstream) -> None:
    upstream.script = turnstile = Turnstile(some_badly)
    async with rigged(store, upstream, slots=4) as rig:
        batch = await add_batch(store, [request(f"r{i}") for i in range(10)])
        await rig.until(lambda: rig.worker.running == 4)
        await value(store, PAUSE, batch)
        rig.worker.wake()
        await rig.worker.round()
        assert await pool(store, rig) == (6, 4, 0, 1)
        turnstile.let_pass(4)
        await rig.until(lambda: rig.worker.running == 0)
        await rig.until(lambda: rig.worker.is_idle)
        assert await pool(store, rig) == (6, 0, 4, 1)


async def test_how_long_the_oldest_has_waited_is_known_while_a_worker_holds_all_that_waits(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = turnstile = Turnstile(some_badly)
    async with rigged(store, upstream, slots=4) as rig:
        for minutes in (9, 2):
            batch = await add_batch(store, [request(f"r{minutes}-{i}") for i in range(3)])
            await value(store, CREATED, batch, minutes)
        await rig.until(lambda: rig.worker.running == 4)
        assert not await value(store, "SELECT count(*) FROM block WHERE state = 'ready'")
        assert 120 <= await waited(store, rig) < 540, "the first three run, and one of the second batch"

        await value(store, PAUSE, batch)
        rig.worker.wake()
        await rig.worker.round()
        assert 120 <= await waited(store, rig) < 540, "two of it are left to others, when the one that runs has ended"

        await value(store, END, batch)
        assert await waited(store, rig) is None
        turnstile.let_pass(4)
        await rig.finish()
        assert await waited(store, rig) is None
