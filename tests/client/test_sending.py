"""When a call is sent again, how long it waits, and what it raises in the end."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from overnight.client import (
    ApiError,
    BadRequest,
    Client,
    ConnectionFailed,
    NotAllowed,
    NotFound,
    OvernightError,
    ServerFault,
    TooManyRequests,
)
from tests.client.conftest import Caller
from tests.client.scripted import refusal, reply, scripted

BATCH = {"id": "batch_1", "object": "batch", "status": "validating"}
DONE = {**BATCH, "status": "completed", "request_counts": {"total": 1, "completed": 1, "failed": 0}}


async def test_a_full_server_is_waited_for_as_long_as_it_asks(call: Caller) -> None:
    full = refusal(429, "capacity_exceeded", retry_after="30")
    async with scripted(full, full, reply(200, BATCH)) as server:
        got = await call(call.client(server.url), "create_batch", "file-1")
    assert got == BATCH
    assert call.waits == [30, 30]
    assert [a.body for a in server.asked[1:]] == [server.asked[0].body] * 2


async def test_a_full_server_that_asks_for_nothing_is_tried_five_times_more_and_then_raised(call: Caller) -> None:
    full = refusal(429, "capacity_exceeded", "The queue is full.")
    async with scripted(*[full] * 6) as server:
        with pytest.raises(TooManyRequests, match="The queue is full") as raised:
            await call(call.client(server.url), "create_batch", "file-1")
    assert call.waits == [1, 2, 4, 8, 16]
    assert isinstance(raised.value, RuntimeError)
    assert (raised.value.status, raised.value.code) == (429, "capacity_exceeded")
    assert raised.value.request_id == "req_1"


NO_DATES = (
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
    "Mon, 01 Jan 2024 99:99:99 GMT",
    "Mon",
    ",",
)


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        ("0", 0),
        ("-5", 0),
        ("2.5", 2.5),
        ("nan", 1),
        ("inf", 1),
        ("soon", 1),
        ("999999", 3600),
        *((date, 1) for date in NO_DATES),
    ],
)
async def test_a_senseless_retry_after_is_never_an_error(asked: str, waited: float) -> None:
    call = Caller("async")
    async with scripted(refusal(429, "capacity_exceeded", retry_after=asked), reply(200, BATCH)) as server:
        await call(call.client(server.url), "get_batch", "batch_1")
    await call.close()
    assert call.waits == [waited]


async def test_a_retry_after_may_be_a_date() -> None:
    call = Caller("async")
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)
    async with scripted(refusal(429, "capacity_exceeded", retry_after=date), reply(200, BATCH)) as server:
        await call(call.client(server.url), "get_batch", "batch_1")
    await call.close()
    assert 500 < call.waits[0] <= 600


async def test_a_refusal_that_says_it_is_final_is_not_sent_again(call: Caller) -> None:
    async with scripted(refusal(429, "quota_used", x_should_retry="false")) as server:
        with pytest.raises(TooManyRequests):
            await call(call.client(server.url), "get_batch", "batch_1")
    assert call.waits == []


async def test_a_call_that_changes_something_is_not_sent_again_when_the_server_fails(call: Caller) -> None:
    async with scripted(refusal(500, "internal_error")) as server:
        with pytest.raises(ServerFault):
            await call(call.client(server.url), "create_batch", "file-1")
    async with scripted(b"") as server:
        with pytest.raises(ConnectionFailed):
            await call(call.client(server.url), "create_batch", "file-1")
    assert call.waits == []


async def test_waiting_for_a_batch_outlives_a_server_that_is_away_for_a_while(call: Caller) -> None:
    away = [b"", refusal(503, "service_unavailable"), reply(200, b"{", length=100)]
    async with scripted(*away, reply(200, DONE)) as server:
        got = await call(call.client(server.url), "wait_for_batch", "batch_1")
    assert got == DONE
    assert call.waits == [1, 2, 4]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, BadRequest), (409, BadRequest), (401, NotAllowed), (403, NotAllowed), (404, NotFound), (507, ServerFault)],
)
async def test_errors_are_of_their_own_kind_and_carry_what_the_server_said(status: int, kind: type[ApiError]) -> None:
    call = Caller("async")
    async with scripted(refusal(status, "some_code", "Do it otherwise.")) as server:
        with pytest.raises(kind) as raised:
            await call(call.client(server.url), "create_batch", "file-1")
    await call.close()
    error = raised.value
    assert type(error) is kind
    assert (error.status, error.code, error.message, error.param) == (status, "some_code", "Do it otherwise.", None)
    assert str(error) == f"Do it otherwise. ({status}, some_code, request id req_1)"


@pytest.mark.parametrize(
    "body",
    [b"<html>Bad gateway</html>", b"", b"[]", b'{"error": "no"}', b'{"error": {}}', b"\xff", b"[" * 100_000],
    ids=lambda body: body[:10].decode(errors="replace"),
)
async def test_an_error_of_some_other_server_is_an_error_all_the_same(body: bytes) -> None:
    call = Caller("async")
    async with scripted(reply(502, body)) as server:
        with pytest.raises(ServerFault) as raised:
            await call(call.client(server.url), "get_file", "file-1")
    await call.close()
    assert (raised.value.status, raised.value.code) == (502, None)


async def test_a_code_that_is_a_number_is_told_as_any_other() -> None:
    call = Caller("async")
    body = b'{"error": {"code": 404, "message": "File Not Found", "param": 3}}'
    async with scripted(reply(404, body)) as server:
        with pytest.raises(NotFound) as raised:
            await call(call.client(server.url), "get_file", "file-1")
    await call.close()
    assert (raised.value.code, raised.value.param) == ("404", "3")
    assert str(raised.value) == "File Not Found (404, 404)"


@pytest.mark.parametrize("charset", ["hex", "rot13", "undefined", "idna", "no-such"])
async def test_an_error_is_told_whatever_charset_it_claims(charset: str) -> None:
    call = Caller("async")
    async with scripted(reply(502, b"caf\xe9", [("content-type", f"text/plain; charset={charset}")])) as server:
        with pytest.raises(ServerFault, match="caf"):
            await call(call.client(server.url), "get_file", "file-1")
    await call.close()


async def test_an_answer_that_is_no_object_says_that_the_address_may_be_wrong(call: Caller) -> None:
    async with scripted(reply(200, b"<html></html>")) as server:
        with pytest.raises(OvernightError, match="base URL"):
            await call(call.client(server.url), "get_file", "file-1")


async def test_no_server_at_all_is_a_failed_connection_at_once(call: Caller) -> None:
    closed = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    client = call.client(f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionFailed, match=f"GET http://127.0.0.1:{port}/v1/batches/batch_1"):
        await call(client, "get_batch", "batch_1")
    assert await call(client, "health_check") is False
    assert call.waits == []


async def test_ids_stay_one_part_of_the_path(call: Caller) -> None:
    async with scripted(refusal(404, "file_not_found")) as server:
        client = call.client(server.url)
        with pytest.raises(NotFound):
            await call(client, "get_file", "../batches?x=/")
        with pytest.raises(ValueError, match="empty"):
            await call(client, "delete_file", "")
    assert server.asked[0].path == "/v1/files/..%2Fbatches%3Fx%3D%2F"


async def test_a_create_under_a_key_is_made_again_when_the_server_was_away(call: Caller) -> None:
    batch = {"id": "batch_1"}
    async with scripted(b"", refusal(503, "service_unavailable"), reply(200, batch)) as server:
        assert await call(call.client(server.url), "create_batch", "file-1", idempotency_key="k") == batch
    assert [a.headers["idempotency-key"] for a in server.asked] == ["k"] * 3
    assert len({a.body for a in server.asked}) == 1


def line(n: int) -> bytes:
    return b'{"custom_id": "r%d"}\n' % n


async def test_output_that_breaks_off_goes_on_behind_the_last_whole_line(call: Caller) -> None:
    pieces = [
        reply(200, line(3) + line(4) + line(5)[:9], length=500),
        refusal(503, "service_unavailable"),
        reply(200, line(5) + line(6).rstrip()),
    ]
    async with scripted(*pieces) as server:
        client = call.client(server.url)
        if isinstance(client, Client):
            found = await asyncio.to_thread(lambda: list(client.output("batch_1", 3)))
        else:
            found = [each async for each in client.output("batch_1", 3)]
    assert [each["custom_id"] for each in found] == ["r3", "r4", "r5", "r6"]
    asked = "/v1/batches/batch_1/output.jsonl?order=finished&offset="
    assert [a.path for a in server.asked] == [f"{asked}{offset}" for offset in (3, 5, 5)]


@pytest.mark.parametrize("page", [b"<html>Hello</html>", b"[1]\n", b"[" * 10_000])
async def test_output_that_is_none_is_told_as_such(page: bytes) -> None:
    def read(url: str) -> None:
        with Client(url) as client:
            list(client.output("batch_1"))

    async with scripted(reply(200, page)) as server:
        with pytest.raises(OvernightError, match=r"output\.jsonl was answered with something other than a JSON object"):
            await asyncio.to_thread(read, server.url)


async def test_output_may_be_left_in_the_middle() -> None:
    def first(url: str) -> str:
        with Client(url) as client:
            found = client.output("batch_1")
            name = str(next(found)["custom_id"])
            found.close()
            assert client._calls._edge.http._transport._pool.connections == []  # type: ignore[union-attr]
            return name

    async with scripted(reply(200, line(0), length=500)) as server:
        assert await asyncio.to_thread(first, server.url) == "r0"


async def test_one_request_is_answered_at_once_and_whole(call: Caller) -> None:
    body = {"model": "m", "input": "hi"}
    async with scripted(refusal(429, "capacity_exceeded", retry_after="3"), reply(200, {"id": "reply"})) as server:
        client = call.client(server.url)
        assert await call(client, "request_now", body, "/v1/embeddings") == {"id": "reply"}
        with pytest.raises(ValueError, match="stream"):
            await call(client, "request_now", {**body, "stream": True})
    assert call.waits == [3]
    assert [(a.path, json.loads(a.body)) for a in server.asked] == [("/v1/embeddings", body)] * 2
