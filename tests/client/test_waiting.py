"""Waiting for a batch: how often it is looked at, when that ends, who hears of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from overnight.client import Client, OvernightError, WaitTimeout
from tests.client.conftest import Caller
from tests.client.scripted import refusal, reply, scripted


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


AWAY = b""


@pytest.mark.parametrize(
    ("reply_", "asked", "waits"),
    [
        (AWAY, 4, [1, 2, 2]),
        (refusal(503, "service_unavailable"), 4, [1, 2, 2]),
        (refusal(429, "capacity_exceeded", retry_after="30"), 2, [5]),
    ],
    ids=["away", "unwell", "full"],
)
async def test_waiting_ends_in_time_where_the_server_does_not_answer(
    call: Caller, reply_: bytes, asked: int, waits: list[float]
) -> None:
    async with scripted(*[reply_] * asked) as server:
        with pytest.raises(WaitTimeout, match="After 5 s it is not known how far the batch batch_1 is") as raised:
            await call(call.client(server.url), "wait_for_batch", "batch_1", timeout=5)
    assert isinstance(raised.value.__cause__, OvernightError)
    assert call.waits == waits


async def test_a_look_at_a_silent_server_takes_no_longer_than_there_is_time(call: Caller) -> None:
    silent: list[dict[str, float]] = []
    client = call.client("http://127.0.0.1:9")
    edge = (client._calls if isinstance(client, Client) else client)._edge

    async def send(request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        silent.append(request.extensions["timeout"])
        call.waits.append(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("nothing came")

    edge.send = send  # type: ignore[method-assign]
    for most in (20, 0):
        with pytest.raises(WaitTimeout):
            await call(client, "wait_for_batch", "batch_1", timeout=most)
    assert silent == [
        {"connect": 10, "read": 20, "write": 20, "pool": 20},
        {"connect": 1, "read": 1, "write": 1, "pool": 1},
    ]


async def test_a_server_that_comes_back_in_time_is_seen(call: Caller) -> None:
    async with scripted(AWAY, AWAY, reply(200, batch("completed", 1200))) as server:
        found = await call(call.client(server.url), "wait_for_batch", "batch_1", timeout=2)
    assert found["status"] == "completed"
    assert call.waits == [1, 1]
