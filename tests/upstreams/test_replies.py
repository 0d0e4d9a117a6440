"""Replies as servers send them: kept connections, chunks, interim answers, encodings."""

from __future__ import annotations

import asyncio

import pytest

from overnight.upstreams.http import Broken, Call, Pool, Reply
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import CHAT, Peer, Request, always, saying


async def test_a_request_goes_out_as_it_was_given(serve: Serve, connect: Connect) -> None:
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.read())
        await peer.answer()

    server = await serve(script)
    pool = connect(server, api_key="sk-test")
    reply = await Outcome(pool, body=b'{"a": 1.10}', headers=(("X-Request-Id", "req_1"),)).reply()
    request = seen[0]
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.body == b'{"a": 1.10}'
    assert request.headers["host"] == f"localhost:{server.port}"
    assert request.headers["authorization"] == "bearer sk-test"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["x-request-id"] == "req_1"
    assert (reply.status, reply.body) == (200, CHAT)


async def test_the_headers_that_matter_come_with_the_reply(serve: Serve, connect: Connect) -> None:
    headers = "Retry-After: 7\r\ncontent-TYPE: application/json\r\n"
    reply = await Outcome(connect(await serve(always(b"{}", "429 Too Many", headers)))).reply()
    assert (reply.status, reply.retry_after, reply.content_type) == (429, "7", "application/json")
    assert reply.seconds >= 0


async def test_calls_in_a_row_use_one_connection(serve: Serve, connect: Connect) -> None:
    server = await serve(always())
    pool = connect(server)
    for _ in range(5):
        await Outcome(pool).reply()
    assert server.accepted == 1


async def test_the_next_call_of_a_callback_uses_the_same_connection(serve: Serve, connect: Connect) -> None:
    server = await serve(always())
    pool = connect(server)
    ended = asyncio.Event()
    left = 20

    def end(call: Call, came: Reply | Broken) -> None:
        nonlocal left
        assert isinstance(came, Reply)
        left -= 1
        if left:
            pool.send(Call("/chat/completions", b"{}", 10.0, None, end))
        else:
            ended.set()

    pool.send(Call("/chat/completions", b"{}", 10.0, None, end))
    await ended.wait()
    assert server.accepted == 1


async def test_the_callers_own_object_comes_back(serve: Serve, connect: Connect) -> None:
    pool = connect(await serve(always()))
    came: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    what = object()
    pool.send(Call("/chat/completions", b"{}", 10.0, what, lambda call, _: came.set_result(call.what)))
    assert await came is what


