"""The public object of a batch: every field, always of its type."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from openai.types import Batch

from overnight.batches import find
from overnight.batches.cancel import cancel
from overnight.batches.pause import pause
from overnight.batches.shape import BatchView, Progress, as_json, of_row
from overnight.domain.outcome import Usage
from overnight.store import answers, batches, grants, settings
from overnight.store.served import Offer, serve
from tests.batches.factory import Factory, an_answer, lines

FIELDS = {
    "id", "object", "endpoint", "model", "errors", "input_file_id", "completion_window", "status", "output_file_id",
    "error_file_id", "created_at", "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at",
    "expired_at", "cancelling_at", "cancelled_at", "request_counts", "usage", "metadata", "anthropic_version",
    "cost_usd", "cost_unknown_attempts", "results_expires_at", "error", "max_decoding_length", "max_context_length",
    "temperature", "top_p", "top_k", "paused", "progress", "retry_of",
}  # fmt: skip
TIMES = {name for name in FIELDS if name.endswith("_at")}


def shown(batch: BatchView) -> dict[str, Any]:
    """The object, after what holds for every batch was checked."""
    found = as_json(batch)
    assert found.keys() == FIELDS
    assert all(found[name] is None or type(found[name]) is int for name in TIMES)
    assert {type(count) for count in found["request_counts"].values()} == {int}
    assert "" not in found.values()
    Batch.model_validate(found, strict=True)
    return found


async def test_a_new_batch_shows_nothing_that_did_not_happen(make: Factory) -> None:
    found = shown(await make.batch(lines(2), metadata={"a": "b"}, defaults={"top_k": 5}))
    happened = {name for name in TIMES if found[name] is not None}
    assert happened == {"created_at", "expires_at"}
    assert found["object"] == "batch"
    assert found["expires_at"] - found["created_at"] == 86_400
    assert found["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
    assert (found["metadata"], found["top_k"], found["temperature"]) == ({"a": "b"}, 5, None)
    assert found["progress"] == {
        "waiting": 2, "running": 0, "per_minute": None, "estimated_finish_at": None, "ahead": 0,
        "waiting_for": None,
    }  # fmt: skip


async def test_usage_and_counts_are_those_of_the_answers(make: Factory) -> None:
    batch = await make.running(lines(3))
    blocks = await make.lease(batch)
    found = [an_answer(batch.id, number) for number in (0, 1)]
    found[0].usage, found[1].usage = Usage(10, 4, 6, 2), Usage(1, 0, 1, 0)
    async with make.store.session() as session:
        await answers.record(session, make.life.no, [(batch.no, found)])
    await make.answer(batch, [2], kind=answers.ERROR)
    await make.let_go(blocks, done=True)

    seen = shown(await make.sealed(batch))

    assert seen["usage"] == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 18,
    }
    assert seen["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert (seen["status"], seen["model"], seen["progress"]) == ("completed", "m", None)
    assert (seen["cost_usd"], seen["cost_unknown_attempts"]) == (0.0, 0)
    assert seen["output_file_id"].startswith("file-")
    assert seen["error_file_id"].startswith("file-")
    assert seen["results_expires_at"] == seen["completed_at"] + 7 * 86_400


async def test_a_refused_batch_shows_its_errors(make: Factory) -> None:
    seen = shown(await make.running(lines(1) + b"nonsense\n"))
    assert seen["status"] == "failed"
    assert seen["errors"]["object"] == "list"
    (only,) = seen["errors"]["data"]
    assert only.keys() == {"code", "line", "message", "param"}
    assert (only["code"], only["line"]) == ("invalid_json_line", 2)
    assert seen["error"] == {"code": "invalid_json_line", "message": only["message"]}
    assert seen["request_counts"] == {"total": 0, "completed": 0, "failed": 0}


MEASURED = {"ahead": 0, "is_paused": False, "cap": None, "reserve": 0, "is_queued": False, "servers": [None]}


async def measured(
    make: Factory, total: int, completed: int, running: int, after: timedelta, **more: object
) -> Progress:
    """The progress of a batch that has run for so long, in the eyes of a clock that stands still."""
    batch = await make.running(lines(1))
    async with make.store.session() as session:
        row = dict(await batches.find(session, make.owner, batch.id) or {})
    row |= {"total": total, "completed": completed, "now": row["in_progress_at"] + after}
    progress = of_row(row, {**MEASURED, "seconds": after.total_seconds(), "running": running, **more}).progress
    assert progress is not None
    return progress


async def test_progress_follows_the_answers(make: Factory) -> None:
    progress = await measured(make, 300, 100, 40, timedelta(minutes=10))
    assert (progress.waiting, progress.running, progress.per_minute) == (160, 40, 10.0)
    started = (await find.page(make.store, make.owner, limit=1, after=None))[0][0].moments.in_progress_at
    assert started is not None
    assert progress.estimated_finish_at == started + timedelta(minutes=30)


async def test_without_an_answer_there_is_no_estimate(make: Factory) -> None:
    progress = await measured(make, 300, 0, 300, timedelta(minutes=10))
    assert (progress.per_minute, progress.estimated_finish_at, progress.waiting) == (0.0, None, 0)


async def test_while_nothing_can_start_there_is_no_estimate(make: Factory) -> None:
    progress = await measured(make, 300, 100, 0, timedelta(minutes=10), cap=0)
    assert (progress.waiting_for, progress.estimated_finish_at) == ("no_capacity", None)


async def test_an_estimate_beyond_a_year_is_none(make: Factory) -> None:
    progress = await measured(make, 1_000_000, 1, 0, timedelta(days=7))
    assert progress.estimated_finish_at is None


async def test_no_more_requests_run_than_its_blocks_hold(make: Factory) -> None:
    batch, other = await make.running(lines(3)), await make.running(lines(3))
    await make.lease(batch)
    await make.run("UPDATE beat SET running = 1000 WHERE worker = $1", make.life.no)
    seen = [(await make.look(b)).progress for b in (batch, other)]
    assert [(p.running, p.waiting) for p in seen if p] == [(3, 0), (0, 3)]


async def waits_for(make: Factory, batch: BatchView) -> str | None:
    progress = (await find.get(make.store, make.owner, batch.public_id)).progress
    assert progress is not None
    return progress.waiting_for


async def test_progress_names_what_stands_in_the_way(make: Factory) -> None:
    batch, other = await make.running(lines(1)), await make.running(lines(1, model="other"))
    offers = [Offer("m", (), None, ("chat",), blocked="server_loading"), Offer("other", (), None, ("chat",))]
    await serve(make.store, make.life.no, offers)
    assert [await waits_for(make, one) for one in (batch, other)] == ["server_loading", None]

    async with make.store.session() as session:
        await grants.hold(session, make.life.no, {"other": timedelta(minutes=1)})
    assert await waits_for(make, other) == "model_queued"

    await settings.change(make.store, {"BATCH_MODEL_CONCURRENCY": 2, "BATCH_INTERACTIVE_RESERVE": 2})
    assert await waits_for(make, batch) == "no_capacity"
    await settings.reset(make.store, ["BATCH_MODEL_CONCURRENCY"])
    await pause(make.store, make.owner, batch.public_id)
    assert await waits_for(make, batch) == "paused"
    await make.life.end()
    assert await waits_for(make, other) == "model_queued"


async def test_a_batch_whose_model_nobody_serves_any_more_says_so(make: Factory) -> None:
    batch = await make.running(lines(1))
    await make.life.end()
    assert await waits_for(make, batch) == "no_server"


async def ahead(make: Factory, batch: BatchView) -> int:
    progress = (await make.look(batch)).progress
    assert progress is not None
    return progress.ahead


async def test_what_is_due_sooner_on_the_same_model_is_ahead(make: Factory) -> None:
    first = await make.running(lines(5))
    await make.running(lines(7, model="other"))
    third = await make.running(lines(2, model="nick"))
    unchecked = await make.batch(lines(1))

    assert [await ahead(make, batch) for batch in (first, third, unchecked)] == [0, 5, 14]
    await make.run("UPDATE batch SET expires_at = now() + interval '1 hour' WHERE no = $1", third.no)
    assert [await ahead(make, batch) for batch in (first, third, unchecked)] == [2, 0, 14]
    await cancel(make.store, make.owner, first.public_id)
    await pause(make.store, make.owner, third.public_id)
    assert [await ahead(make, batch) for batch in (third, unchecked)] == [0, 7]


async def test_requests_of_other_owners_are_not_ahead_but_beside(make: Factory) -> None:
    await make.running(lines(5), owner=await make.stranger())
    mine = await make.running(lines(2))
    assert await ahead(make, mine) == 0
