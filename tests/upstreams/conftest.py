"""Servers and pools for these tests, which all run on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest
import pytest_asyncio
import uvloop

from overnight.upstreams.http import Broken, Call, Endpoint, Pool, Reply
from tests.upstreams.server import Script, Server

Serve = Callable[..., Awaitable[Server]]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every asynchronous test on both loops."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


class Connect(Protocol):
    """Makes a pool to a server or a base URL, closed with the test; keywords go to the pool."""

    def __call__(self, to: Server | str, *, api_key: str | None = ..., ca_file: str | None = ..., **kw: Any) -> Pool:
        """A pool."""


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What is closed at the end of the test, last first."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def serve(stack: AsyncExitStack) -> Serve:
    """Starts a server that plays a script on each connection."""

    async def start(script: Script, trust: ssl.SSLContext | None = None) -> Server:
        return await stack.enter_async_context(Server(script, trust))

    return start


@pytest.fixture
def connect(stack: AsyncExitStack) -> Connect:
    """Makes pools that know no proxy unless the test names one."""

    def make(to: Server | str, *, api_key: str | None = None, ca_file: str | None = None, **kw: Any) -> Pool:
        url = to if isinstance(to, str) else to.url
        pool = Pool(Endpoint(url, api_key, ca_file), **{"environment": {}, **kw})
        stack.push_async_callback(pool.close)
        return pool

    return make


class Outcome:
    """A call that was sent, and what became of it."""

    def __init__(self, pool: Pool, timeout: float = 60.0, body: bytes = b"{}", **kw: Any) -> None:
        self._come = asyncio.get_running_loop().create_future()
        self.times = 0
        """How often the call's end was told."""
        self.call = Call("/chat/completions", body, timeout, None, self._end, **kw)
        pool.send(self.call)

    def _end(self, call: Call, came: Reply | Broken) -> None:
        self.times += 1
        if not self._come.done():
            self._come.set_result(came)

    def __await__(self) -> Any:
        """Wait for the outcome."""
        return self._come.__await__()

    async def broken(self) -> Broken:
        """The outcome, which must be no reply."""
        came = await self._come
        assert isinstance(came, Broken), came
        return came

    async def reply(self) -> Reply:
        """The outcome, which must be a reply."""
        came = await self._come
        assert isinstance(came, Reply), came
        return came
