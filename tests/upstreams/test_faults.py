"""What servers do wrong, fault by fault: each call ends once, with a name for what happened."""

from __future__ import annotations

import asyncio
import socket

import pytest

from overnight.upstreams.http import BrokenKind, Call
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import CHAT, Peer, saying


async def test_a_reply_cut_in_the_middle_is_cut(serve: Serve, connect: Connect) -> None:
    server = await serve(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + CHAT[:20]))
    broken = await Outcome(connect(server)).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CUT, True)


async def test_a_head_cut_in_the_middle_is_cut(serve: Serve, connect: Connect) -> None:
    broken = await Outcome(connect(await serve(saying(b"HTTP/1.1 200 O")))).broken()
    assert broken.kind is BrokenKind.CUT


async def test_chunks_without_a_last_one_are_cut(serve: Serve, connect: Connect) -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
    assert (await Outcome(connect(await serve(saying(data)))).broken()).kind is BrokenKind.CUT


async def test_a_reset_in_a_body_without_length_is_cut(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nhalf of it")
        peer.reset()

    assert (await Outcome(connect(await serve(script))).broken()).kind is BrokenKind.CUT


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        bytes(range(256)),
    ],
)
async def test_garbage_instead_of_http_is_garbage(serve: Serve, connect: Connect, data: bytes) -> None:
    broken = await Outcome(connect(await serve(saying(data)))).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.GARBAGE, True)


async def test_a_close_without_a_reply_is_closed_and_not_sent_again(serve: Serve, connect: Connect) -> None:
    server = await serve(saying(b""))
    broken = await Outcome(connect(server)).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CLOSED, True)
    assert server.accepted == 1


async def test_a_reset_without_a_reply_is_closed(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        peer.reset()

    assert (await Outcome(connect(await serve(script))).broken()).kind is BrokenKind.CLOSED


async def test_a_reset_during_a_large_request_is_closed(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        peer.reset()

    broken = await Outcome(connect(await serve(script)), body=b"x" * 16 * 1024 * 1024).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CLOSED, True)


async def test_a_kept_connection_that_was_closed_is_not_written_to(connect: Connect) -> None:
    """The goodbye has arrived, but the loop has had no turn to hear of it when the next call is sent."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        pool = connect(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        for _ in range(3):
            call = Outcome(pool)
            peer, _ = await asyncio.wait_for(loop.sock_accept(listener), 60)
            await loop.sock_recv(peer, 65536)
            await loop.sock_sendall(peer, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            assert (await call.reply()).body == b"{}"
            peer.close()


async def test_calls_sent_together_go_out_on_connections_that_live(connect: Connect) -> None:
    """Of two kept connections the server has closed one: its call goes out on a new one, the other's on the other."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        pool = connect(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        first = [Outcome(pool), Outcome(pool)]
        closed, kept = [(await asyncio.wait_for(loop.sock_accept(listener), 60))[0] for _ in first]
        for peer in (closed, kept):
            await loop.sock_recv(peer, 65536)
            await loop.sock_sendall(peer, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        for call in first:
            await call.reply()
        closed.close()
        replies: list[object] = []
        pool.send(*(Call("/together", b"{}", 60.0, None, lambda _, came: replies.append(came)) for _ in range(2)))
        fresh, _ = await asyncio.wait_for(loop.sock_accept(listener), 60)
        for peer in (kept, fresh):
            asked = await asyncio.wait_for(loop.sock_recv(peer, 65536), 60)
            assert asked.count(b"POST /v1/together") == 1
            peer.close()
        await pool.close()
    assert len(replies) == 2


async def test_a_call_on_a_kept_connection_that_ends_without_a_reply_is_not_sent_again(
    serve: Serve, connect: Connect
) -> None:
    """The server has read the request: it may have been processed, and a model call costs money."""
    requests = 0

    async def script(peer: Peer) -> None:
        nonlocal requests
        await peer.read()
        requests += 1
        await peer.answer()
        await peer.read()
        requests += 1

    server = await serve(script)
    pool = connect(server)
    await Outcome(pool).reply()
    broken = await Outcome(pool).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CLOSED, True)
    assert (requests, server.accepted) == (2, 1)


async def test_bytes_on_an_idle_connection_never_become_a_reply(serve: Serve, connect: Connect) -> None:
    said = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer(b'"first"')
        if server.accepted == 1:
            await peer.answer(b'"poison"')
            said.set()
            await peer.see_goodbye()

    server = await serve(script)
    pool = connect(server)
    await Outcome(pool).reply()
    await said.wait()
    assert (await Outcome(pool).reply()).body == b'"first"'
    assert server.accepted == 2


async def test_a_second_reply_behind_the_first_is_dropped(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
        await peer.say(whole + b"one" + whole + b"two")
        await peer.see_goodbye()

    server = await serve(script)
    pool = connect(server)
    for _ in range(2):
        assert (await Outcome(pool).reply()).body == b"one"
    assert server.accepted == 2


async def test_junk_behind_a_reply_ends_the_connection_and_not_the_reply(serve: Serve, connect: Connect) -> None:
    server = await serve(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none\x00\xff junk"))
    assert (await Outcome(connect(server)).reply()).body == b"one"


async def test_a_port_where_nobody_listens_is_refused(connect: Connect) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        broken = await Outcome(connect(f"http://127.0.0.1:{port}/v1")).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.REFUSED, False)
    assert f"127.0.0.1:{port}" in broken.message


async def test_every_waiting_call_hears_of_a_server_that_is_not_there(connect: Connect) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        pool = connect(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        calls = [Outcome(pool) for _ in range(500)]
        for call in calls:
            assert (await call.broken()).kind is BrokenKind.REFUSED
    assert {call.times for call in calls} == {1}


async def test_a_name_without_an_address_is_told(connect: Connect) -> None:
    broken = await Outcome(connect("http://nobody.invalid/v1")).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.NO_ADDRESS, False)
    assert "nobody.invalid" in broken.message


async def test_a_pool_serves_on_after_faults(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        match server.accepted:
            case 1:
                await peer.say(b"garbage\r\n\r\n")
            case 2:
                peer.reset()
            case 3:
                await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
            case _:
                await peer.answer()

    server = await serve(script)
    pool = connect(server)
    for kind in (BrokenKind.GARBAGE, BrokenKind.CLOSED, BrokenKind.CUT):
        assert (await Outcome(pool).broken()).kind is kind
    assert (await Outcome(pool).reply()).status == 200
