"""What differs between the blocking and the asynchronous client: sending, waiting, working on disk.

Calls are written once, as coroutines over an `Edge`. Over `Blocking` they never suspend, so that `finish` runs them
to their end at once: no event loop, no thread, and nothing in the way of a loop that runs already.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

import httpx

T = TypeVar("T")


class Edge(Protocol):
    """The outside world of a client."""

    http: httpx.Client | httpx.AsyncClient

    async def send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """Send a request. The body is read, unless it is to be streamed: then `read` it, or take it with `pieces`
        and `next` and `end` the response."""

    async def read(self, response: httpx.Response) -> bytes:
        """Read the body of a response, also of a streamed one."""

    def pieces(self, response: httpx.Response) -> Any:
        """The body of a streamed response, for `next`."""

    async def next(self, pieces: Any) -> bytes | None:
        """The next piece of a body; None at its end."""

    async def end(self, response: httpx.Response) -> None:
        """Be done with a streamed response."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""

    async def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Do something that may wait for a disk."""

    async def close(self) -> None:
        """Close the connections."""


class Blocking:
    """Waits by blocking its thread. Usable from several threads at once."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.http: httpx.Client | httpx.AsyncClient = http

    async def send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        return self._http.send(request, stream=stream)

    async def read(self, response: httpx.Response) -> bytes:
        return response.read()

    def pieces(self, response: httpx.Response) -> Iterator[bytes]:
        return response.iter_raw()

    async def next(self, pieces: Iterator[bytes]) -> bytes | None:
        return next(pieces, None)

    async def end(self, response: httpx.Response) -> None:
        response.close()

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this is the blocking edge: nothing else runs here

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        return work(*given)

    async def close(self) -> None:
        self._http.close()


class Async:
    """Waits on the event loop that runs."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.http: httpx.Client | httpx.AsyncClient = http

    async def send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        return await self._http.send(request, stream=stream)

    async def read(self, response: httpx.Response) -> bytes:
        return await response.aread()

    def pieces(self, response: httpx.Response) -> AsyncIterator[bytes]:
        return response.aiter_raw()

    async def next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        return await anext(pieces, None)

    async def end(self, response: httpx.Response) -> None:
        await response.aclose()

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.to_thread(work, *given)

    async def close(self) -> None:
        await self._http.aclose()


def finish(work: Awaitable[T]) -> T:
    """Run a coroutine over `Blocking`, or what else can be awaited there, to its end."""
    coroutine = work if isinstance(work, Coroutine) else _awaiting(work)
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        coroutine.close()
    raise AssertionError("a call over the blocking edge must not suspend")


async def _awaiting(work: Awaitable[T]) -> T:
    return await work


def is_on_this_machine(host: str) -> bool:
    """Whether a host name or address is a loopback one."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
