"""What comes over the wire and is no HTTP, or too much of it."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from overnight.api import protocol
from overnight.api.protocol import LONGEST_HEAD
from tests.api.conftest import ServedApp


async def say(served_app: ServedApp, *pieces: bytes) -> tuple[bytes, dict[str, object]]:
    """Send some bytes, and return the head and the body of what comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served_app.url.rpartition(":")[2]))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return head, json.loads(body)


async def test_what_is_no_http_is_refused_in_the_shape_of_errors(served_app: ServedApp) -> None:
    for sent in (
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /v1/batches HTTP/9.9\r\n\r\n",
        b"GET \xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/batches HTTP/1.1\r\nhost: localhost\r\ncontent-length: ten\r\n\r\n",
        b"POST /v1/batches HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    ):
        head, body = await say(served_app, sent)
        assert (sent, head.split(b"\r\n")[0]) == (sent, b"HTTP/1.1 400 Bad Request")
        assert b"x-request-id: req_" in head
        error = body["error"]
        assert isinstance(error, dict)
        assert (error["code"], set(error)) == ("invalid_request", {"message", "type", "param", "code"})


async def test_a_head_that_does_not_end_is_given_up(served_app: ServedApp) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served_app.url.rpartition(":")[2]))
    answer = b""
    with contextlib.suppress(ConnectionError):
        # The answer may be lost, for it is sent while much is still on its way; the connection has to end.
        async with asyncio.timeout(60):
            writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * (LONGEST_HEAD + 1_000_000))
            answer = await reader.read()
    writer.close()
    assert answer == b"" or b"too long" in answer


async def test_long_bodies_are_not_taken_for_long_heads(served_app: ServedApp) -> None:
    served_app.http.headers["x-large"] = "x" * 30_000
    for _ in range(3):
        response = await served_app.http.post("/v1/batches", content=b" " * 1_000_000)
        assert response.status_code == 415


async def test_every_answer_says_when_it_was_made(served_app: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    for second, shown in (
        (1_700_000_000, "Tue, 14 Nov 2023 22:13:20 GMT"),
        (1_700_000_001, "Tue, 14 Nov 2023 22:13:21 GMT"),
    ):
        monkeypatch.setattr(protocol, "now", lambda second=second: second + 0.9)
        response = await served_app.http.get("/v1/models")
        assert response.headers.get_list("date") == [shown]


class Wire(asyncio.Transport):
    """Keeps what is written, and a full stop where it is closed."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return b"." in self.written

    def close(self) -> None:
        self.written.append(b".")


async def test_a_head_goes_out_with_the_first_piece_or_with_the_end_of_the_turn() -> None:
    wire = Wire()
    answer = protocol.Joined(wire)
    answer.write(b"head ")
    answer.write(b"one ")
    answer.write(b"two")
    assert wire.written == [b"head one ", b"two"]
    answer = protocol.Joined(wire)
    answer.write(b"head ")
    assert wire.written[2:] == []
    await asyncio.sleep(0)
    assert wire.written[2:] == [b"head "]
    answer.write(b"one")
    assert wire.written[3:] == [b"one"]


async def test_a_head_goes_out_before_a_connection_is_closed_and_never_after_it() -> None:
    wire = Wire()
    answer = protocol.Joined(wire)
    answer.write(b"head")
    answer.close()
    assert (wire.written, answer.is_closing()) == ([b"head", b"."], True)
    wire = Wire()
    protocol.Joined(wire).write(b"head")
    wire.close()
    await asyncio.sleep(0)
    assert wire.written == [b"."]