async def test_a_chunked_body_is_joined(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            await peer.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhel")
            await peer.say(b"lo\r\n6\r\n world\r\n0\r\nTrailer: yes\r\n\r\n")

    server = await serve(script)
    pool = connect(server)
    for _ in range(2):
        assert (await Outcome(pool).reply()).body == b"hello world"
    assert server.accepted == 1


async def test_a_body_may_end_with_the_connection(serve: Serve, connect: Connect) -> None:
    server = await serve(saying(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + CHAT))
    pool = connect(server)
    for _ in range(2):
        assert (await Outcome(pool).reply()).body == CHAT
    assert server.accepted == 2


async def test_a_reply_in_single_bytes_is_read(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello":
            await peer.say(bytes([byte]))
            await asyncio.sleep(0)
        await peer.see_goodbye()

    assert (await Outcome(connect(await serve(script))).reply()).body == b"hello"


async def test_interim_answers_are_skipped(serve: Serve, connect: Connect) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\nContent-Length: 9\r\n\r\n"
    data = interim + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    reply = await Outcome(connect(await serve(saying(data)))).reply()
    assert (reply.status, reply.body, reply.retry_after) == (200, b"{}", None)


async def test_a_reply_without_a_body_is_whole_at_once(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            await peer.say(b"HTTP/1.1 204 No Content\r\n\r\n")

    server = await serve(script)
    pool = connect(server)
    for _ in range(2):
        reply = await Outcome(pool).reply()
        assert (reply.status, reply.body) == (204, b"")
    assert server.accepted == 1


@pytest.mark.parametrize(
    "head", ["HTTP/1.1 200 OK\r\nConnection: close\r\n", "HTTP/1.0 200 OK\r\n"], ids=["close", "HTTP/1.0"]
)
async def test_a_connection_that_is_not_kept_is_closed(serve: Serve, connect: Connect, head: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        assert await peer.see_goodbye() == b""

    server = await serve(script)
    pool = connect(server)
    for _ in range(2):
        assert (await Outcome(pool).reply()).body == b"{}"
    assert server.accepted == 2


async def test_a_body_of_four_mebibytes_goes_out_whole(serve: Serve, connect: Connect) -> None:
    sizes: list[int] = []

    async def script(peer: Peer) -> None:
        while True:
            sizes.append(len((await peer.read()).body))
            await peer.answer()

    server = await serve(script)
    pool = connect(server)
    for _ in range(2):
        await Outcome(pool, body=b"x" * 4 * 1024 * 1024).reply()
    assert sizes == [4 * 1024 * 1024] * 2
    assert server.accepted == 1


async def test_an_answer_before_the_whole_request_ends_the_connection(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.answer(b"{}", "413 Too Large")
        await peer.see_goodbye()

    server = await serve(script)
    pool = connect(server)
    for _ in range(2):
        assert (await Outcome(pool, body=b"x" * 32 * 1024 * 1024).reply()).status == 413
    assert server.accepted == 2


async def test_more_calls_than_connections_wait_in_order(serve: Serve, connect: Connect) -> None:
    order: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            order.append((await peer.read()).body)
            await peer.answer()

    server = await serve(script)
    pool = connect(server, most_connections=1)
    calls = [Outcome(pool, body=b"%d" % number) for number in range(30)]
    for call in calls:
        await call.reply()
    assert order == [b"%d" % number for number in range(30)]
    assert server.accepted == 1


async def test_a_hundred_calls_run_at_once(serve: Serve, connect: Connect) -> None:
    all_there = asyncio.Barrier(100)

    async def script(peer: Peer) -> None:
        await peer.read()
        await all_there.wait()
        await peer.answer()

    pool = connect(await serve(script))
    calls = [Outcome(pool) for _ in range(100)]
    for call in calls:
        assert (await call.reply()).status == 200


async def test_asking_takes_a_method_and_a_path(serve: Serve, connect: Connect) -> None:
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.read())
        await peer.answer(b'{"data":[]}')

    reply = await connect(await serve(script)).ask("GET", "/models")
    assert isinstance(reply, Reply)
    assert reply.body == b'{"data":[]}'
    assert seen[0].line == "GET /v1/models HTTP/1.1"


async def test_a_call_can_be_sent_only_once(serve: Serve, connect: Connect) -> None:
    pool = connect(await serve(always()))
    call = Outcome(pool)
    with pytest.raises(ValueError, match="only once"):
        pool.send(call.call)
    await call.reply()
    assert call.times == 1


@pytest.mark.parametrize(
    "call",
    [
        Call("/a b", b"", 1.0, None, print),
        Call("no-slash", b"", 1.0, None, print),
        Call("/a\r\nX: y", b"", 1.0, None, print),
        Call("/a\n", b"", 1.0, None, print),
        Call("/ä", b"", 1.0, None, print),
        Call("/a", b"", 1.0, None, print, method="GET / HTTP/1.1\r\n"),
        Call("/a", b"", 1.0, None, print, method="HEAD"),
        Call("/a", b"", 1.0, None, print, headers=(("X", "a\r\nY: b"),)),
        Call("/a", b"", 1.0, None, print, headers=(("X: a\r\nY", "b"),)),
        Call("/a", b"", 1.0, None, print, headers=(("X", "a\n"),)),
        Call("/a", b"", 1.0, None, print, headers=(("Content-Length", "0"),)),
        Call("/a", b"", 1.0, None, print, headers=(("transfer-encoding", "chunked"),)),
    ],
)
async def test_nothing_can_be_smuggled_into_a_request(connect: Connect, call: Call) -> None:
    pool: Pool = connect("http://127.0.0.1:9/v1")
    with pytest.raises(ValueError):
        pool.send(call)
