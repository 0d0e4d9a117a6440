"""Calls that are given up, one by one or with their pool."""

from __future__ import annotations

import asyncio

import pytest

from overnight.upstreams.http import BrokenKind
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import Peer, always


async def test_cancelling_closes_the_connection(serve: Serve, connect: Connect) -> None:
    asked, goodbye = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read()
        if server.accepted == 1:
            asked.set()
            assert await peer.see_goodbye() == b""
            goodbye.set()
        await peer.answer()

    server = await serve(script)
    pool = connect(server)
    call = Outcome(pool)
    await asked.wait()
    pool.cancel(call.call)
    pool.cancel(call.call)
    assert call.times == 0
    broken = await call.broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CANCELLED, True)
    await goodbye.wait()
    assert (await Outcome(pool).reply()).status == 200
    pool.cancel(call.call)
    assert call.times == 1


async def test_a_cancelled_call_that_waits_is_never_sent(serve: Serve, connect: Connect) -> None:
    bodies: list[bytes] = []
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            bodies.append((await peer.read()).body)
            await go_on.wait()
            await peer.answer()

    pool = connect(await serve(script), most_connections=1)
    first, second, third = (Outcome(pool, body=name) for name in (b"1", b"2", b"3"))
    pool.cancel(second.call)
    broken = await second.broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CANCELLED, False)
    go_on.set()
    await first.reply()
    await third.reply()
    assert bodies == [b"1", b"3"]


async def test_closing_the_pool_ends_everything_once(serve: Serve, connect: Connect) -> None:
    asked = asyncio.Barrier(3)
    goodbyes = 0
    all_gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal goodbyes
        await peer.read()
        await asked.wait()
        await peer.see_goodbye()
        goodbyes += 1
        if goodbyes == 2:
            all_gone.set()

    pool = connect(await serve(script), most_connections=2)
    calls = [Outcome(pool) for _ in range(5)]
    await asked.wait()
    await pool.close()
    assert [call.times for call in calls] == [1] * 5
    assert [(await call.broken()).kind for call in calls] == [BrokenKind.CANCELLED] * 5
    assert [(await call.broken()).sent for call in calls] == [True] * 2 + [False] * 3
    await all_gone.wait()


async def test_an_asker_that_is_cancelled_closes_the_connection(serve: Serve, connect: Connect) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read()
        asked.set()
        await peer.see_goodbye()
        gone.set()

    pool = connect(await serve(script))
    asking = asyncio.create_task(pool.ask("GET", "/models"))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await gone.wait()


async def test_a_call_is_never_ended_inside_send(connect: Connect, serve: Serve) -> None:
    pool = connect(await serve(always()))
    await pool.close()
    call = Outcome(pool)
    assert call.times == 0
    broken = await call.broken()
    assert (broken.kind, broken.sent) == (BrokenKind.CANCELLED, False)
