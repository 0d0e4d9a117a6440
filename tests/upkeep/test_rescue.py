"""What a dead worker held goes on elsewhere, even if it froze with its row locked."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from overnight.batches.cancel import cancel
from overnight.batches.pool import pool_status
from overnight.batches.shape import BatchView
from overnight.domain import events
from overnight.domain.limits import Limits
from overnight.domain.states import Status
from overnight.store import batches
from overnight.store.answers import Fenced, record
from overnight.store.life import (
    BEAT_EVERY,
    DEAD_AFTER,
    LONGEST_LOCK_WAIT,
    Life,
    end_sessions,
    find_stale,
    free_lingering,
    hold_fence,
)
from overnight.store.neighbours import Neighbours
from overnight.store.pool import LOST, Store
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.rescue import Rescue
from overnight.upkeep.rounds import rounds
from overnight.upkeep.validate import Validate
from tests.batches.factory import Factory, an_answer, lines

LIMIT = timedelta(milliseconds=1)
"""The server of the tests may have been started a moment ago; workers that should live are given a beat to come."""


async def silent(make: Factory) -> Life:
    """A worker that has not been heard of for an hour."""
    life = await make.worker()
    await make.run("UPDATE beat SET at = now() - interval '1 hour' WHERE worker = $1", life.no)
    return life


async def alive(make: Factory) -> Life:
    """A worker that will be fresh for an hour."""
    life = await make.worker()
    await make.run("UPDATE beat SET at = now() + interval '1 hour' WHERE worker = $1", life.no)
    return life


async def test_blocks_and_batches_of_a_dead_worker_go_back(make: Factory) -> None:
    dead = await silent(make)
    running, ending, checking = await make.running(lines(300)), await make.running(lines(1)), await make.batch()
    await make.lease(running, dead)
    assert await batches.claim_validating(make.store, dead.no, [checking.no], may_read=True)
    await cancel(make.store, make.owner, ending.public_id)
    assert await batches.claim_over(make.store, dead.no, [ending.no])

    assert await Rescue(make.deps, LIMIT).round() is True

    assert await make.value("SELECT count(*) FROM block WHERE state = 'leased'") == 0
    count = await make.value("SELECT count(*) FROM block WHERE batch = $1", running.no)
    assert len(await make.lease(running)) == count > 1
    assert await Validate(make.deps).round() is True
    assert (await make.sealed(ending)).status is Status.CANCELLED
    assert await Rescue(make.deps, LIMIT).round() is False


async def test_a_living_worker_and_ones_own_are_left_alone(make: Factory) -> None:
    other = await alive(make)
    await make.run("UPDATE beat SET at = now() - interval '1 hour' WHERE worker = $1", make.life.no)
    assert await Rescue(make.deps, LIMIT).round() is False
    assert await make.value("SELECT count(*) FROM worker WHERE dead_at IS NULL") == 2
    await make.run("UPDATE beat SET at = now() - interval '1 hour' WHERE worker = $1", other.no)
    assert await Rescue(make.deps, LIMIT).round() is True
    assert await make.value("SELECT array_agg(no) FROM worker WHERE dead_at IS NULL") == [make.life.no]


async def neighbour(make: Factory, folder: Path) -> Life:
    """A fresh worker of the same data directory."""
    life = Life(make.store, neighbours=Neighbours(folder))
    await life.begin()
    return life


async def grant(make: Factory, life: Life) -> None:
    """Slots of a model with a cap."""
    await make.run("INSERT INTO model_state (model) VALUES ('m')")
    granted = "INSERT INTO model_grant (model, worker, granted, running, wanted) VALUES ('m', $1, 4, 4, 4)"
    await make.run(granted, life.no)


async def shown(make: Factory, batch: BatchView) -> tuple[int, int]:
    """How many requests run by what is shown of the whole pool and of one batch."""
    progress = (await make.look(batch)).progress
    assert progress is not None
    return (await pool_status(make.store, make.limits))["scheduling_pool_active"], progress.running


def kill(life: Life) -> None:
    """As the kernel does it: its lock is let go of."""
    assert life.neighbours is not None
    life.neighbours.leave(ended=False)


async def test_what_a_killed_neighbour_held_is_free_at_the_first_look_of_the_next_process(
    make: Factory, tmp_path: Path
) -> None:
    killed, living = await neighbour(make, tmp_path), await neighbour(make, tmp_path)
    killed.running, living.running = lambda: 4, lambda: 1
    await killed.beat()
    await living.beat()
    running, other = await make.running(lines(300)), await make.running(lines(1))
    held = await make.lease(running, killed)
    await make.lease(other, living)
    await grant(make, killed)
    assert (await shown(make, running), await shown(make, other)) == ((5, 4), (5, 1))
    kill(killed)

    make.life = await neighbour(make, tmp_path)
    told = events.COUNTED.labels("worker_gone")._value.get()
    assert await Rescue(make.deps).round() is True

    assert await make.value("SELECT array_agg(no) FROM worker WHERE dead_at IS NOT NULL") == [killed.no]
    assert events.COUNTED.labels("worker_gone")._value.get() == told + 1
    assert await make.value("SELECT count(*) FROM model_grant") == 0
    assert (await shown(make, running), await shown(make, other)) == ((1, 0), (1, 1))
    assert len(await make.lease(running)) == len(held) > 1
    assert await make.lease(other) == []
    assert await Rescue(make.deps).round() is False
    assert len(list(tmp_path.iterdir())) == 2


async def test_a_last_write_of_a_killed_neighbour_is_undone(make: Factory, tmp_path: Path) -> None:
    """The server may not have noticed yet that nobody is at the other end."""
    killed = await neighbour(make, tmp_path)
    session = await make.store.connect(killed.session_name)
    transaction = session.connection.transaction()
    await transaction.start()
    await session.connection.execute("SELECT 1 FROM worker WHERE no = $1 FOR SHARE", killed.no)
    await grant(make, killed)
    kill(killed)
    make.life = await neighbour(make, tmp_path)
    assert await Rescue(make.deps).round() is True
    with pytest.raises(LOST):
        await session.connection.fetchval("SELECT 1")
    while await end_sessions(make.store, killed.no, is_gone=True):
        pass
    await free_lingering(make.store)
    assert await make.value("SELECT count(*) FROM model_grant") == 0, "no request of it can run any more"


async def test_after_a_start_of_the_server_workers_have_time_to_be_heard(make: Factory) -> None:
    """No heartbeat could be written while it was down."""
    started = await make.value("SELECT now() - pg_postmaster_start_time()")
    worker = await silent(make)
    assert worker.no not in await find_stale(make.store, started + timedelta(minutes=10))
    await make.run("UPDATE beat SET at = now() - interval '1 year' WHERE worker = $1", worker.no)
    assert worker.no not in await find_stale(make.store, started + timedelta(minutes=10))
    assert worker.no in await find_stale(make.store, timedelta(0))


@pytest.mark.parametrize("beats", [True, False])
async def test_a_worker_that_beats_again_just_in_time_lives(make: Factory, beats: bool) -> None:
    worker = await silent(make)
    rescue = Rescue(make.deps, timedelta(minutes=30))
    if beats:
        await make.run("UPDATE beat SET at = now() WHERE worker = $1", worker.no)
    assert await rescue._declare(worker.no) is not beats


async def test_a_frozen_worker_loses_its_lock_and_what_it_had_not_committed(make: Factory) -> None:
    frozen = await silent(make)
    batch = await make.running(lines(3))
    await make.lease(batch, frozen)
    session = await make.store.connect(frozen.session_name)
    transaction = session.connection.transaction()
    await transaction.start()
    await record(session, frozen.no, [(batch.no, [an_answer(batch.id, 0)])])

    assert await Rescue(make.deps, LIMIT).round() is True

    with pytest.raises(LOST):
        await session.connection.fetchval("SELECT 1")
    assert (await make.look(batch)).counts.completed == 0
    await make.answer_all(batch)
    ended = await make.sealed(batch)
    assert (ended.status, ended.counts.completed) == (Status.COMPLETED, 3)
    async with make.store.session() as again:
        with pytest.raises(Fenced):
            await record(again, frozen.no, [(batch.no, [an_answer(batch.id, 0)])])


async def test_a_worker_that_froze_while_it_checked_a_file_is_found_by_its_name(make: Factory) -> None:
    """Its transaction runs on a shared connection, which bears the worker's name for as long."""
    frozen = await silent(make)
    batch = await make.batch()
    assert await batches.claim_validating(make.store, frozen.no, None, may_read=True)
    session = await make.store.connect("overnight")
    transaction = session.connection.transaction()
    await transaction.start()
    await hold_fence(session, frozen.no)
    assert await batches.hold_validating(session, batch.no, frozen.no)

    cancelling = asyncio.create_task(cancel(make.store, make.owner, batch.public_id))
    assert await Rescue(make.deps, LIMIT).round() is True
    assert (await cancelling).status is Status.CANCELLING

    with pytest.raises(LOST):
        await session.connection.fetchval("SELECT 1")
    assert (await make.sealed(batch)).status is Status.CANCELLED


