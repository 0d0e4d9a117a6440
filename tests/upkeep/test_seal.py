"""Sealing fixes the end of a batch and its files, once, with an answer for every request."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from overnight.batches import create as creating
from overnight.batches import results
from overnight.batches.cancel import cancel
from overnight.batches.request import NewBatch
from overnight.domain.errors import FileNotFound
from overnight.domain.states import Status
from overnight.files import find as find_file
from overnight.files.delete import delete as delete_file
from overnight.store import answers, batches, blocks
from overnight.store.answers import ERROR, OUTPUT, Fenced
from overnight.store.pool import Store
from overnight.upkeep import seal
from overnight.upkeep.expire import Expire
from overnight.upkeep.purge import Purge
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate
from tests.batches.factory import Factory, line, lines


async def test_the_files_are_the_streams(make: Factory) -> None:
    batch = await make.running(lines(40))
    held = await make.lease(batch)
    for i in range(0, 30, 7):
        await make.answer(batch, range(i, min(i + 7, 30)))
    await make.answer(batch, range(30, 40), kind=ERROR)
    await make.let_go(held, done=True)

    ended = await make.sealed(batch)

    assert ended.status is Status.COMPLETED
    assert (ended.counts.completed, ended.counts.failed) == (30, 10)
    for file_id, kind, count in ((ended.output_file_id, OUTPUT, 30), (ended.error_file_id, ERROR, 10)):
        assert file_id is not None
        file = await find_file.get(make.store, make.owner, f"file-{file_id.hex}")
        text = await make.stream(ended, kind)
        assert (file.purpose, file.lines, file.bytes) == ("batch_output", count, len(text))
        assert file.sha256 == hashlib.sha256(text).digest()
        assert file.expires_at == ended.moments.results_expires_at


async def test_a_deleted_output_is_not_written_again(make: Factory) -> None:
    batch = await make.completed(lines(2))
    assert batch.output_file_id is not None
    name = f"file-{batch.output_file_id.hex}"
    await delete_file(make.store, make.owner, name)
    await make.run("UPDATE file SET touched_at = '-infinity' WHERE state = 'deleted'")
    for rounds in (Seal, Validate, Expire, Purge):
        while await rounds(make.deps).round():
            pass
    assert await make.look(batch) == batch
    assert await make.value("SELECT count(*) FROM file WHERE purpose = 'batch_output'") == 0
    with pytest.raises(FileNotFound):
        await find_file.get(make.store, make.owner, name)
    page = await results.page(make.store, make.owner, batch.public_id, limit=10, after=None)
    assert len(page.data) == 2


async def test_a_kind_without_a_line_has_no_file(make: Factory) -> None:
    good = await make.completed(lines(2))
    assert good.output_file_id is not None
    assert good.error_file_id is None

    batch = await make.running(lines(2))
    held = await make.lease(batch)
    await make.answer(batch, held[0].lines, kind=ERROR)
    await make.let_go(held, done=True)
    bad = await make.sealed(batch)
    assert bad.status is Status.COMPLETED
    assert bad.output_file_id is None
    assert bad.error_file_id is not None


async def test_a_batch_without_an_answer_says_why_as_a_whole(make: Factory) -> None:
    refused, mixed = await make.running(lines(3)), await make.running(lines(3))
    for batch, kinds in ((refused, (ERROR, ERROR, ERROR)), (mixed, (OUTPUT, ERROR, ERROR))):
        blocks = await make.lease(batch)
        for number, kind in enumerate(kinds):
            await make.answer(batch, [number], kind=kind)
        await make.let_go(blocks, done=True)

    refused, mixed = await make.sealed(refused), await make.sealed(mixed)

    assert (refused.status, refused.output_file_id) == (Status.COMPLETED, None)
    assert refused.error is not None
    assert refused.error[0] == "invalid_request"
    assert "None of the 3 requests" in refused.error[1]
    assert refused.error_file_id is not None
    assert mixed.error is None


async def test_a_batch_that_expired_says_what_it_left_unanswered_and_a_cancelled_one_needs_no_reason(
    make: Factory,
) -> None:
    late, stopped, half = [await make.running(lines(2)) for _ in range(3)]
    blocks = await make.lease(half)
    await make.answer(half, [0])
    for batch in (late, half):
        await make.close_window(batch)
    await Expire(make.deps).round()
    await make.let_go(blocks, done=False)
    await cancel(make.store, make.owner, stopped.public_id)

    late, stopped, half = [await make.sealed(batch) for batch in (late, stopped, half)]

    assert late.error is not None
    assert (late.status, late.error[0]) == (Status.EXPIRED, "batch_expired")
    assert "2 of its 2 requests" in late.error[1]
    assert half.error is not None
    assert (half.status, half.error[0]) == (Status.EXPIRED, "batch_expired")
    assert half.output_file_id is not None
    assert "1 of its 2 requests had a response: `batch_expired` (1)" in half.error[1]
    assert (stopped.status, stopped.error) == (Status.CANCELLED, None)


async def test_a_batch_with_a_request_left_is_not_over(make: Factory) -> None:
    batch = await make.running(lines(2))
    held = await make.lease(batch)
    await make.answer(batch, [0])
    assert (await make.sealed(batch)).status is Status.IN_PROGRESS
    await make.let_go(held)
    assert (await make.sealed(batch)).status is Status.IN_PROGRESS


async def test_all_answers_are_enough_even_if_a_block_was_not_let_go_yet(make: Factory) -> None:
    batch = await make.running(lines(2))
    held = await make.lease(batch)
    await make.answer(batch, held[0].lines)
    assert (await make.sealed(batch)).status is Status.COMPLETED
    await make.let_go(held, done=True)


async def test_a_batch_that_failed_fails_what_never_ran(make: Factory) -> None:
    batch = await make.running(lines(3))
    held = await make.lease(batch)
    await make.answer(batch, [1])
    await make.let_go(held)
    await make.run("UPDATE batch SET ends_as = 'failed', error_code = 'owner_unauthorized', error_message = 'Gone.'")
    ended = await make.sealed(batch)
    assert (ended.status, ended.counts.completed, ended.counts.failed) == (Status.FAILED, 1, 2)
    _, errors = await make.results(ended)
    assert {row["error"]["code"] for row in errors.values()} == {"batch_failed"}


async def test_a_lease_that_comes_through_at_the_last_moment_is_waited_for(make: Factory) -> None:
    """A worker saw the batch alive, and its lease commits after the batch went to its end: answers may still come."""
    batch = await make.running(lines(600))
    other = await make.worker()
    late = await make.store.connect("late")
    transaction = late.connection.transaction()
    await transaction.start()
    await late.connection.execute(
        "UPDATE block SET state = 'leased', worker = $1, leases = leases + 1 WHERE batch = $2 AND seq = 1",
        *(other.no, batch.no),
    )
    await cancel(make.store, make.owner, batch.public_id)
    sealing = asyncio.create_task(Seal(make.deps).round())
    await make.lock_wait()
    await transaction.commit()
    await late.connection.close()
    await sealing

    assert (await make.sealed(batch)).status is Status.FINALIZING
    numbers = await make.value("SELECT lines FROM block WHERE batch = $1 AND seq = 1", batch.no)
    await make.answer(batch, numbers[:10], life=other)
    assert (await make.sealed(batch)).status is Status.FINALIZING
    await make.run("UPDATE block SET state = 'ready', worker = NULL WHERE state = 'leased'")

    ended = await make.sealed(batch)
    assert (ended.status, ended.counts.completed, ended.counts.cancelled) == (Status.CANCELLED, 10, 590)
    output, errors = await make.results(ended)
    assert output.keys() | errors.keys() == {f"r{i}" for i in range(600)}


async def test_a_block_that_is_being_sealed_can_not_be_leased(make: Factory) -> None:
    batch = await make.running(lines(30))
    async with make.store.transaction() as session:
        await blocks.close_some(session, batch.no)
        assert await make.lease(batch) == []
    assert await make.lease(batch) == []


async def test_one_of_two_sealers_at_once_seals(make: Factory) -> None:
    done = [await make.running(lines(3)) for _ in range(4)]
    for batch in done:
        await make.answer_all(batch)
    stopped = [await make.running(lines(300)) for _ in range(3)]
    for batch in stopped:
        await cancel(make.store, make.owner, batch.public_id)
    deps = [make.deps, *[dataclasses.replace(make.deps, life=await make.worker()) for _ in range(2)]]

    async def work(sealer: Seal) -> int:
        count = 0
        while await sealer.round():
            count += 1
        return count

    assert sum(await asyncio.gather(*(work(Seal(each)) for each in deps))) == 7
    for batch in done + stopped:
        ended = await make.look(batch)
        assert ended.status is (Status.COMPLETED if batch in done else Status.CANCELLED)
        assert ended.counts.unanswered == 0
    assert await make.value("SELECT count(*) FROM file WHERE purpose = 'batch_output'") == 7


@pytest.mark.parametrize("answered", [True, False])
async def test_a_sealer_declared_dead_can_end_nothing(make: Factory, answered: bool) -> None:
    batch = await make.running(lines(300))
    if answered:
        await make.answer_all(batch)
    await cancel(make.store, make.owner, batch.public_id)
    before = await make.value("SELECT count(*) FROM answer")
    dead = await make.worker()
    row = await batches.claim_over(make.store, dead.no, None)
    assert row is not None
    await make.run("UPDATE worker SET dead_at = now() WHERE no = $1", dead.no)
    with pytest.raises(Fenced):
        await seal._Sealing(make.store, dead.no, row).run()
    assert await make.value("SELECT count(*) FROM answer") == before

    assert (await make.sealed(batch)).status is Status.FINALIZING
    await make.run("UPDATE batch SET sealer = NULL")
    assert (await make.sealed(batch)).status is Status.CANCELLED


async def test_results_that_come_in_while_the_streams_are_hashed_are_in_the_hash(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await make.running(lines(3))
    held = await make.lease(batch)
    await make.answer(batch, [0, 1, 2])
    await make.run("UPDATE batch SET completed = 3, total = 4")

    async def stream(store: Store, no: int, kind: int, start: int, stop: int) -> AsyncIterator[bytes]:
        async for piece in original(store, no, kind, start, stop):
            yield piece
        if await make.value("SELECT total FROM batch") == 4:
            await make.run("UPDATE batch SET total = 5")
            await make.answer(batch, [4])

    original = answers.stream
    await make.answer(batch, [3])
    monkeypatch.setattr(answers, "stream", stream)
    ended = await make.sealed(batch)
    await make.let_go(held, done=True)
    assert (ended.status, ended.counts.completed) == (Status.COMPLETED, 5)
    digest = await make.value("SELECT sha256 FROM file WHERE id = $1", ended.output_file_id)
    assert digest == hashlib.sha256(await make.stream(ended, OUTPUT)).digest()


async def test_a_stream_that_lost_bytes_seals_nothing(make: Factory) -> None:
    batch = await make.running(lines(3))
    await make.answer_all(batch, at_once=1)
    await make.run("DELETE FROM segment WHERE starts = (SELECT max(starts) FROM segment)")
    good = await make.running(lines(2))
    await make.answer_all(good)
    sealer = Seal(make.deps)
    with pytest.raises(ValueError, match="bytes"):
        await sealer.round()
    assert (await make.look(batch)).status is Status.FINALIZING
    # Others are not held up by it, whatever their place in the queue.
    assert await sealer.round() is True
    assert (await make.look(good)).status is Status.COMPLETED
    assert await sealer.round() is False


async def test_long_results_are_hashed_whole(make: Factory) -> None:
    batch = await make.running(lines(2))
    held = await make.lease(batch)
    await make.answer(batch, [0, 1], size=seal.LONG_PIECE * 2)
    await make.let_go(held, done=True)
    ended = await make.sealed(batch)
    digest = await make.value("SELECT sha256 FROM file WHERE id = $1", ended.output_file_id)
    assert digest == hashlib.sha256(await make.stream(ended, OUTPUT)).digest()


async def test_only_the_one_batch_is_sealed_where_one_is_named(make: Factory) -> None:
    first, second = await make.running(lines(1)), await make.running(lines(1))
    for batch in (first, second):
        await make.answer_all(batch)
    deps = dataclasses.replace(make.deps, only=lambda: [second.no])
    assert await Seal(deps).round() is True
    assert await Seal(deps).round() is False
    assert (await make.look(first)).status is Status.IN_PROGRESS


@pytest.mark.parametrize("source", ["file", "requests"])
async def test_a_batch_shows_that_it_is_finalizing_while_its_results_are_fixed(
    make: Factory, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    if source == "file":
        batch = await make.running(lines(2))
    else:
        new = NewBatch(None, None, requests=[msgspec.Raw(line(f"r{i}")) for i in range(2)])
        batch = await creating.create(make.store, make.limits, make.owner, new)
        await Validate(make.deps).round()
    await make.answer_all(batch)
    seen = []

    async def end(*given: Any) -> bool:
        seen.append(await make.look(batch))
        return await really(*given)

    really = batches.end_if_sealed
    monkeypatch.setattr(batches, "end_if_sealed", end)
    ended = await make.sealed(batch)
    [finalizing] = seen
    assert (finalizing.status, finalizing.moments.completed_at) == (Status.FINALIZING, None)
    assert (finalizing.output_file_id, finalizing.error_file_id) == (None, None)
    assert finalizing.moments.finalizing_at == ended.moments.finalizing_at is not None
    assert ended.status is Status.COMPLETED
