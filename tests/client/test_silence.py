"""What a caller hears while a server says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from overnight.client import ConnectionFailed
from overnight.client.silence import NEXT_WITHIN, _Body, _Wait, _Waits
from tests.client.conftest import Caller
from tests.client.scripted import reply


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overnight.client.silence.EVERY", 0.01)


async def test_silence_is_told_until_the_server_answers_and_not_afterwards(call: Caller) -> None:
    loop, told, enough = asyncio.get_running_loop(), [], asyncio.Event()

    def hear(seconds: float) -> None:
        told.append(seconds)
        if len(told) == 3:
            loop.call_soon_threadsafe(enough.set)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await enough.wait()
        writer.write(reply(200, {"n": 1}))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        client = call.client(f"http://{host}:{port}", on_silence=hear)
        assert await call(client, "pool_status") == {"n": 1}
        heard = list(told)
        await asyncio.sleep(0.05)

    assert told == heard
    assert min(heard) >= 0.01


async def test_a_server_that_accepts_and_says_nothing_is_given_up_with_the_time_that_it_had(call: Caller) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        with pytest.raises(ConnectionFailed, match=r"/v1/pool/status: no answer has come within 0\.2 s\.") as raised:
            await call(call.client(f"http://{host}:{port}", timeout_s=0.2), "pool_status")

    assert isinstance(raised.value.__cause__, httpx.ReadTimeout)


async def test_a_body_that_goes_out_is_no_silence() -> None:
    clock = iter(range(100))
    wait = _Wait(lambda: next(clock))
    request = httpx.Request("POST", "http://x", files={"file": b"x" * 500_000})

    def pieces() -> Iterator[float]:
        for _ in _Body(request.stream, wait):
            yield wait.since

    seen = list(pieces())
    assert seen == sorted(seen)
    assert set(seen) == set(range(wait.since + 1))  # type: ignore[call-overload]
    assert wait.since > 0
    before = wait.since
    assert [piece async for piece in _Body(request.stream, wait)]
    assert wait.since > before


async def test_a_body_that_a_connection_takes_for_a_server_that_reads_nothing_is_no_sign_of_life() -> None:
    clock = iter(range(100))
    wait = _Wait(lambda: next(clock))

    for request in (httpx.Request("GET", "http://x"), httpx.Request("POST", "http://x", files={"file": b"x" * 9_000})):
        assert list(_Body(request.stream, wait))
        assert [piece async for piece in _Body(request.stream, wait)]

    assert wait.since == 0


def test_silence_goes_on_in_the_next_try_until_something_is_heard() -> None:
    clock, told = [100.0], list[float]()
    waits = _Waits(lambda: clock[0], told.append)

    def ask(seconds: float, *, answered: bool) -> None:
        with waits.one():
            clock[0] += seconds
            waits.look()
            if not answered:
                raise httpx.ReadTimeout("")

    for answered, pause in ((False, 2), (False, 2), (True, 2), (False, NEXT_WITHIN + 1), (True, 0)):
        with suppress(httpx.ReadTimeout):
            ask(10, answered=answered)
        clock[0] += pause

    assert told == [10, 22, 34, 10, 10]


def test_a_try_that_fails_beside_one_that_was_answered_is_no_silence_from_before_that() -> None:
    clock, told = [100.0], list[float]()
    waits = _Waits(lambda: clock[0], told.append)

    with suppress(httpx.ReadTimeout), waits.one():
        clock[0] += 8
        with waits.one():
            pass
        clock[0] += 2
        raise httpx.ReadTimeout("")
    with waits.one():
        waits.look()

    assert told == [2]
