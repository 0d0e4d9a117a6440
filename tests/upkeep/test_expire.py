"""A window that ends stops what has not started; what was answered in time is not late."""

from __future__ import annotations

import dataclasses
import time

import pytest

from overnight.batches.shape import BatchView
from overnight.domain.states import Status
from overnight.store.answers import ERROR
from overnight.upkeep.expire import Expire
from overnight.upkeep.purge import Purge
from tests.batches.factory import Factory, lines


async def expired(make: Factory, batch: BatchView) -> BatchView:
    await make.close_window(batch)
    await Expire(make.deps).round()
    return await make.sealed(batch)


async def test_requests_that_never_ran_expire_and_count_as_failed(make: Factory) -> None:
    batch = await make.running(lines(300))
    blocks = await make.lease(batch, most=1)
    await make.answer(batch, blocks[0].lines[:2])
    await make.let_go(blocks)

    ended = await expired(make, batch)

    assert (ended.status, ended.moments.expired_at is not None) == (Status.EXPIRED, True)
    assert (ended.counts.completed, ended.counts.failed, ended.counts.cancelled) == (2, 298, 0)
    output, errors = await make.results(ended)
    assert {row["error"]["code"] for row in errors.values()} == {"batch_expired"}
    assert output.keys() | errors.keys() == {f"r{i}" for i in range(300)}


async def test_a_request_that_waited_to_be_tried_again_fails_with_its_last_error(make: Factory) -> None:
    batch = await make.running(lines(3))
    blocks = await make.lease(batch)
    await sent(make, batch, [0, 1, 2])
    await failed(make, batch, 0, 1, "rate_limited", 429)
    await failed(make, batch, 0, 2, "upstream_error", 502)
    await failed(make, batch, 1, 1, "service_unavailable", 503, counted=False)
    await make.let_go(blocks)

    ended = await expired(make, batch)

    assert (ended.status, ended.counts.failed) == (Status.EXPIRED, 3)
    _, errors = await make.results(ended)
    assert errors["r0"]["error"] == {"code": "upstream_error", "message": "Try 2 failed.", "status": 502}
    assert errors["r1"]["error"]["code"] == errors["r2"]["error"]["code"] == "batch_expired"
    assert "again" in errors["r2"]["error"]["message"]
    assert await make.value("SELECT array_agg(tries ORDER BY line) FROM answer") == [1, 0, 1]


async def test_running_requests_finish_first(make: Factory) -> None:
    batch = await make.running(lines(2))
    blocks = await make.lease(batch)
    seen = await expired(make, batch)
    assert seen.status is Status.IN_PROGRESS
    await make.answer(batch, [0])
    await make.answer(batch, [1], kind=ERROR)
    await make.let_go(blocks, done=True)
    ended = await make.sealed(batch)
    assert (ended.status, ended.counts.completed, ended.counts.failed) == (Status.EXPIRED, 1, 1)


async def test_a_batch_with_all_its_answers_completes_however_late_it_is_sealed(make: Factory) -> None:
    batch = await make.running(lines(2))
    await make.answer_all(batch)
    assert (await expired(make, batch)).status is Status.COMPLETED


async def test_a_window_that_is_open_stays_open(make: Factory) -> None:
    batch = await make.running(lines(1))
    assert await Expire(make.deps).round() is False
    await make.close_window(batch)
    assert await Expire(make.deps).round() is True
    assert await Expire(make.deps).round() is False


@pytest.mark.parametrize("days", [-2, 2])
async def test_the_clock_of_a_host_changes_nothing(make: Factory, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Only the database's clock is asked for windows, leases and retention; a host's own names things."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + days * 86_400 * 10**9)
    monkeypatch.setattr(time, "time", lambda: real() / 10**9 + days * 86_400)
    batch = await make.running(lines(1))
    done = await make.completed(lines(1))
    assert await Expire(make.deps).round() is False
    assert await Purge(make.deps).round() is False
    assert await make.value("SELECT created_at > now() - interval '1 hour' FROM batch WHERE no = $1", batch.no)
    assert (await make.look(done)).id == done.id
    assert len(await make.lease(batch)) == 1


async def test_a_batch_without_a_window_never_expires(make: Factory) -> None:
    await make.running(lines(1))
    await make.run("UPDATE batch SET expires_at = NULL")
    assert await Expire(make.deps).round() is False


async def test_nothing_of_a_closed_batch_is_leased(make: Factory) -> None:
    batch = await make.running(lines(1))
    await make.close_window(batch)
    await Expire(make.deps).round()
    await make.run("UPDATE batch SET expires_at = now() + interval '1 hour'")
    assert await make.lease(batch) == []


async def test_only_the_one_batch_is_closed_where_one_is_named(make: Factory) -> None:
    first, second = await make.running(lines(1)), await make.running(lines(1))
    for batch in (first, second):
        await make.close_window(batch)
    deps = dataclasses.replace(make.deps, only=lambda: [second.no])
    assert await Expire(deps).round() is True
    assert await Expire(deps).round() is False
    assert await make.value("SELECT ends_as FROM batch WHERE no = $1", first.no) is None


async def sent(make: Factory, batch: BatchView, numbers: list[int]) -> None:
    """Write these lines down as a worker does before it sends them."""
    await make.run(
        "INSERT INTO attempt (batch, worker, no, blocks, lines) VALUES ($1, $2, 1, '{0}', $3)",
        *(batch.no, make.life.no, numbers),
    )


async def failed(
    make: Factory, batch: BatchView, number: int, attempt: int, code: str, status: int, *, counted: bool = True
) -> None:
    """Note a try that was not final."""
    await make.run(
        "INSERT INTO call (batch, line, worker, try, took_ms, status, code, message, counted)"
        " VALUES ($1, $2, $3, $4, 1, $5, $6, $7, $8)",
        *(batch.no, number, make.life.no, attempt, status, code, f"Try {attempt} failed.", counted),
    )


async def test_while_batches_are_turned_off_windows_wait(make: Factory) -> None:
    batch = await make.running(lines(2))
    make.limits = dataclasses.replace(make.limits, enabled=False)
    assert (await expired(make, batch)).status is Status.IN_PROGRESS
    make.limits = dataclasses.replace(make.limits, enabled=True)
    assert (await expired(make, batch)).status is Status.EXPIRED


async def test_a_batch_without_a_window_is_never_closed(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, window=None)
    batch = await make.running(lines(2))
    assert batch.moments.expires_at is None
    assert await Expire(make.deps).round() is False
    await make.answer_all(batch)
    assert (await make.sealed(batch)).status is Status.COMPLETED
