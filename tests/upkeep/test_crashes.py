"""A call or a round that is cut off between any two statements, and made again, ends as one that was not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

import pytest

from overnight.batches import create as creating
from overnight.batches import find, idempotency
from overnight.batches.cancel import cancel
from overnight.batches.delete import delete
from overnight.batches.idempotency import Key, fingerprint
from overnight.batches.pause import pause, resume
from overnight.batches.request import read_create
from overnight.batches.retry import retry
from overnight.batches.shape import BatchView
from overnight.domain import ids
from overnight.domain.errors import BatchNotFound, FileNotFound
from overnight.domain.states import Status
from overnight.files import delete as file_deleting
from overnight.files.uploads import create as uploading
from overnight.store import deletion, files, uploads
from overnight.store import idempotency as keys
from overnight.store.pool import Store
from overnight.upkeep.days import DropDays
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.expire import Expire
from overnight.upkeep.purge import Purge
from tests.batches.factory import CHAT, Factory, line, lines
from tests.files.forms import send, upload_form
from tests.files.sent_in_parts import begin as begin_upload
from tests.upkeep.clones import clone
from tests.upkeep.fuse import Crash, Fuse, FusedStore
from tests.upkeep.orphans import OF_REQUESTS, no_orphans, over

T = TypeVar("T")


async def at_each_step(
    make: Factory,
    begin: Callable[[], Awaitable[T]],
    act: Callable[[Store, T], Awaitable[Any]],
    outcome: Callable[[T], Awaitable[Any]],
    done: type[Exception] = AssertionError,
) -> int:
    """Cut `act` off at every step, repeat it, and compare what comes of it with what comes of one that was whole.

    `done` is what a repeated call raises where the first one had done all. Returns how many steps there were.
    """
    subject = await begin()
    await act(make.store, subject)
    expected = await outcome(subject)
    for steps in count():
        subject = await begin()
        fuse = Fuse(steps)
        with suppress(Crash):
            await act(FusedStore(make.store, fuse), subject)
        await no_orphans(make, after=f"cut off at step {steps}")
        with suppress(done):
            await act(make.store, subject)
        assert await outcome(subject) == expected, f"cut off at step {steps}"
        await no_orphans(make, after=f"cut off at step {steps} and made again")
        if not fuse.blown:
            break
    await over(make)
    while await Purge(make.deps).round():
        pass
    await no_orphans(make, settled=True)
    return steps


async def half_done(make: Factory) -> BatchView:
    """A running batch of four requests with a response and an error."""
    batch = await make.running(lines(4))
    held = await make.lease(batch)
    await make.answer(batch, [2])
    await make.answer(batch, [0], kind=1)
    await make.let_go(held)
    return batch


async def with_all_kinds_of_rows(make: Factory) -> BatchView:
    """A batch that was cancelled half done and has ended."""
    batch = await half_done(make)
    await make.run("INSERT INTO attempt VALUES ($1, 1, 1, '{0}', '{0,2}')", batch.no)
    await make.run(
        "INSERT INTO call (batch, line, worker, try, took_ms, code, message) VALUES ($1, 0, 1, 1, 5, 'timeout', 'No.')",
        batch.no,
    )
    await cancel(make.store, make.owner, batch.public_id)
    return await make.sealed(batch)


async def test_cancel(make: Factory) -> None:
    original = await half_done(make)

    async def outcome(batch_id: str) -> Any:
        await make.sealed(original)
        batch = await find.get(make.store, make.owner, batch_id)
        return batch.status, batch.counts

    steps = await at_each_step(
        make, lambda: clone(make, original), lambda store, batch: cancel(store, make.owner, batch), outcome
    )
    assert steps > 5


@pytest.mark.parametrize("verb", [pause, resume])
async def test_pause_and_resume(make: Factory, verb: Callable[[Store, int, str], Awaitable[Any]]) -> None:
    original = await half_done(make)
    if verb is resume:
        await pause(make.store, make.owner, original.public_id)

    async def outcome(batch_id: str) -> Any:
        batch = await find.get(make.store, make.owner, batch_id)
        return batch.status, batch.paused, batch.counts

    steps = await at_each_step(
        make, lambda: clone(make, original), lambda store, batch: verb(store, make.owner, batch), outcome
    )
    assert steps > 5


async def test_expiry(make: Factory) -> None:
    original = await half_done(make)
    await make.run("UPDATE batch SET expires_at = now() - interval '1 second'")

    async def outcome(batch_id: str) -> Any:
        await make.sealed(original)
        batch = await find.get(make.store, make.owner, batch_id)
        return batch.status, batch.counts

    async def expire(store: Store, _: str) -> None:
        await Expire(Upkeep(store, make.life, make.limits)).round()

    assert await at_each_step(make, lambda: clone(make, original), expire, outcome) >= 2


async def test_deletion_of_a_batch(make: Factory) -> None:
    original = await with_all_kinds_of_rows(make)

    async def outcome(batch_id: str) -> Any:
        with pytest.raises(BatchNotFound):
            await find.get(make.store, make.owner, batch_id)
        return await deleted(make)

    async def begin() -> str:
        await make.run("DELETE FROM file WHERE state = 'deleted'")
        return await clone(make, original)

    steps = await at_each_step(
        make, begin, lambda store, batch: delete(store, make.owner, batch), outcome, done=BatchNotFound
    )
    assert steps > 4
    assert await make.value("SELECT count(DISTINCT batch) FROM answer") == 1


async def deleted(make: Factory) -> Any:
    """How many files are deleted, and how many batches are gone for good that are not named as deleted."""
    return (
        await make.value("SELECT count(*) FROM file WHERE state = 'deleted'"),
        await make.value("SELECT count(*) FROM answer a WHERE NOT EXISTS (SELECT FROM batch b WHERE b.no = a.batch)"
                         " AND NOT EXISTS (SELECT FROM deleted_batch d WHERE d.no = a.batch)"),
    )  # fmt: skip


async def test_deletion_of_a_file(make: Factory) -> None:
    async def begin() -> str:
        return (await make.file(lines(2))).public_id

    async def outcome(file_id: str) -> Any:
        return await make.value("SELECT count(*) FROM file WHERE state = 'ready'")

    steps = await at_each_step(
        make, begin, lambda store, file: file_deleting.delete(store, make.owner, file), outcome, done=FileNotFound
    )
    assert steps >= 2
    assert await make.value("SELECT count(*) FROM file_chunk") == 0


async def from_a_file(make: Factory) -> BatchView:
    return await with_all_kinds_of_rows(make)


async def from_requests(make: Factory) -> BatchView:
    body = json.dumps({"requests": [json.loads(line(f"r{i}")) for i in range(4)]}).encode()
    batch = await creating.create(make.store, make.limits, make.owner, read_create(body))
    await cancel(make.store, make.owner, batch.public_id)
    return await make.sealed(batch)


async def from_a_file_that_was_refused(make: Factory) -> BatchView:
    return await make.running(line("a", model="nobody serves this"))


@pytest.mark.parametrize("made", [from_a_file, from_requests, from_a_file_that_was_refused])
async def test_retry(make: Factory, made: Callable[[Factory], Awaitable[BatchView]]) -> None:
    original = await made(make)

    async def outcome(batch_id: str) -> Any:
        """Retries of the batch, their requests, and input files that no retry uses."""
        rows = "FROM batch WHERE retry_of = $1"
        batch = ids.read(ids.BATCH, batch_id)
        inputs = await make.value("SELECT count(*) FROM file WHERE state = 'ready' AND purpose = 'batch'")
        used = await make.value("SELECT count(DISTINCT input_file) FROM batch WHERE retry_of IS NOT NULL")
        found = await make.value(f"SELECT count(*) {rows}", batch), await make.value(f"SELECT max(total) {rows}", batch)
        if made is from_a_file_that_was_refused:
            # All use its one file, one after the other.
            await make.run("DELETE FROM batch WHERE retry_of IS NOT NULL")
        return *found, inputs - used

    async def again(store: Store, batch_id: str) -> None:
        await retry(store, make.limits, make.owner, batch_id)

    assert await at_each_step(make, lambda: clone(make, original), again, outcome) > 12


@pytest.mark.parametrize("source", ["file", "requests"])
async def test_create_under_a_key(make: Factory, source: str) -> None:
    async def begin() -> bytes:
        if source == "file":
            file = await make.file(lines(2))
            return json.dumps({"input_file_id": file.public_id, "endpoint": CHAT}).encode()
        return json.dumps({"requests": [json.loads(line(f"r{i}")) for i in range(2)]}).encode()

    numbers = count()
    names: dict[bytes, str] = {}

    async def begin_new() -> bytes:
        body = await begin()
        names[body] = f"key-{next(numbers)}"
        return body

    async def create(store: Store, body: bytes) -> BatchView:
        key = Key(names[body], await fingerprint(body), len(body))
        made = await idempotency.replay(store, make.owner, key)
        return made or await creating.create(store, make.limits, make.owner, read_create(body), key)

    async def outcome(body: bytes) -> Any:
        used = await make.value("SELECT count(*) FROM idempotency WHERE key = $1", names[body])
        return used, await make.value("SELECT count(*) FROM batch") - await make.value(
            "SELECT count(*) FROM idempotency"
        )

    assert await at_each_step(make, begin_new, create, outcome) > 12


async def test_upload(make: Factory) -> None:
    """It has no name by which it could be made again: one that was cut off leaves a whole file, or nothing."""
    text = lines(3)
    for steps in count():
        fuse = Fuse(steps)
        with suppress(Crash):
            await send(FusedStore(make.store, fuse), upload_form(text))
        await no_orphans(make, after=f"cut off at step {steps}")
        if not fuse.blown:
            break
    assert steps > 5
    await over(make)
    while await Purge(make.deps).round():
        pass
    await no_orphans(make, settled=True)
    whole = "SELECT count(*) FROM file WHERE state = 'ready' AND lines = 3 AND bytes = $1"
    assert await make.value(whole, len(text)) == await make.value("SELECT count(*) FROM file") == 2


@pytest.mark.parametrize("ends", ["cancelled", "expired"])
async def test_end_of_an_upload(make: Factory, ends: str) -> None:
    async def begin() -> str:
        upload = await begin_upload(make.store, len(lines(1)))
        await upload.add(lines(1))
        if ends == "expired":
            await make.run("UPDATE upload SET until = now() - interval '1 second' WHERE state = 'pending'")
        return upload.upload.public_id

    async def act(store: Store, upload_id: str) -> None:
        if ends == "expired":
            await uploads.purge_round(store)
        else:
            await uploading.cancel(store, make.owner, upload_id)

    async def outcome(upload_id: str) -> Any:
        return (
            await make.value("SELECT array_agg(DISTINCT state) FROM upload"),
            await make.value("SELECT array_agg(DISTINCT state) FROM file"),
        )

    assert await at_each_step(make, begin, act, outcome) > 4
    assert await make.value("SELECT count(*) FROM file_chunk") == 0


async def test_retention_of_batches(make: Factory) -> None:
    original = await with_all_kinds_of_rows(make)

    async def begin() -> str:
        await make.run("DELETE FROM file WHERE state = 'deleted'")
        copy = await clone(make, original)
        await make.run("UPDATE batch SET ended_at = ended_at - interval '30 days' WHERE no <> $1", original.no)
        return copy

    async def outcome(batch_id: str) -> Any:
        with pytest.raises(BatchNotFound):
            await find.get(make.store, make.owner, batch_id)
        return await deleted(make)

    assert await at_each_step(make, begin, lambda store, _: deletion.delete_after_retention(store), outcome) >= 2
    assert await make.value("SELECT array_agg(no) FROM batch") == [original.no]
    assert (await make.look(original)).status is Status.CANCELLED


async def test_removal_of_files(make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNKS_PURGED_AT_ONCE", 1)
    kept = await make.file(lines(1))

    async def begin() -> None:
        await make.run(
            "WITH made AS (INSERT INTO file"
            " (id, owner, purpose, filename, state, bytes, sha256, touched_at, expires_at)"
            " SELECT gen_random_uuid(), $1, 'batch', '', state, 1, '', '-infinity', '-infinity'"
            " FROM unnest('{ready,deleted,arriving}'::text[]) AS state RETURNING no)"
            " INSERT INTO file_chunk SELECT no, starts, 1, '' FROM made, generate_series(0, 0) AS starts",
            make.owner,
        )

    async def act(store: Store, _: None) -> None:
        while await files.purge_round(store):
            pass

    async def outcome(_: None) -> Any:
        await over(make)
        while await files.purge_round(make.store):
            pass
        return await make.value("SELECT array_agg(no) FROM file"), await make.value("SELECT count(*) FROM file_chunk")

    assert await at_each_step(make, begin, act, outcome) > 20
    assert await make.value("SELECT array_agg(no) FROM file") == [kept.no]


async def test_forgetting_of_keys(make: Factory) -> None:
    batch = await make.completed(lines(1))

    async def begin() -> None:
        await make.run(
            "INSERT INTO idempotency (owner, key, request, bytes, batch, gone_at)"
            " SELECT $1, name, '', 1, CASE name WHEN 'ended' THEN $2::bigint END,"
            " CASE name WHEN 'gone' THEN now() - interval '2 days' END"
            " FROM unnest('{ended,gone,deleted}'::text[]) AS name ON CONFLICT DO NOTHING",
            *(make.owner, batch.no),
        )
        await make.run("UPDATE batch SET ended_at = now() - interval '2 days'")

    async def outcome(_: None) -> Any:
        return await make.value("SELECT array_agg(key || (gone_at IS NULL)::text) FROM idempotency")

    assert await at_each_step(make, begin, lambda store, _: keys.purge_round(store), outcome) >= 6


async def test_dropping_of_days(make: Factory) -> None:
    """Each table of a day goes in a transaction of its own, in the same way: the first three are cut off."""
    today = await make.value("SELECT days_since_1970(now())")
    partitions = "SELECT count(*) FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relkind = 'r'"
    before = await make.value(partitions)
    left = []
    for steps in range(20):
        await make.run("SELECT open_day($1)", today - 30)
        with pytest.raises(Crash):
            await DropDays(Upkeep(FusedStore(make.store, Fuse(steps)), make.life, make.limits)).round()
        left.append(await make.value(partitions) - before)
        while await DropDays(make.deps).round():
            pass
        assert await make.value(partitions) == before, f"cut off at step {steps}"
    assert (left[0], left[-1]) == (len(OF_REQUESTS), len(OF_REQUESTS) - 3)
    await no_orphans(make)
