"""A create stores the whole batch or nothing, once for each file, within the queue's capacity."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from overnight.batches import create as creating
from overnight.batches import find
from overnight.batches.cancel import cancel
from overnight.batches.pool import pool_status
from overnight.batches.request import NewBatch
from overnight.batches.shape import BatchView
from overnight.domain.errors import CapacityExceeded, DuplicateBatch, FileNotUsable
from overnight.domain.states import Status
from overnight.files.delete import delete
from overnight.files.shape import StoredFile
from overnight.store import batches
from overnight.store.pool import Session, Store
from overnight.upkeep.validate import Validate
from tests.batches.factory import CHAT, Factory, lines


async def create(make: Factory, file: StoredFile) -> BatchView:
    return await creating.create(make.store, make.limits, make.owner, NewBatch(file.public_id, CHAT))


async def test_a_new_batch_waits_to_be_checked(make: Factory) -> None:
    file = await make.file(lines(7))
    new = NewBatch(file.public_id, CHAT, "48h", {"k": "v"}, {"temperature": 0.5, "top_k": 3})

    batch = await creating.create(make.store, make.limits, make.owner, new)

    assert batch.status is Status.VALIDATING
    assert (batch.input_file_id, batch.endpoint, batch.completion_window) == (file.id, CHAT, "48h")
    assert (batch.metadata, batch.defaults) == ({"k": "v"}, {"temperature": 0.5, "top_k": 3})
    assert batch.counts.total == batch.counts.unanswered == 7
    assert batch.moments.expires_at is not None
    assert batch.moments.expires_at - batch.moments.created_at == timedelta(hours=48)
    assert batch == dataclasses.replace(await make.look(batch), progress=batch.progress)


async def test_without_a_window_it_is_the_deployments(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, window=timedelta(hours=5))
    batch = await create(make, await make.file(lines(1)))
    assert batch.completion_window == "5h"
    assert batch.moments.expires_at == batch.moments.created_at + timedelta(hours=5)


async def test_an_unknown_file_is_refused(make: Factory) -> None:
    for file_id in ("file-" + "0" * 32, "file-x", "", "batch_" + "0" * 32):
        with pytest.raises(FileNotUsable) as refused:
            await creating.create(make.store, make.limits, make.owner, NewBatch(file_id, CHAT))
        assert (refused.value.param, refused.value.code, refused.value.status) == (
            "input_file_id",
            "file_not_found",
            400,
        )


async def test_a_foreign_a_deleted_and_an_expired_file_read_like_an_unknown_one(make: Factory) -> None:
    foreign = await make.file(lines(1), owner=await make.stranger())
    deleted, expired = await make.file(lines(1)), await make.file(lines(1))
    await delete(make.store, make.owner, deleted.public_id)
    await make.run("UPDATE file SET expires_at = now() WHERE no = $1", expired.no)
    for file in (foreign, deleted, expired):
        with pytest.raises(FileNotUsable):
            await create(make, file)
    assert await make.value("SELECT count(*) FROM batch") == 0


async def test_an_output_is_no_input(make: Factory) -> None:
    done = await make.completed(lines(1))
    assert done.output_file_id is not None
    with pytest.raises(FileNotUsable) as refused:
        await creating.create(make.store, make.limits, make.owner, NewBatch(f"file-{done.output_file_id.hex}", CHAT))
    assert refused.value.param == "input_file_id"


async def test_a_file_has_one_unfinished_batch_at_a_time(make: Factory) -> None:
    file = await make.file(lines(2))
    first = await create(make, file)
    with pytest.raises(DuplicateBatch, match=first.public_id):
        await create(make, file)

    await cancel(make.store, make.owner, first.public_id)
    with pytest.raises(DuplicateBatch):
        await create(make, file)
    await make.sealed(first)
    assert (await create(make, file)).id != first.id


async def test_two_creates_for_one_file_at_once_make_one_batch(make: Factory) -> None:
    file = await make.file(lines(2))
    came = await asyncio.gather(*(create(make, file) for _ in range(4)), return_exceptions=True)
    made = [batch for batch in came if isinstance(batch, BatchView)]
    assert len(made) == 1
    assert sum(isinstance(e, DuplicateBatch) for e in came) == 3
    assert await make.value("SELECT count(*) FROM batch") == 1


async def test_a_create_waits_for_the_one_before_it_and_counts_it(make: Factory) -> None:
    """Both orders of an early create that is still open: it is counted if it commits, and not if it is undone."""
    make.limits = dataclasses.replace(make.limits, intake=10)
    for kept in (False, True):
        first, second = await make.file(lines(6)), await make.file(lines(6))
        early = await make.store.connect("early")
        transaction = early.connection.transaction()
        await transaction.start()
        await batches.serialise_creates(early)
        await early.connection.execute(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, status, completion_window, retention, total,"
            " input_file) VALUES (next_batch_no(now()), gen_random_uuid(), $1, 'chat', $2, 'file', 'validating', '1h',"
            " '1 day', 6, $3)",
            *(make.owner, CHAT, first.no),
        )
        late = asyncio.create_task(create(make, second))
        await make.lock_wait()
        await (transaction.commit() if kept else transaction.rollback())
        await early.connection.close()
        if kept:
            with pytest.raises(CapacityExceeded):
                await late
        else:
            await cancel(make.store, make.owner, (await late).public_id)


async def test_a_process_that_freezes_in_a_create_is_not_waited_for_long(make: Factory) -> None:
    asked = "SHOW idle_in_transaction_session_timeout"
    async with make.store.session() as session:
        async with session.connection.transaction():
            await batches.serialise_creates(session)
            inside = await session.connection.fetchval(asked)
        outside = await session.connection.fetchval(asked)
    assert (inside, outside) == ("5s", "1min")


async def test_the_queue_is_never_filled_beyond_its_capacity(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=50)
    files = [await make.file(lines(9)) for _ in range(8)]
    came = await asyncio.gather(*(create(make, file) for file in files), return_exceptions=True)
    assert sum(isinstance(batch, BatchView) for batch in came) == 5
    refused = [e for e in came if isinstance(e, CapacityExceeded)]
    assert len(refused) == 3
    assert {(e.status, e.code, e.retry_after) for e in refused} == {(429, "capacity_exceeded", 30)}
    assert await make.value("SELECT sum(total) FROM batch") == 45


async def test_creates_at_once_fill_exactly_what_the_pool_shows_to_be_free(make: Factory) -> None:
    """What runs is in no queue: 20 accepted of which 12 run leave room for 42 of 50."""
    make.limits = dataclasses.replace(make.limits, intake=50)
    await make.running(lines(20))
    # Its heartbeat stays fresh, however long the creates take.
    await make.run("UPDATE beat SET slots = 12, running = 12, at = now() + interval '1 hour'")
    before = await pool_status(make.store, make.limits)
    assert before["intake_pool_size"] == 8
    files = [await make.file(lines(6)) for _ in range(9)]
    came = await asyncio.gather(*(create(make, file) for file in files), return_exceptions=True)
    assert sum(isinstance(batch, BatchView) for batch in came) == 7
    assert sum(isinstance(e, CapacityExceeded) for e in came) == 2
    assert (await pool_status(make.store, make.limits))["intake_pool_size"] == 50


async def test_a_batch_that_was_taken_keeps_its_room_while_others_fill_the_queue(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=10)
    first = await create(make, await make.file(lines(6)))
    await create(make, await make.file(lines(4)))
    with pytest.raises(CapacityExceeded):
        await create(make, await make.file(lines(1)))
    make.limits = dataclasses.replace(make.limits, intake=1)
    while await Validate(make.deps).round():
        pass
    assert (await make.look(first)).status == Status.IN_PROGRESS


async def test_a_refused_create_leaves_nothing(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=10)
    await create(make, await make.file(lines(6)))
    file = await make.file(lines(5))
    with pytest.raises(CapacityExceeded):
        await create(make, file)
    assert await make.value("SELECT count(*) FROM batch") == 1
    assert await create(make, await make.file(lines(4)))


async def test_in_a_queue_that_is_almost_full_only_small_batches_get_in(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=200)
    await create(make, await make.file(lines(181)))
    with pytest.raises(CapacityExceeded):
        await create(make, await make.file(lines(3)))
    assert await create(make, await make.file(lines(2)))


async def test_answered_and_cancelled_requests_make_room(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=10)
    first = await make.running(lines(10))
    with pytest.raises(CapacityExceeded):
        await create(make, await make.file(lines(2)))
    blocks = await make.lease(first)
    await make.answer(first, blocks[0].lines[:2])
    assert await create(make, await make.file(lines(2)))
    await cancel(make.store, make.owner, first.public_id)
    assert await create(make, await make.file(lines(8)))


async def test_what_is_known_to_be_refused_takes_no_room(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=10)
    await create(make, await make.file(lines(10)))
    bad = await create(make, await make.file(lines(5) + b"nonsense\n"))
    too_large = await create(make, await make.file(lines(11)))
    assert (bad.counts.total, too_large.counts.total) == (0, 0)


async def test_a_batch_created_on_a_day_that_nobody_opened_has_its_tables(make: Factory) -> None:
    for table in ("block", "attempt", "segment", "answer", "call"):
        day = await make.value("SELECT days_since_1970(now())")
        await make.run(f"DROP TABLE {table}_{day}")
    assert (await make.completed(lines(2))).counts.completed == 2


async def test_results_are_kept_at_least_as_long_as_was_asked_for(make: Factory) -> None:
    short = await make.completed(lines(1), output_expires_after=3_600)
    long = await make.completed(lines(1), output_expires_after=20 * 86_400)
    assert await kept_for(make, short) == (timedelta(days=7), timedelta(hours=1))
    assert await kept_for(make, long) == (timedelta(days=20), timedelta(days=20))


async def kept_for(make: Factory, batch: BatchView) -> tuple[timedelta, timedelta]:
    """How long a completed batch and its output are kept."""
    ended, gone = batch.moments.completed_at, batch.moments.results_expires_at
    assert ended is not None
    assert gone is not None
    return gone - ended, await make.value("SELECT expires_at FROM file WHERE id = $1", batch.output_file_id) - ended


async def test_batches_are_numbered_in_the_order_of_their_creation(make: Factory) -> None:
    made = [await create(make, await make.file(lines(1))) for _ in range(3)]
    found, more = await find.page(make.store, make.owner, limit=10, after=None)
    assert [batch.id for batch in found] == [batch.id for batch in reversed(made)]
    assert not more


class Doubtful(Store):
    """Works like another store, but its first commit breaks: before it happened, or after and nobody hears of it."""

    def __init__(self, store: Store, *, happens: bool) -> None:
        super().__init__("")
        self._store = store
        self._happens = happens
        self._broken = False

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Any]:
        async with self._store._lent() as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        if self._broken:
            async with super().transaction() as session:
                yield session
            return
        self._broken = True
        with suppress(InterruptedError):
            async with super().transaction() as session:
                yield session
                if not self._happens:
                    raise InterruptedError
        raise ConnectionResetError


async def test_a_create_whose_commit_nobody_heard_the_end_of_is_answered_by_what_became_of_it(make: Factory) -> None:
    new = NewBatch((await make.file(lines(3))).public_id, CHAT)

    with pytest.raises(ConnectionResetError):
        await creating.create(Doubtful(make.store, happens=False), make.limits, make.owner, new)
    assert await make.value("SELECT count(*) FROM batch") == 0

    batch = await creating.create(Doubtful(make.store, happens=True), make.limits, make.owner, new)
    assert await make.value("SELECT id FROM batch") == batch.id
