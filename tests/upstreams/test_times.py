"""What runs out of time: calls, openings, idle connections. The sweep runs more often here than in earnest."""

from __future__ import annotations

import asyncio
import socket

from overnight.upstreams.http import BrokenKind, Pool
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import Peer, always

QUICK = 0.01


async def with_a_kept_connection(pool: Pool) -> Pool:
    """The pool, after one call: what follows is written at once, however slow this machine is."""
    await Outcome(pool).reply()
    return pool


async def test_a_server_that_says_nothing_at_all_times_out(serve: Serve, connect: Connect) -> None:
    goodbye = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer()
        await peer.read()
        await peer.see_goodbye()
        goodbye.set()

    pool = await with_a_kept_connection(connect(await serve(script), sweep_seconds=QUICK))
    broken = await Outcome(pool, timeout=0.05).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.TIMEOUT, True)
    assert "0.05 s" in broken.message
    await goodbye.wait()


async def test_a_reply_that_trickles_for_ever_times_out(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer()
        await peer.read()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            await peer.say(b"x")
            await asyncio.sleep(0.001)

    pool = await with_a_kept_connection(connect(await serve(script), sweep_seconds=QUICK))
    assert (await Outcome(pool, timeout=0.05).broken()).kind is BrokenKind.TIMEOUT


async def test_a_request_that_nobody_reads_times_out(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer()
        await peer.read_head()
        await done.wait()

    done = asyncio.Event()
    pool = await with_a_kept_connection(connect(await serve(script), sweep_seconds=QUICK))
    broken = await Outcome(pool, timeout=0.1, body=b"x" * 64 * 1024 * 1024).broken()
    assert broken.kind is BrokenKind.TIMEOUT
    done.set()


async def test_a_timeout_leaves_other_calls_alone(serve: Serve, connect: Connect) -> None:
    answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            if (await peer.read()).body == b"slow":
                await answer.wait()
            await peer.answer()

    pool = await with_a_kept_connection(connect(await serve(script), sweep_seconds=QUICK))
    short, long = Outcome(pool, timeout=0.05, body=b"slow"), Outcome(pool, timeout=60.0, body=b"slow")
    assert (await short.broken()).kind is BrokenKind.TIMEOUT
    assert long.times == 0
    answer.set()
    assert (await long.reply()).status == 200


async def test_a_connection_that_does_not_open_is_a_connect_timeout(connect: Connect) -> None:
    """The kernel accepts a connection that fills the queue, then leaves the next ones unanswered."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        pool = connect(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", connect_timeout=0.1)
        broken = await Outcome(pool, timeout=60.0).broken()
        for filler in fillers:
            filler.close()
    assert (broken.kind, broken.sent) == (BrokenKind.CONNECT_TIMEOUT, False)


async def test_a_handshake_that_hangs_is_a_connect_timeout(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.see_goodbye()

    server = await serve(script)
    pool = connect(f"https://localhost:{server.port}/v1", connect_timeout=0.1)
    broken = await Outcome(pool, timeout=60.0).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CONNECT_TIMEOUT, False)


async def test_a_proxy_that_hangs_is_a_connect_timeout(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.see_goodbye()

    proxy = await serve(script)
    settings = {"https_proxy": f"127.0.0.1:{proxy.port}"}
    pool = connect("https://model.test/v1", connect_timeout=0.1, environment=settings)
    assert (await Outcome(pool, timeout=60.0).broken()).kind is BrokenKind.CONNECT_TIMEOUT


async def test_a_call_that_finds_no_free_connection_in_its_time_was_not_sent(serve: Serve, connect: Connect) -> None:
    answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer()
        await peer.read()
        await answer.wait()
        await peer.answer()

    pool = await with_a_kept_connection(connect(await serve(script), most_connections=1, sweep_seconds=QUICK))
    first, second = Outcome(pool, timeout=60.0), Outcome(pool, timeout=0.05)
    broken = await second.broken()
    assert (broken.kind, broken.sent) == (BrokenKind.NO_SOCKET, False)
    answer.set()
    assert (await first.reply()).status == 200


async def test_an_idle_connection_is_closed_in_time(serve: Serve, connect: Connect) -> None:
    goodbye = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer()
        assert await peer.see_goodbye() == b""
        goodbye.set()

    pool = connect(await serve(script), idle_seconds=0.02, sweep_seconds=QUICK)
    await Outcome(pool).reply()
    await goodbye.wait()


async def test_an_idle_connection_is_not_used_beyond_its_time(serve: Serve, connect: Connect) -> None:
    server = await serve(always())
    pool = connect(server, idle_seconds=0.0, sweep_seconds=60.0)
    for _ in range(3):
        await Outcome(pool).reply()
    assert server.accepted == 3


async def test_a_servers_own_idle_time_is_heeded(serve: Serve, connect: Connect) -> None:
    hasty = await serve(always(headers="Keep-Alive: timeout=1, max=100\r\n"))
    patient = await serve(always(headers="Keep-Alive: max=100, timeout=600\r\n"))
    for server, connections in ((hasty, 3), (patient, 1)):
        pool = connect(server, idle_seconds=60.0)
        for _ in range(3):
            await Outcome(pool).reply()
        assert server.accepted == connections
