"""Results page through every request of a batch in the order of submission, answered or not."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from overnight.batches import results
from overnight.batches.cancel import cancel
from overnight.batches.shape import BatchView
from overnight.domain import ids
from overnight.domain.errors import BatchNotFound, InvalidParameter
from overnight.store import leases
from overnight.store.answers import ERROR
from overnight.store.leases import FailedCall
from overnight.upkeep.expire import Expire
from tests.batches.factory import Factory, line, lines


def shuffled(count: int, groups: int = 7) -> bytes:
    """Requests that share the beginning of their prompts with others far away, so that blocks hold them reordered."""
    asked = {"role": "user", "content": "x"}
    groups_of = [{"role": "system", "content": f"group {i} " * 40} for i in range(groups)]
    return b"".join(line(f"r{i}", messages=[groups_of[i % groups], asked]) + b"\n" for i in range(count))


async def page(make: Factory, batch: BatchView, limit: int = 1000, after: str | None = None) -> dict[str, Any]:
    found = await results.page(make.store, make.owner, batch.public_id, limit=limit, after=after)
    shown: dict[str, Any] = json.loads(found.as_json())
    return shown


async def through(make: Factory, batch: BatchView, limit: int) -> list[dict[str, Any]]:
    """All results, page by page."""
    seen: list[dict[str, Any]] = []
    after = None
    while True:
        found = await page(make, batch, limit, after)
        seen += found["data"]
        if not found["has_more"]:
            return seen
        assert found["data"]
        after = found["last_id"]


async def write_down(make: Factory, batch: BatchView, seq: int, numbers: list[int], no: int = 1) -> None:
    await make.run(
        "INSERT INTO attempt (batch, worker, no, blocks, lines) VALUES ($1, $2, $3, $4, $5)",
        *(batch.no, make.life.no, no, [seq], numbers),
    )


async def fail(make: Factory, batch: BatchView, number: int, *, counted: bool = True) -> None:
    """Note a try of a line that went wrong."""
    call = FailedCall(
        batch.no, number, 1, 5, 503, "service_unavailable", "Come later.", datetime.now(UTC), counted=counted
    )
    async with make.store.session() as session:
        await leases.note_calls(session, make.life.no, [call])


async def test_all_requests_come_once_in_the_order_of_submission_wherever_they_are_stored(make: Factory) -> None:
    batch = await make.running(shuffled(700))
    blocks = await make.lease(batch)
    numbers = [number for block in blocks for number in block.lines]
    assert numbers != sorted(numbers)
    random.Random(1).shuffle(numbers)
    await make.answer(batch, numbers[:300])
    await make.answer(batch, numbers[300:400], kind=ERROR)
    unfinished = await through(make, batch, 99)
    await make.answer(batch, numbers[400:])
    await make.let_go(blocks, done=True)
    finished = await through(make, await make.sealed(batch), 99)

    assert [row["custom_id"] for row in unfinished] == [f"r{i}" for i in range(700)]
    assert [row["id"] for row in unfinished] == [ids.of_request(batch.id, i) for i in range(700)]
    by_line = dict(enumerate(unfinished))
    assert {i for i, row in by_line.items() if row["status"] == "completed"} == set(numbers[:300])
    assert {i for i, row in by_line.items() if row["status"] == "failed"} == set(numbers[300:400])
    assert {i for i, row in by_line.items() if row["status"] == "queued"} == set(numbers[400:])
    assert [row["id"] for row in finished] == [row["id"] for row in unfinished]
    assert all(row["attempts"] == 1 for row in finished)


async def test_a_result_is_the_line_of_its_file_with_two_more_fields(make: Factory) -> None:
    batch = await make.running(lines(3))
    await make.answer(batch, [0])
    await make.answer(batch, [1], kind=ERROR)
    output, errors = await make.results(batch)

    shown = (await page(make, batch))["data"]

    assert shown[0] == {**output["r0"], "status": "completed", "attempts": 1}
    assert shown[1] == {**errors["r1"], "status": "failed", "attempts": 1}
    nothing = {"response": None, "error": None, "status": "queued", "attempts": 0}
    assert shown[2] == {"id": ids.of_request(batch.id, 2), "custom_id": "r2", **nothing}


async def test_blank_lines_leave_their_numbers_out(make: Factory) -> None:
    text = line("a") + b"\n\n\n" + line("b") + b"\r\n \n" + line("c")
    batch = await make.running(text)
    expected = [ids.of_request(batch.id, i) for i in (0, 3, 5)]
    assert [row["id"] for row in await through(make, batch, 1)] == expected
    await make.answer_all(batch)
    assert [row["id"] for row in await through(make, await make.sealed(batch), 1)] == expected
    with pytest.raises(InvalidParameter):
        await page(make, batch, after=ids.of_request(batch.id, 1))


async def test_a_request_runs_from_the_moment_it_was_written_down_until_it_failed(make: Factory) -> None:
    batch = await make.running(lines(4))
    (block,) = await make.lease(batch)
    await write_down(make, batch, block.seq, [1, 2])
    await fail(make, batch, 2)

    shown = (await page(make, batch))["data"]

    assert [row["status"] for row in shown] == ["queued", "running", "queued", "queued"]
    assert [row["attempts"] for row in shown] == [0, 1, 1, 0]
    assert shown[1]["error"] is None
    assert shown[2]["error"] == {"code": "service_unavailable", "message": "Come later.", "status": 503}

    await write_down(make, batch, block.seq, [2], no=2)
    again = (await page(make, batch))["data"][2]
    assert (again["status"], again["attempts"], again["error"]) == ("running", 2, None)

    await make.let_go([block])
    assert [row["status"] for row in (await page(make, batch))["data"]] == ["queued"] * 4


async def test_a_running_request_is_found_in_the_block_that_can_hold_it_and_in_those_of_before(make: Factory) -> None:
    batch = await make.running(lines(600))
    blocks = {number: block for block in await make.lease(batch) for number in block.lines}
    for no, number in enumerate((0, 599)):
        await write_down(make, batch, blocks[number].seq, [number], no=no)
    spans = await make.value("SELECT array_agg(last - first + 1 ORDER BY seq) FROM block WHERE batch = $1", batch.no)
    assert len(spans) > 2
    assert sum(spans) == 600

    async def running() -> list[str]:
        return [row["custom_id"] for row in await through(make, batch, 90) if row["status"] == "running"]

    assert await running() == ["r0", "r599"]
    await make.run("UPDATE block SET first = NULL, last = NULL")
    assert await running() == ["r0", "r599"]


async def test_a_try_that_did_not_count_is_neither_an_attempt_nor_an_error(make: Factory) -> None:
    batch = await make.running(lines(1))
    await fail(make, batch, 0, counted=False)
    (row,) = (await page(make, batch))["data"]
    assert (row["status"], row["attempts"], row["error"]) == ("queued", 0, None)


async def test_what_a_cancelled_batch_leaves_is_cancelled_before_and_after_its_end(make: Factory) -> None:
    batch = await make.running(lines(3))
    (block,) = await make.lease(batch)
    await write_down(make, batch, block.seq, [0, 1])
    await make.answer(batch, [1])
    await cancel(make.store, make.owner, batch.public_id)
    before = (await page(make, batch))["data"]
    await make.let_go([block])
    after = (await page(make, await make.sealed(batch)))["data"]

    assert [row["status"] for row in before] == ["running", "completed", "cancelled"]
    assert [row["status"] for row in after] == ["cancelled", "completed", "cancelled"]
    assert before[2]["error"] == after[2]["error"]
    assert after[2]["error"]["code"] == "batch_cancelled"


async def test_what_an_expired_batch_leaves_expired_or_failed_with_its_last_error(make: Factory) -> None:
    batch = await make.running(lines(2))
    (block,) = await make.lease(batch)
    await write_down(make, batch, block.seq, [0])
    await fail(make, batch, 0)
    await make.let_go([block])
    await make.close_window(batch)
    await Expire(make.deps).round()
    before = (await page(make, batch))["data"]
    after = (await page(make, await make.sealed(batch)))["data"]

    assert before == after
    assert [row["status"] for row in after] == ["failed", "expired"]
    assert [row["error"]["code"] for row in after] == ["service_unavailable", "batch_expired"]


async def test_a_page_ends_near_8_mib_and_a_larger_result_comes_alone(make: Factory, monkeypatch: Any) -> None:
    monkeypatch.setattr(results, "PAGE_BYTES", 20_000)
    batch = await make.running(lines(6))
    await make.answer(batch, [0, 1, 2], size=6_000)
    await make.answer(batch, [3], size=50_000)
    await make.answer(batch, [5], size=6_000)

    async def sizes() -> list[int]:
        seen, after, more = [], None, True
        while more:
            found = await page(make, batch, after=after)
            seen.append(len(found["data"]))
            after, more = found["last_id"], found["has_more"]
        return seen

    assert await sizes() == [3, 1, 2]
    await make.answer(batch, [4], size=6_000)
    batch = await make.sealed(batch)
    assert await sizes() == [3, 1, 2]


@pytest.mark.parametrize("finished", [False, True])
async def test_answers_too_large_to_be_read_together_come_on_the_next_page(
    make: Factory, monkeypatch: Any, finished: bool
) -> None:
    from overnight.store import results as stored

    batch = await make.running(lines(20))
    for number in range(20):
        if finished or number % 3:
            await make.answer(batch, [number], size=400)
    if finished:
        batch = await make.sealed(batch)
    whole = await through(make, batch, 1000)
    monkeypatch.setattr(stored, "FRAME_BYTES_AT_ONCE", 300)
    monkeypatch.setattr(stored, "KEPT_AHEAD", 0)
    assert len((await page(make, batch))["data"]) < 20
    assert await through(make, batch, 1000) == whole


async def test_a_frame_whose_other_results_were_not_kept_is_opened_again(make: Factory, monkeypatch: Any) -> None:
    from overnight.store import results as stored

    batch = await make.completed(lines(40))
    whole = await through(make, batch, 1000)
    monkeypatch.setattr(stored, "KEPT_AHEAD", 400)
    assert await through(make, batch, 1000) == whole


async def test_a_batch_whose_input_was_not_accepted_has_no_results(make: Factory) -> None:
    refused = await make.running(line("a", model="nobody serves this"))
    waiting = await make.batch()
    for batch in (refused, waiting):
        assert await page(make, batch) == {
            "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False
        }  # fmt: skip


async def test_a_cursor_must_be_a_request_of_this_very_batch(make: Factory) -> None:
    batch, other = await make.completed(lines(2)), await make.running(lines(2))
    wrong = ("", "1", batch.public_id, ids.of_request(other.id, 0), ids.of_request(batch.id, 2))
    for after in (*wrong, ids.of_request(batch.id, 2**32 - 1), ids.of_request(batch.id, 0).upper()):
        with pytest.raises(InvalidParameter) as refused:
            await page(make, batch, after=after)
        assert refused.value.param == "after"
    with pytest.raises(InvalidParameter):
        await page(make, other, after=ids.of_request(other.id, 2))
    assert (await page(make, batch, after=ids.of_request(batch.id, 1)))["data"] == []
    assert (await page(make, other, after=ids.of_request(other.id, 1)))["data"] == []


async def test_the_results_of_others_read_like_none(make: Factory) -> None:
    batch = await make.completed(lines(1))
    stranger = await make.stranger()
    for name in (batch.public_id, "batch_1", "batch_" + "0" * 32):
        with pytest.raises(BatchNotFound):
            await results.page(make.store, stranger, name, limit=1, after=None)
