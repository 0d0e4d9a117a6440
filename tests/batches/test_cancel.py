"""A cancel stops what has not started, once, whatever else happens at the same moment."""

from __future__ import annotations

import asyncio

import pytest

from overnight.batches.cancel import cancel
from overnight.batches.shape import BatchView
from overnight.domain.states import FINAL, Status
from overnight.store import batches
from overnight.store.life import hold_fence
from overnight.upkeep.seal import Seal
from tests.batches.factory import Factory, lines


async def cancelled(make: Factory, batch: BatchView) -> BatchView:
    return await cancel(make.store, make.owner, batch.public_id)


async def test_a_cancel_is_kept_and_can_be_repeated(make: Factory) -> None:
    batch = await make.running(lines(3))
    first = await cancelled(make, batch)
    again = await cancelled(make, batch)
    assert first.status is again.status is Status.CANCELLING
    assert first.moments.cancelling_at == again.moments.cancelling_at is not None

    ended = await make.sealed(batch)
    assert ended.status is Status.CANCELLED
    assert ended.moments.cancelling_at == first.moments.cancelling_at
    assert await cancelled(make, batch) == ended


async def test_a_final_batch_is_returned_unchanged(make: Factory) -> None:
    done, bad = await make.completed(lines(1)), await make.running(b"nonsense\n")
    for batch in (done, bad):
        assert batch.status in FINAL
        assert await cancelled(make, batch) == batch


async def test_unstarted_requests_are_in_neither_count(make: Factory) -> None:
    batch = await make.running(lines(300))
    blocks = await make.lease(batch)
    await make.answer(batch, blocks[0].lines[:3])
    assert (await cancelled(make, batch)).status is Status.CANCELLING
    await make.answer(batch, blocks[0].lines[3:5])
    await make.let_go(blocks)

    ended = await make.sealed(batch)

    assert (ended.counts.total, ended.counts.completed, ended.counts.failed, ended.counts.cancelled) == (300, 5, 0, 295)
    output, errors = await make.results(ended)
    assert len(output) == 5
    assert {row["error"]["code"] for row in errors.values()} == {"batch_cancelled"}
    assert output.keys() | errors.keys() == {f"r{i}" for i in range(300)}


async def test_what_runs_may_finish_before_the_batch_ends(make: Factory) -> None:
    batch = await make.running(lines(3))
    blocks = await make.lease(batch)
    await cancelled(make, batch)
    assert (await make.sealed(batch)).status is Status.CANCELLING
    await make.answer(batch, blocks[0].lines)
    await make.let_go(blocks, done=True)
    ended = await make.sealed(batch)
    assert (ended.status, ended.counts.completed) == (Status.CANCELLED, 3)
    assert ended.error_file_id is None


async def test_a_batch_cancelled_before_it_was_checked_has_no_results(make: Factory) -> None:
    batch = await make.batch(lines(3))
    await cancelled(make, batch)
    ended = await make.sealed(batch)
    assert (ended.status, ended.counts.total, ended.counts.cancelled) == (Status.CANCELLED, 3, 3)
    assert (ended.output_file_id, ended.error_file_id) == (None, None)


async def test_a_cancel_writes_one_row_whatever_the_size(make: Factory) -> None:
    batch = await make.running(lines(600))
    before = await make.value("SELECT array_agg(xmin::text || ctid::text ORDER BY seq) FROM block")
    await cancelled(make, batch)
    assert await make.value("SELECT array_agg(xmin::text || ctid::text ORDER BY seq) FROM block") == before


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_cancel_and_a_start_at_the_same_moment_agree(make: Factory, cancel_first: bool) -> None:
    """Whoever comes second sees what the first one did: nothing starts after a cancel, and no cancel is lost."""
    batch = await make.batch(lines(1))
    assert await batches.claim_validating(make.store, make.life.no, None, may_read=True)

    async def start() -> bool:
        async with make.store.transaction() as session:
            return await batches.start_if_validated(session, batch.no, make.life.no, "m", 1)

    first = await make.store.connect("first")
    transaction = first.connection.transaction()
    await transaction.start()
    if cancel_first:
        assert await batches.cancel_if_unfinished(first, make.owner, batch.no)
        second: asyncio.Task[object] = asyncio.create_task(start())
    else:
        assert await batches.start_if_validated(first, batch.no, make.life.no, "m", 1)
        second = asyncio.create_task(cancelled(make, batch))
    await make.lock_wait()
    await transaction.commit()
    await first.connection.close()

    came = await second
    found = await make.look(batch)
    assert found.status is Status.CANCELLING
    assert (found.moments.in_progress_at is None) is cancel_first
    assert came is False if cancel_first else isinstance(came, BatchView)


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_cancel_and_the_end_at_the_same_moment_agree(make: Factory, cancel_first: bool) -> None:
    """A batch that is being sealed ends as it was; one that was cancelled first ends as cancelled."""
    batch = await make.running(lines(1))
    await make.answer_all(batch)
    first = await make.store.connect("first")
    transaction = first.connection.transaction()
    await transaction.start()
    if cancel_first:
        assert await batches.cancel_if_unfinished(first, make.owner, batch.no)
        # The sealer passes by a batch that somebody holds.
        assert await Seal(make.deps).round() is False
        await transaction.commit()
    else:
        await hold_fence(first, make.life.no)
        await first.connection.execute(
            "UPDATE batch SET status = 'finalizing', finalizing_at = now(), sealer = $2 WHERE no = $1",
            *(batch.no, make.life.no),
        )
        waiting = asyncio.create_task(cancelled(make, batch))
        await make.lock_wait()
        await transaction.commit()
        assert (await waiting).status is Status.FINALIZING
    await first.connection.close()

    ended = await make.sealed(batch)
    assert ended.status is (Status.CANCELLED if cancel_first else Status.COMPLETED)
    assert ended.counts.completed == 1
