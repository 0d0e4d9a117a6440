"""Waiting for a batch: how often it is looked at, when that ends, who hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from overnight.client import OvernightError, WaitTimeout
from tests.client.conftest import Caller
from tests.client.scripted import reply, scripted


def batch(status: str, done: int, failed: int = 0) -> dict[str, Any]:
    counts = {"total": 1200, "completed": done - failed, "failed": failed}
    return {"id": "batch_1", "status": status, "request_counts": counts}


async def test_a_batch_is_looked_at_soon_and_then_every_poll_interval(call: Caller) -> None:
    running = [reply(200, batch("in_progress", 0))] * 8
    async with scripted(*running, reply(200, batch("completed", 1200))) as server:
        await call(call.client(server.url), "wait_for_batch", "batch_1", poll_interval=5)
    assert call.waits == [0.25, 0.5, 1, 2, 4, 5, 5, 5]


async def test_waiting_ends_when_its_time_is_over(call: Caller) -> None:
    async with scripted(*[reply(200, batch("in_progress", 0))] * 6) as server:
        with pytest.raises(WaitTimeout, match="still in_progress after 5 s") as raised:
            await call(call.client(server.url), "wait_for_batch", "batch_1", 60, timeout=5)
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, OvernightError)
    assert call.waits == [0.25, 0.5, 1, 2, 1.25]


async def test_whoever_asks_hears_of_every_look(call: Caller) -> None:
    looks = [batch("validating", 0), batch("in_progress", 7), batch("completed", 1200)]
    heard: list[dict[str, Any]] = []
    async with scripted(*[reply(200, look) for look in looks]) as server:
        await call(call.client(server.url), "wait_for_batch", "batch_1", progress=heard.append)
    assert heard == looks


async def test_progress_is_a_line_for_each_change(call: Caller, capsys: pytest.CaptureFixture[str]) -> None:
    looks = [batch("in_progress", 7), batch("in_progress", 7), batch("completed", 1200, failed=3)]
    async with scripted(*[reply(200, look) for look in looks]) as server:
        await call(call.client(server.url), "wait_for_batch", "batch_1", progress=True)
    assert capsys.readouterr().err == (
        "batch_1 in_progress: 7 of 1,200 answered\nbatch_1 completed: 1,200 of 1,200 answered, 3 of them with errors\n"
    )