async def test_a_shared_connection_bears_the_workers_name_no_longer_than_its_transaction(make: Factory) -> None:
    async with make.store.session() as session:
        async with session.connection.transaction():
            await hold_fence(session, make.life.no)
            named = await session.connection.fetchval("SHOW application_name")
        after = await session.connection.fetchval("SHOW application_name")
    assert (named, after) == (make.life.session_name, "overnight")
    assert await end_sessions(make.store, make.life.no) == 0


async def test_a_row_that_somebody_else_holds_is_tried_again_later(make: Factory) -> None:
    worker = await silent(make)
    async with make.open_transaction() as session:
        await session.connection.execute("SELECT 1 FROM worker WHERE no = $1 FOR SHARE", worker.no)
        assert await Rescue(make.deps, LIMIT).round() is False
    assert await Rescue(make.deps, LIMIT).round() is True


def test_what_a_dead_worker_held_is_free_within_15_seconds_of_its_last_heartbeat() -> None:
    """Who died or froze is stale by then, was looked for, and has lost its locks; others are woken with the commit."""
    deps = Upkeep(Store(""), Life(Store("")), Limits())
    every = next(seconds for name, _, seconds in rounds(deps) if name == "rescue")
    assert isinstance(every, float)
    wait = float(LONGEST_LOCK_WAIT.removesuffix("s"))
    assert DEAD_AFTER.total_seconds() + every + 2 * wait <= 15
    # Three heartbeats may be lost, or come late, before a living worker is taken for dead.
    assert DEAD_AFTER.total_seconds() >= 4 * BEAT_EVERY


async def test_a_worker_that_leaves_by_itself_gives_back_at_once(make: Factory) -> None:
    other = await make.worker()
    batch = await make.running(lines(1))
    await make.lease(batch, other)
    await other.end()
    assert len(await make.lease(batch)) == 1
