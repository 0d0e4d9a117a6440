"""What comes over the wire and is no HTTP, or too much of it."""

from __future__ import annotations

import asyncio
import contextlib
import json

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
