"""What a caller hears while a server says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from overnight.client import ConnectionFailed
from overnight.client.silence import _Body, _Wait
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
    request = httpx.Request("POST", "http://x", files={"file": b"x" * 200_000})

    def pieces() -> Iterator[float]:
        for _ in _Body(request.stream, wait):
            yield wait.since

    assert list(pieces()) == sorted(range(1, wait.since + 1))  # type: ignore[call-overload]
    before = wait.since
    assert [piece async for piece in _Body(request.stream, wait)]
    assert wait.since > before
