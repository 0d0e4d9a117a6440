"""How much a server may send: replies, heads and framing without end are refused while they stream."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from overnight.upstreams.http import BrokenKind
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import Peer, always, saying


async def test_twenty_megabytes_are_refused_while_they_stream(serve: Serve, connect: Connect) -> None:
    got: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for number in range(20):
                await peer.say(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
                got.append(number)
        finally:
            ended.set()

    ended = asyncio.Event()
    pool = connect(await serve(script), most_reply_bytes=lambda: 1024 * 1024)
    broken = await Outcome(pool).broken()
    assert broken.kind is BrokenKind.TOO_LARGE
    assert "1,048,576" in broken.message
    await ended.wait()
    assert len(got) < 20


async def test_twenty_megabytes_within_the_limit_come_whole(serve: Serve, connect: Connect) -> None:
    body = b'{"x":"' + b"y" * 20_000_000 + b'"}'
    assert (await Outcome(connect(await serve(always(body)))).reply()).body == body


async def test_an_announced_length_over_the_limit_is_refused_at_once(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")
        assert await peer.see_goodbye() == b""

    pool = connect(await serve(script), most_reply_bytes=lambda: 1000)
    assert (await Outcome(pool).broken()).kind is BrokenKind.TOO_LARGE


@pytest.mark.parametrize("size", [999, 1000, 1001])
async def test_a_reply_at_the_limit_passes_and_one_byte_more_does_not(
    serve: Serve, connect: Connect, size: int
) -> None:
    pool = connect(await serve(saying(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * size)), most_reply_bytes=lambda: 1000)
    call = Outcome(pool)
    if size > 1000:
        assert (await call.broken()).kind is BrokenKind.TOO_LARGE
    else:
        assert len((await call.reply()).body) == size


async def test_a_limit_that_changes_holds_for_the_next_reply_on_the_same_connection(
    serve: Serve, connect: Connect
) -> None:
    most = 1000
    pool = connect(await serve(always(b"x" * 1000)), most_reply_bytes=lambda: most)
    assert len((await Outcome(pool).reply()).body) == 1000
    most = 999
    assert (await Outcome(pool).broken()).kind is BrokenKind.TOO_LARGE


async def test_a_decompression_bomb_is_refused(serve: Serve, connect: Connect) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    server = await serve(always(bomb, headers="Content-Encoding: gzip\r\n"))
    pool = connect(server, most_reply_bytes=lambda: 1_000_000)
    assert len(bomb) < 1_000_000
    assert (await Outcome(pool).broken()).kind is BrokenKind.TOO_LARGE
    assert (await Outcome(pool).broken()).kind is BrokenKind.TOO_LARGE


@pytest.mark.parametrize(
    ("front", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a" * 1000),
        (b"HTTP/1.1 200 ", b"a" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 40),
        (b"", b"\r\n" * 500),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: b\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;ext=aaaaaaaaaaaaaaaaaa\r\nx\r\n" * 40),
    ],
    ids=[
        "many headers",
        "long header",
        "long status",
        "interim",
        "empty lines",
        "extension",
        "trailers",
        "tiny chunks",
    ],
)
async def test_endless_headers_and_framing_are_refused(
    serve: Serve, connect: Connect, front: bytes, more: bytes
) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(front)
        while True:
            await peer.say(more)

    assert (await Outcome(connect(await serve(script))).broken()).kind is BrokenKind.GARBAGE


async def test_single_byte_chunks_are_no_fault(serve: Serve, connect: Connect) -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n"
    assert (await Outcome(connect(await serve(saying(data)))).reply()).body == b"x" * 50_000
