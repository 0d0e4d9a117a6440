"""The pool counts what waits and what runs in the whole deployment."""

from __future__ import annotations

from typing import Any

import pytest

from overnight.batches.cancel import cancel
from overnight.batches.pause import pause
from overnight.batches.pool import pool_status
from tests.batches.factory import Factory, lines

CREATED = "UPDATE batch SET created_at = now() - make_interval(mins => $2) WHERE no = $1"


async def oldest(make: Factory) -> Any:
    """For how long the oldest request has waited."""
    return (await pool_status(make.store, make.limits))["oldest_waiting_seconds"]


async def test_an_idle_deployment_is_empty(make: Factory) -> None:
    await make.run("UPDATE beat SET at = now() + interval '1 hour', slots = 100 WHERE worker = $1", make.life.no)
    assert await pool_status(make.store, make.limits) == {
        "intake_pool_size": 0,
        "intake_pool_capacity": 1_000_000,
        "scheduling_pool_active": 0,
        "scheduling_pool_free": 100,
        "scheduling_pool_capacity": 100,
        "active_batches": 0,
        "pool_mode": True,
        "oldest_waiting_seconds": None,
    }


async def test_all_living_workers_are_counted_and_the_dead_are_not(make: Factory) -> None:
    second, dead = await make.worker(), await make.worker()
    await make.run("UPDATE beat SET at = now() + interval '1 hour', slots = 100, running = 30")
    await make.run("UPDATE worker SET dead_at = now() WHERE no = $1", dead.no)
    running = await make.running(lines(90))
    await make.lease(running, second)
    waiting = await make.batch(lines(10), owner=await make.stranger())
    await make.run("UPDATE batch SET created_at = now() - interval '90 seconds' WHERE no = $1", waiting.no)

    status = await pool_status(make.store, make.limits)

    assert status["scheduling_pool_active"] == 60
    assert (status["scheduling_pool_free"], status["scheduling_pool_capacity"]) == (140, 200)
    assert (status["intake_pool_size"], status["active_batches"]) == (40, 2)
    assert status["oldest_waiting_seconds"] >= 90


async def test_a_process_that_may_be_gone_runs_nothing_and_has_no_slots(make: Factory) -> None:
    await make.running(lines(9))
    killed = await make.worker()
    await make.run("UPDATE beat SET at = now() + interval '1 hour', slots = 10, running = 4")
    await make.run("UPDATE beat SET at = now() - interval '6 seconds' WHERE worker = $1", killed.no)

    status = await pool_status(make.store, make.limits)

    assert (status["intake_pool_size"], status["scheduling_pool_active"]) == (5, 4)
    assert (status["scheduling_pool_free"], status["scheduling_pool_capacity"]) == (6, 10)


async def test_what_runs_of_batches_that_end_takes_nothing_off_what_waits(make: Factory) -> None:
    await make.running(lines(9))
    await make.run("UPDATE beat SET at = now() + interval '1 hour', slots = 10, running = 5, ending = 3")
    assert (await pool_status(make.store, make.limits))["intake_pool_size"] == 7


async def test_the_oldest_that_waits_may_be_with_a_worker(make: Factory) -> None:
    """The first batch runs whole, and of the second its worker holds more than it runs: nothing of either is ready."""
    first, second = await make.running(lines(4)), await make.running(lines(4))
    for batch, minutes in ((first, 3), (second, 2)):
        await make.run(CREATED, batch.no, minutes)
        await make.lease(batch)
    make.life.waiting = lambda: [second.no]
    await make.life.beat()
    await make.run("UPDATE beat SET at = now() + interval '1 hour', running = 6, slots = 6")

    status = await pool_status(make.store, make.limits)

    assert status["intake_pool_size"] == 2
    assert 120 <= status["oldest_waiting_seconds"] < 180


async def test_as_long_as_requests_wait_it_is_known_for_how_long(make: Factory) -> None:
    batch = await make.running(lines(3))
    await make.run(CREATED, batch.no, 2)
    assert (await oldest(make)) >= 120
    await make.lease(batch)
    assert (await oldest(make)) >= 120, "no heartbeat has told of it yet"
    await make.run("UPDATE beat SET at = now() + interval '1 hour', running = 3")
    assert await oldest(make) is None, "all of them run"
    await make.run("UPDATE beat SET at = now() - interval '6 seconds'")
    assert (await oldest(make)) >= 120, "what may be gone runs nothing"


async def test_what_a_worker_that_may_be_gone_held_waits_as_long_as_its_batch(make: Factory) -> None:
    gone = await make.worker()
    for minutes, life in ((3, gone), (2, None)):
        batch = await make.running(lines(3))
        await make.run(CREATED, batch.no, minutes)
        if life:
            await make.lease(batch, life)
    await make.run("UPDATE beat SET at = now() - interval '6 seconds' WHERE worker = $1", gone.no)
    assert (await oldest(make)) >= 180


@pytest.mark.parametrize(("paused", "waits"), [(True, 120), (False, 60)])
async def test_a_batch_that_starts_nothing_more_at_a_worker_waits_only_where_it_is_paused(
    make: Factory, paused: bool, waits: int
) -> None:
    closed = await make.running(lines(3))
    await make.run(CREATED, closed.no, 2)
    behind = await make.running(lines(3))
    await make.run(CREATED, behind.no, 1)
    for batch in (closed, behind):
        await make.lease(batch)
    await (pause if paused else cancel)(make.store, make.owner, closed.public_id)
    make.life.waiting = lambda: [behind.no, closed.no]
    await make.life.beat()
    assert waits <= (await oldest(make)) < waits + 60


async def test_cancelled_requests_leave_the_intake_at_once(make: Factory) -> None:
    batch = await make.running(lines(3))
    await cancel(make.store, make.owner, batch.public_id)
    status = await pool_status(make.store, make.limits)
    assert (status["intake_pool_size"], status["active_batches"]) == (0, 1)
    assert status["oldest_waiting_seconds"] is None


async def test_more_running_than_known_is_no_negative_number(make: Factory) -> None:
    await make.run("UPDATE beat SET at = now() + interval '1 hour', slots = 1, running = 5")
    status = await pool_status(make.store, make.limits)
    assert (status["intake_pool_size"], status["scheduling_pool_free"]) == (0, 0)
