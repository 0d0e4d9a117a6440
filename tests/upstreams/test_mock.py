"""The mock upstream of the benchmarks, compiled and in Python, tells the truth about what it was sent."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator

import msgspec
import pytest

from benchmarks.mock import Mock
from overnight.upstreams.answer import read_reply
from overnight.upstreams.http import Reply
from tests.upstreams.conftest import Connect, Outcome
from tests.upstreams.judge import NOW

COMPILES = shutil.which("cc") is not None and sys.platform == "linux"


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.skipif(not COMPILES, reason="no compiler")), True])
def python(request: pytest.FixtureRequest) -> bool:
    """Whether the mock is the one in Python."""
    return bool(request.param)


@pytest.fixture
def mock(python: bool) -> Iterator[Mock]:
    """A mock that answers at once."""
    with Mock(reply_bytes=1000, python=python) as mock:
        yield mock


def post(body: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    """A whole request."""
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)


async def read_status(reader: asyncio.StreamReader) -> bytes:
    """The status line of the next reply, whose body is read and must be JSON."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    msgspec.json.decode(await reader.readexactly(length))
    return head.split(b"\r\n")[0]


async def test_requests_are_told_apart_however_they_are_cut(mock: Mock) -> None:
    stream = post(b"a" * 5) + post(b"") + post(b"b" * 40_000) + post(b"\r\n\r\n") + post(b"c" * 17_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", mock.port)
    for size in (1, 7, 16_384, 1 << 20):
        for at in range(0, len(stream) if size > 1 else 400, size):
            writer.write(stream[at : at + size])
            await writer.drain()
        if size == 1:
            writer.write(stream[400:])
        for _ in range(5):
            assert await read_status(reader) == b"HTTP/1.1 200 OK"
    writer.close()
    assert mock.stats().requests == 20


async def test_replies_are_results_with_usage(mock: Mock, connect: Connect) -> None:
    pool = connect(mock.url)
    for path in ("/chat/completions", "/completions", "/embeddings"):
        reply = await pool.ask("POST", path, b"{}")
        assert isinstance(reply, Reply)
        came = read_reply(reply, most_bytes=100_000, now=NOW)
        assert came.code is None
        assert came.usage.input > 0
    chat = await pool.ask("POST", "/chat/completions", b"{}")
    assert isinstance(chat, Reply)
    assert 800 < len(chat.body) <= 1100
    models = await pool.ask("GET", "/models")
    assert isinstance(models, Reply)
    assert msgspec.json.decode(models.body)["data"][0]["id"] == "mock"
    missing = await pool.ask("GET", "/nothing")
    assert isinstance(missing, Reply)
    assert missing.status == 404


async def test_calls_in_flight_are_counted(python: bool, connect: Connect) -> None:
    with Mock(50, 60, python=python) as mock:
        calls = [Outcome(connect(mock.url)) for _ in range(40)]
        for call in calls:
            assert (await call.reply()).status == 200
        stats = mock.stats()
    assert (stats.requests, stats.in_flight) == (40, 0)
    assert 0 < stats.max_in_flight <= 40
    assert 40 * 0.04 < stats.in_flight_seconds <= stats.uptime_seconds * 40


async def test_a_client_that_goes_away_is_no_longer_in_flight(python: bool, connect: Connect) -> None:
    with Mock(60_000, 60_000, python=python) as mock:
        pool = connect(mock.url)
        call = Outcome(pool)
        while mock.stats().in_flight == 0:
            await asyncio.sleep(0)
        pool.cancel(call.call)
        await call.broken()
        while mock.stats().in_flight:
            await asyncio.sleep(0)
        assert mock.stats().requests == 0


async def test_the_share_of_failures_is_kept(python: bool, connect: Connect) -> None:
    with Mock(error_rate=0.5, python=python) as mock:
        pool = connect(mock.url)
        statuses = [(await Outcome(pool).reply()).status for _ in range(200)]
        assert mock.stats().failures == statuses.count(500)
    assert 50 < statuses.count(500) < 150
    assert set(statuses) == {200, 500}
