"""The pool counts what waits and what runs in the whole deployment."""

from __future__ import annotations

from overnight.batches.cancel import cancel
from overnight.batches.pool import pool_status
from tests.batches.factory import Factory, lines


async def test_an_idle_deployment_is_empty(make: Factory) -> None:
    await make.run("UPDATE beat SET slots = 100 WHERE worker = $1", make.life.no)
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
    await make.run("UPDATE beat SET slots = 100, running = 30")
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
    await make.run("UPDATE beat SET slots = 10, running = 4")
    await make.run("UPDATE beat SET at = now() - interval '6 seconds' WHERE worker = $1", killed.no)

    status = await pool_status(make.store, make.limits)

    assert (status["intake_pool_size"], status["scheduling_pool_active"]) == (5, 4)
    assert (status["scheduling_pool_free"], status["scheduling_pool_capacity"]) == (6, 10)


async def test_what_runs_of_batches_that_end_takes_nothing_off_what_waits(make: Factory) -> None:
    await make.running(lines(9))
    await make.run("UPDATE beat SET slots = 10, running = 5, ending = 3")
    assert (await pool_status(make.store, make.limits))["intake_pool_size"] == 7


async def test_a_batch_without_ready_requests_does_not_wait(make: Factory) -> None:
    batch = await make.running(lines(3))
    assert (await pool_status(make.store, make.limits))["oldest_waiting_seconds"] is not None
    await make.lease(batch)
    assert (await pool_status(make.store, make.limits))["oldest_waiting_seconds"] is None


async def test_cancelled_requests_leave_the_intake_at_once(make: Factory) -> None:
    batch = await make.running(lines(3))
    await cancel(make.store, make.owner, batch.public_id)
    status = await pool_status(make.store, make.limits)
    assert (status["intake_pool_size"], status["active_batches"]) == (0, 1)
    assert status["oldest_waiting_seconds"] is None


async def test_more_running_than_known_is_no_negative_number(make: Factory) -> None:
    await make.run("UPDATE beat SET slots = 1, running = 5")
    status = await pool_status(make.store, make.limits)
    assert (status["intake_pool_size"], status["scheduling_pool_free"]) == (0, 0)
