"""What a batch has left without a response can be fetched as an input file, and run again in a batch of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from overnight.batches import create as creating
from overnight.batches import unfinished
from overnight.batches.cancel import cancel
from overnight.batches.request import NewBatch
from overnight.batches.retry import retry
from overnight.batches.shape import BatchView
from overnight.domain.errors import (
    BatchNotFound,
    CapacityExceeded,
    FileNotFound,
    FileNotUsable,
    Interrupted,
    InvalidParameter,
)
from overnight.domain.limits import Limits
from overnight.domain.states import Status
from overnight.files.delete import delete as delete_file
from overnight.store import blocks
from overnight.store.answers import ERROR
from overnight.upkeep.validate import Validate
from tests.batches.factory import Factory, line, lines
from tests.batches.test_results import shuffled, through


async def left(make: Factory, batch: BatchView) -> bytes:
    found = await unfinished.of(make.store, make.owner, batch.public_id)
    return b"".join([piece async for piece in found.read()])


async def half_done(make: Factory, text: bytes) -> BatchView:
    """A cancelled batch: every third request has a response, every third an error, the others never ran."""
    batch = await make.running(text)
    held = await make.lease(batch)
    numbers = sorted(number for block in held for number in block.lines)
    await make.answer(batch, numbers[::3])
    await make.answer(batch, numbers[1::3], kind=ERROR)
    await make.let_go(held)
    await cancel(make.store, make.owner, batch.public_id)
    return await make.sealed(batch)


@pytest.mark.parametrize("held_bytes", [1, 5_000, unfinished.HELD_BYTES])
async def test_unfinished_requests_come_as_they_were_sent_in_the_order_of_submission(
    make: Factory, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    monkeypatch.setattr(unfinished, "HELD_BYTES", held_bytes)
    monkeypatch.setattr(blocks, "SEARCHED_AT_ONCE", 2)
    count = 40 if held_bytes == 1 else 700
    sent = shuffled(count)
    batch = await half_done(make, sent)
    expected = [one for i, one in enumerate(sent.splitlines(keepends=True)) if i % 3]
    assert await left(make, batch) == b"".join(expected)


async def test_unfinished_requests_are_lines_for_every_client_that_splits_them(make: Factory) -> None:
    """Some split at every line end that Unicode has; JSON allows three of those inside strings, as they are."""
    names = ["a\u2028b", "a\u2029b", "a\u0085b", "plain"]
    sent = [json.dumps(json.loads(line(name)), ensure_ascii=False).replace(", ", ",\r ") + "\n" for name in names]
    batch = await make.running("".join(sent).encode())
    found = (await left(make, batch)).decode()
    assert len(found.splitlines()) == len(names)
    assert [json.loads(one) for one in found.splitlines()] == [json.loads(one) for one in sent]
    assert found.splitlines()[3] == sent[3].replace("\r", " ").rstrip("\n")


async def test_a_running_batch_tells_what_has_no_response_yet(make: Factory) -> None:
    sent = lines(5)
    batch = await make.running(sent)
    assert await left(make, batch) == sent
    await make.answer(batch, [0, 1, 2, 4])
    assert await left(make, batch) == sent.splitlines(keepends=True)[3]
    await make.answer(batch, [3])
    assert await left(make, batch) == b""


async def test_a_batch_that_never_started_has_its_input_left(make: Factory) -> None:
    sent = line("a", model="nobody serves this") + b"\n\n" + line("b")
    refused = await make.running(sent)
    assert refused.status is Status.FAILED
    assert await left(make, refused) == sent
    assert refused.input_file_id is not None
    await delete_file(make.store, make.owner, f"file-{refused.input_file_id.hex}")
    with pytest.raises(FileNotFound):
        await left(make, refused)
    with pytest.raises(FileNotUsable):
        await retry(make.store, make.limits, make.owner, refused.public_id)


async def test_a_retry_runs_what_is_left_and_keeps_what_the_first_was_given(make: Factory) -> None:
    batch = await make.running(
        lines(6),
        completion_window="48h",
        metadata={"name": "x"},
        defaults={"temperature": 0.5},
        output_expires_after=7_200,
    )
    held = await make.lease(batch)
    await make.answer(batch, [0, 2, 4])
    await make.answer(batch, [1, 3, 5], kind=ERROR)
    await make.let_go(held, done=True)
    batch = await make.sealed(batch)
    assert batch.input_file_id is not None
    await delete_file(make.store, make.owner, f"file-{batch.input_file_id.hex}")

    again = await retry(make.store, make.limits, make.owner, batch.public_id)

    assert again.status is Status.VALIDATING
    assert again.id != batch.id
    assert again.retry_of == batch.id
    assert (again.endpoint, again.completion_window) == (batch.endpoint, "48h")
    assert (again.metadata, again.defaults) == ({"name": "x"}, {"temperature": 0.5})
    assert again.moments.expires_at is not None
    assert batch.moments.expires_at is not None
    assert again.moments.expires_at > batch.moments.expires_at
    assert await make.value("SELECT output_expires_after FROM batch WHERE no = $1", again.no) == 7_200
    while await Validate(make.deps).round():
        pass
    blocks_of = await make.lease(again)
    assert sorted(request for block in blocks_of for request in block.requests) == [line(f"r{i}") for i in (1, 3, 5)]
    assert await make.look(batch) == batch


async def test_a_batch_with_nothing_left_or_not_at_its_end_cannot_be_retried(make: Factory) -> None:
    done, running = await make.completed(lines(2)), await make.running(lines(2))
    for batch in (done, running):
        with pytest.raises(InvalidParameter):
            await retry(make.store, make.limits, make.owner, batch.public_id)
    stranger = await make.stranger()
    for name in (done.public_id, "batch_1"):
        with pytest.raises(BatchNotFound):
            await retry(make.store, make.limits, stranger, name)
    assert await make.value("SELECT count(*) FROM batch") == 2


async def test_a_refused_retry_leaves_nothing(make: Factory) -> None:
    batch = await half_done(make, lines(9))
    await make.running(lines(3))
    with pytest.raises(CapacityExceeded):
        await retry(make.store, Limits(intake=8), make.owner, batch.public_id)
    assert await make.value("SELECT count(*) FROM batch") == 2
    assert await make.value("SELECT count(*) FROM file WHERE state = 'ready' AND purpose = 'batch'") == 2


async def test_a_retry_that_is_asked_for_again_is_the_one_under_way(make: Factory) -> None:
    batch = await half_done(make, lines(3))
    first = await retry(make.store, make.limits, make.owner, batch.public_id)
    running = await make.running(lines(1))
    again = await retry(make.store, make.limits, make.owner, batch.public_id)
    assert (again.id, again.status) == (first.id, Status.IN_PROGRESS)
    assert running.retry_of is None

    assert (await cancel(make.store, make.owner, first.public_id)).status is Status.CANCELLING
    assert (await retry(make.store, make.limits, make.owner, batch.public_id)).id != first.id


async def test_two_retries_at_once_make_one_batch_with_one_file(make: Factory) -> None:
    batch = await half_done(make, lines(3))
    both = await asyncio.gather(*(retry(make.store, make.limits, make.owner, batch.public_id) for _ in range(2)))
    assert both[0].id == both[1].id
    assert await make.value("SELECT count(*) FROM batch WHERE retry_of = $1", batch.id) == 1
    assert await make.value("SELECT count(*) FROM file WHERE purpose = 'batch'") == 2


async def test_the_retry_of_another_owners_batch_is_nobodys(make: Factory) -> None:
    batch = await half_done(make, lines(3))
    theirs = await make.stranger()
    columns = await make.columns("batch")
    await make.run(
        f"INSERT INTO batch ({columns}) SELECT {columns} FROM (SELECT (jsonb_populate_record(b, jsonb_build_object("
        "'no', no + 99, 'id', gen_random_uuid(), 'owner', $2::bigint, 'input_file', NULL, 'status', 'in_progress',"
        " 'ended_at', NULL, 'retry_of', id))).* FROM batch b WHERE no = $1) AS copied",
        batch.no,
        theirs,
    )
    again = await retry(make.store, make.limits, make.owner, batch.public_id)
    assert (again.owner, again.retry_of) == (make.owner, batch.id)


async def test_a_retry_whose_file_was_given_up_meanwhile_may_be_made_again(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await half_done(make, lines(3))
    really = creating.create

    async def late(*given: Any, **named: Any) -> BatchView:
        await make.run("UPDATE file SET state = 'deleted' WHERE state = 'arriving'")
        return await really(*given, **named)

    monkeypatch.setattr(creating, "create", late)
    with pytest.raises(Interrupted):
        await retry(make.store, make.limits, make.owner, batch.public_id)
    monkeypatch.undo()
    assert await make.value("SELECT count(*) FROM batch") == 1
    await retry(make.store, make.limits, make.owner, batch.public_id)


async def test_direct_requests_are_shown_and_retried_with_all_their_models(make: Factory) -> None:
    asked = [msgspec.Raw(line(f"r{i}", model=("m", "other")[i % 2]).replace(b", ", b",\r")) for i in range(5)]
    new = NewBatch(None, None, requests=asked)
    batch = await creating.create(make.store, make.limits, make.owner, new)
    waiting = await through(make, batch, 2)
    on_one_line = [bytes(one).replace(b"\r", b" ") + b"\n" for one in asked]
    assert await left(make, batch) == b"".join(on_one_line)
    while await Validate(make.deps).round():
        pass
    held = await make.lease(batch)
    await make.answer(batch, [1, 2])
    await make.answer(batch, [0, 3, 4], kind=ERROR)
    await make.let_go(held, done=True)
    await make.sealed(batch)

    again = await retry(make.store, make.limits, make.owner, batch.public_id)

    assert [(row["custom_id"], row["status"]) for row in waiting] == [(f"r{i}", "queued") for i in range(5)]
    assert (again.retry_of, again.input_file_id, again.counts.total) == (batch.id, None, 3)
    assert await left(make, again) == b"".join(on_one_line[i] for i in (0, 3, 4))
    assert [row["custom_id"] for row in await through(make, again, 2)] == ["r0", "r3", "r4"]


async def test_a_refused_input_can_be_tried_again_as_it_is(make: Factory) -> None:
    refused = await make.running(line("a", model="nobody serves this"))
    again = await retry(make.store, make.limits, make.owner, refused.public_id)
    assert (again.retry_of, again.input_file_id) == (refused.id, refused.input_file_id)
