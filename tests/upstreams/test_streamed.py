"""A reply is handed on while it comes, and a connection that carried one carries the next."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import monotonic

import pytest

from overnight.upstreams import http
from overnight.upstreams.call import Broken, BrokenKind, Endpoint, Reply
from overnight.upstreams.streamed import MOST_AHEAD, CutError, Exchange, Head, StreamPool
from tests.upstreams.conftest import Serve
from tests.upstreams.server import Peer, Server

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Ends(list[Reply | Broken]):
    """Hears how calls ended."""


def pool_to(server: Server, stack: AsyncExitStack, **more: float) -> StreamPool:
    pool = StreamPool(Endpoint(server.url), environment={}, **more)  # type: ignore[arg-type]
    stack.push_async_callback(pool.close)
    return pool


async def rest(exchange: Exchange) -> bytes:
    found = b""
    while piece := await exchange.next():
        found += piece
    return found


async def told(ends: Ends, count: int) -> None:
    """Wait until so many ends were told."""
    async with asyncio.timeout(10):
        while len(ends) < count:
            await asyncio.sleep(0)


async def test_head_and_parts_come_before_the_end(serve: Serve, stack: AsyncExitStack) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED)
        await go_on.wait()
        await peer.say(b"3\r\none\r\n")
        go_on.clear()
        await go_on.wait()
        await peer.say(b"3\r\ntwo\r\n0\r\n\r\n")

    ends = Ends()
    pool = pool_to(await serve(script), stack)
    exchange = Exchange(pool, "/chat/completions", b"{}", 60.0, ends.append)
    head = await exchange.begin()
    assert isinstance(head, Head)
    assert (head.status, head.content_type, head.length) == (200, "text/event-stream", None)
    go_on.set()
    assert await exchange.next() == b"one"
    assert ends == []
    go_on.set()
    assert await rest(exchange) == b"two"
    assert exchange.is_whole
    await told(ends, 1)
    assert [type(end) for end in ends] == [Reply]


async def test_a_reader_that_waits_pauses_the_server_and_the_connection_is_used_again(
    serve: Serve, stack: AsyncExitStack
) -> None:
    size = 64 * MOST_AHEAD

    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            await peer.answer(b"x" * size)

    server = await serve(script)
    ends = Ends()
    pool = pool_to(server, stack)
    for _ in range(3):
        exchange = Exchange(pool, "/completions", b"{}", 60.0, ends.append)
        assert isinstance(await exchange.begin(), Head)
        await asyncio.sleep(0.05)
        assert exchange._size < size / 2
        assert len(await rest(exchange)) == size
    await told(ends, 3)
    assert len(ends) == 3
    assert server.accepted == 1


async def test_who_waits_for_a_reply_has_it_before_its_end_is_told(serve: Serve, stack: AsyncExitStack) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer(b"all of it")

    order: list[str] = []
    pool = pool_to(await serve(script), stack)
    exchange = Exchange(pool, "/completions", b"{}", 10.0, lambda _: order.append("told"))
    assert isinstance(await exchange.begin(), Head)
    assert (await exchange.next(), exchange.is_whole) == (b"all of it", True)
    order.append("taken")
    async with asyncio.timeout(10):
        while len(order) < 2:
            await asyncio.sleep(0)
    assert order == ["taken", "told"]


@pytest.mark.parametrize(
    ("said", "kind", "came"),
    [
        (b"", BrokenKind.CLOSED, None),
        (b"noise\r\n\r\n", BrokenKind.GARBAGE, None),
        (CHUNKED + b"3\r\none\r\n", BrokenKind.CUT, b"one"),
        (CHUNKED + b"3\r\none\r\nnoise\r\n", BrokenKind.GARBAGE, b"one"),
    ],
)
async def test_what_breaks_a_reply_off_is_told_once(
    serve: Serve, stack: AsyncExitStack, said: bytes, kind: BrokenKind, came: bytes | None
) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(said)

    ends = Ends()
    exchange = Exchange(pool_to(await serve(script), stack), "/completions", b"{}", 60.0, ends.append)
    begun = await exchange.begin()
    if came is None:
        assert isinstance(begun, Broken)
    else:
        assert isinstance(begun, Head)
        assert await exchange.next() == came
        with pytest.raises(CutError) as cut:
            await exchange.next()
        begun = cut.value.broken
    assert begun.kind is kind
    assert ends == [begun]


async def test_time_runs_out_in_the_middle_of_a_reply_too(
    serve: Serve, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(CHUNKED)
        await peer.see_goodbye()

    ends = Ends()
    pool = pool_to(await serve(script), stack, sweep_seconds=0.01)
    exchange = Exchange(pool, "/completions", b"{}", 60.0, ends.append)
    assert isinstance(await exchange.begin(), Head)
    monkeypatch.setattr(http, "monotonic", lambda: monotonic() + 60.0)
    with pytest.raises(CutError) as cut:
        await exchange.next()
    assert cut.value.broken.kind is BrokenKind.TIMEOUT
    assert ends == [cut.value.broken]


async def test_a_call_that_is_given_up_closes_its_connection_at_any_moment(serve: Serve, stack: AsyncExitStack) -> None:
    left = asyncio.Semaphore(0)

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(CHUNKED + b"3\r\none\r\n")
        await peer.see_goodbye()
        left.release()

    ends = Ends()
    pool = pool_to(await serve(script), stack)
    begun = Exchange(pool, "/completions", b"{}", 60.0, ends.append)
    await begun.begin()
    begun.cancel()
    begun.cancel()
    async with asyncio.timeout(60):
        await left.acquire()
    unsent = Exchange(pool, "/completions", b"{}", 60.0, ends.append)
    unsent.cancel()
    came = await unsent.begin()
    assert isinstance(came, Broken)
    assert [end.kind for end in ends if isinstance(end, Broken)] == [BrokenKind.CANCELLED] * 2
