"""Nothing of a paused batch starts until it is resumed; its window goes on, and it can be cancelled."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from overnight.batches import find
from overnight.batches.cancel import cancel
from overnight.batches.pause import pause, resume
from overnight.batches.shape import BatchView
from overnight.domain.errors import BatchNotFound, InvalidParameter
from overnight.domain.states import Status
from overnight.store import leases
from overnight.upkeep.expire import Expire
from tests.batches.factory import Factory, lines

BY_USER = {"reason": "user", "by": None, "until": None}


async def test_no_block_of_a_paused_batch_is_leased_until_it_is_resumed(make: Factory) -> None:
    batch = await make.running(lines(2))
    paused = await pause(make.store, make.owner, batch.public_id)
    assert (paused.status, paused.paused) == (Status.IN_PROGRESS, BY_USER)
    assert await make.lease(batch) == []
    assert await pause(make.store, make.owner, batch.public_id) == await make.look(batch)

    resumed = await resume(make.store, make.owner, batch.public_id)
    assert resumed.paused is None
    assert len(await make.lease(batch)) == 1
    assert (await resume(make.store, make.owner, batch.public_id)).paused is None


async def pass_time(make: Factory, batch: BatchView, hours: int) -> None:
    """So many hours pass."""
    await make.run(
        "UPDATE batch SET in_progress_at = in_progress_at - $2::interval, paused_at = paused_at - $2::interval"
        " WHERE no = $1",
        *(batch.no, timedelta(hours=hours)),
    )


async def test_the_time_of_pauses_does_not_count_in_the_pace(make: Factory) -> None:
    batch = await make.running(lines(4), completion_window="168h")
    await make.let_go(await make.lease(batch))
    await pass_time(make, batch, 1)
    await make.answer(batch, [0, 1])
    for _ in range(2):
        await pause(make.store, make.owner, batch.public_id)
        await pass_time(make, batch, 50)
        paused = (await make.look(batch)).progress
        assert paused is not None
        assert paused.per_minute == 0.03
        await resume(make.store, make.owner, batch.public_id)
    progress = (await make.look(batch)).progress
    assert progress is not None
    assert progress.estimated_finish_at is not None
    assert timedelta(minutes=59) < progress.estimated_finish_at - datetime.now(UTC) < timedelta(minutes=61)
    (page,) = (await find.page(make.store, make.owner, limit=1, after=None))[0]
    assert page.progress is not None
    assert page.progress.per_minute == 0.03

    (block,) = await make.lease(batch)
    async with make.store.session() as session:
        states, _ = await leases.states(session, [batch.no])
    for pace in (block.batch.pace, states[batch.no].pace):
        assert (pace.left, pace.answered) == (2, 2)
        assert 3_590 < pace.seconds < 3_610


async def test_a_pause_that_began_before_the_check_counts_from_when_requests_could_run(make: Factory) -> None:
    batch = await make.batch(lines(2))
    await pause(make.store, make.owner, batch.public_id)
    await pass_time(make, batch, 50)
    await make.running(lines(1))
    await make.run("UPDATE batch SET in_progress_at = in_progress_at - '1 hour'::interval WHERE no = $1", batch.no)
    await resume(make.store, make.owner, batch.public_id)
    assert await make.value("SELECT extract(hour FROM paused_for)::integer FROM batch WHERE no = $1", batch.no) == 1


async def test_what_runs_when_a_batch_is_paused_finishes(make: Factory) -> None:
    batch = await make.running(lines(1))
    held = await make.lease(batch)
    await pause(make.store, make.owner, batch.public_id)
    await make.answer(batch, [0])
    await make.let_go(held, done=True)
    ended = await make.sealed(batch)
    assert (ended.status, ended.paused) == (Status.COMPLETED, None)


async def test_a_batch_can_be_paused_before_its_check(make: Factory) -> None:
    batch = await make.batch()
    await pause(make.store, make.owner, batch.public_id)
    running = await make.running(lines(1))
    assert (await make.look(batch)).status is Status.IN_PROGRESS
    assert await make.lease(batch) == []
    assert len(await make.lease(running)) == 1


async def test_a_paused_batch_expires_and_can_be_cancelled(make: Factory) -> None:
    late, unwanted = await make.running(lines(2)), await make.running(lines(2))
    for batch in (late, unwanted):
        await pause(make.store, make.owner, batch.public_id)
    await make.close_window(late)
    await Expire(make.deps).round()
    await cancel(make.store, make.owner, unwanted.public_id)
    assert (await make.sealed(late)).status is Status.EXPIRED
    ended = await make.sealed(unwanted)
    assert (ended.status, ended.paused) == (Status.CANCELLED, None)


async def test_what_cannot_start_any_more_is_neither_paused_nor_resumed(make: Factory) -> None:
    done, cancelled = await make.completed(lines(1)), await make.running(lines(1))
    await make.lease(cancelled)
    await cancel(make.store, make.owner, cancelled.public_id)
    for batch, status in ((done, "completed"), (cancelled, "cancelling")):
        for verb in (pause, resume):
            with pytest.raises(InvalidParameter, match=status):
                await verb(make.store, make.owner, batch.public_id)
        assert (await make.look(batch)).paused is None


async def test_a_pause_for_another_reason_is_not_lifted_by_the_owner(make: Factory) -> None:
    batch = await make.running(lines(1))
    quota = {"reason": "daily_quota", "by": None, "until": None}
    async with make.store.session() as session:
        await session.connection.execute("UPDATE batch SET paused = $1", quota)
    assert (await pause(make.store, make.owner, batch.public_id)).paused == quota
    assert (await resume(make.store, make.owner, batch.public_id)).paused == quota


async def test_of_a_pause_and_a_cancel_at_once_the_batch_ends_cancelled(make: Factory) -> None:
    batch = await make.running(lines(1))
    async with make.store.transaction() as session:
        await session.connection.execute("SELECT FROM batch WHERE no = $1 FOR UPDATE", batch.no)
        both = [asyncio.create_task(verb(make.store, make.owner, batch.public_id)) for verb in (cancel, pause)]
        await make.lock_wait()
    await asyncio.gather(*both, return_exceptions=True)
    assert (await make.sealed(batch)).status is Status.CANCELLED


async def test_the_batches_of_others_cannot_be_paused(make: Factory) -> None:
    batch = await make.running(lines(1))
    stranger = await make.stranger()
    for verb in (pause, resume):
        for name in (batch.public_id, "batch_1"):
            with pytest.raises(BatchNotFound):
                await verb(make.store, stranger, name)
    assert (await make.look(batch)).paused is None
