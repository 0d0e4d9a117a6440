"""A deleted batch is gone for its owner at once, with its results, and whatever comes late is dropped."""

from __future__ import annotations

import asyncio

import pytest

from overnight.batches import find, results
from overnight.batches.delete import delete
from overnight.domain.errors import BatchNotFound, BatchRunning, FileNotFound
from overnight.domain.states import Status
from overnight.files import find as find_file
from overnight.store import answers
from overnight.upkeep.rescue import Rescue
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate
from tests.batches.factory import Factory, an_answer, lines

TABLES = ("block", "roll", "attempt", "segment", "answer", "call")


async def test_a_finished_batch_goes_with_its_files_and_its_input_stays(make: Factory) -> None:
    batch = await make.completed(lines(3))
    assert batch.output_file_id is not None
    assert batch.input_file_id is not None

    await delete(make.store, make.owner, batch.public_id)

    with pytest.raises(BatchNotFound):
        await find.get(make.store, make.owner, batch.public_id)
    with pytest.raises(BatchNotFound):
        await results.page(make.store, make.owner, batch.public_id, limit=1, after=None)
    with pytest.raises(BatchNotFound):
        await delete(make.store, make.owner, batch.public_id)
    with pytest.raises(FileNotFound):
        await find_file.get(make.store, make.owner, f"file-{batch.output_file_id.hex}")
    assert (await find_file.get(make.store, make.owner, f"file-{batch.input_file_id.hex}")).lines == 3
    assert (await find.page(make.store, make.owner, limit=10, after=None)) == ([], False)


async def test_a_batch_is_not_deleted_while_a_living_worker_holds_requests_of_it(make: Factory) -> None:
    batch = await make.running(lines(2))
    other = await make.worker()
    await make.lease(batch, other)
    with pytest.raises(BatchRunning):
        await delete(make.store, make.owner, batch.public_id)
    assert (await make.look(batch)).status is Status.IN_PROGRESS

    await make.run("UPDATE worker SET dead_at = now() WHERE no = $1", other.no)
    await delete(make.store, make.owner, batch.public_id)
    await Rescue(make.deps).round()
    with pytest.raises(BatchNotFound):
        await make.look(batch)


async def test_a_lease_that_is_left_of_a_batch_that_has_ended_does_not_keep_it(make: Factory) -> None:
    batch = await make.running(lines(1))
    held = await make.lease(batch)
    await make.answer(batch, [0])
    assert (await make.sealed(batch)).status is Status.COMPLETED
    await delete(make.store, make.owner, batch.public_id)
    await make.let_go(held, done=True)
    assert await make.value("SELECT count(*) FROM batch") == 0


async def test_an_answer_that_comes_after_the_deletion_is_dropped_without_an_error(make: Factory) -> None:
    batch, kept = await make.running(lines(2)), await make.running(lines(2))
    blocks = await make.lease(batch)
    await make.let_go(blocks)
    await delete(make.store, make.owner, batch.public_id)
    async with make.store.session() as session:
        flush = [(batch.no, [an_answer(batch.id, 0)]), (kept.no, [an_answer(kept.id, 1)])]
        assert await answers.record(session, make.life.no, flush) == 1
    assert await make.value("SELECT count(*) FROM answer WHERE batch = $1", batch.no) == 0
    assert (await make.look(kept)).counts.completed == 1


async def test_a_deletion_waits_for_answers_that_are_being_stored(make: Factory) -> None:
    batch = await make.running(lines(2))
    async with make.open_transaction() as session:
        await answers.record(session, make.life.no, [(batch.no, [an_answer(batch.id, 0)])])
        deleting = asyncio.create_task(delete(make.store, make.owner, batch.public_id))
        await make.lock_wait()
        assert not deleting.done()
    await deleting
    with pytest.raises(BatchNotFound):
        await make.look(batch)


async def test_a_batch_that_is_checked_or_over_can_be_deleted_and_is_not_brought_back(make: Factory) -> None:
    checked = await make.batch(lines(2))
    await delete(make.store, make.owner, checked.public_id)
    assert await Validate(make.deps).round() is False
    over = await make.running(lines(1))
    await make.answer_all(over)
    await delete(make.store, make.owner, over.public_id)
    assert await Seal(make.deps).round() is False
    assert await make.value("SELECT count(*) FROM batch") == 0
    assert await make.value("SELECT count(*) FROM file WHERE purpose = 'batch_output'") == 0


async def test_a_list_goes_on_behind_a_batch_that_was_deleted_meanwhile(make: Factory) -> None:
    older, newer = await make.completed(lines(1)), await make.completed(lines(1))
    await delete(make.store, make.owner, newer.public_id)
    found, _ = await find.page(make.store, make.owner, limit=10, after=newer.public_id)
    assert [view.id for view in found] == [older.id]


async def test_a_deletion_writes_a_few_rows_whatever_the_size(make: Factory) -> None:
    batch = await make.completed(lines(600))
    counts = {table: await make.value(f"SELECT count(*) FROM {table}") for table in TABLES}
    assert counts["answer"] == 600
    await delete(make.store, make.owner, batch.public_id)
    assert {table: await make.value(f"SELECT count(*) FROM {table}") for table in TABLES} == counts


async def test_the_batches_of_others_cannot_be_deleted(make: Factory) -> None:
    batch = await make.completed(lines(1))
    stranger = await make.stranger()
    for name in (batch.public_id, "batch_1", "batch_" + "0" * 32):
        with pytest.raises(BatchNotFound):
            await delete(make.store, stranger, name)
    assert await make.look(batch) == batch
