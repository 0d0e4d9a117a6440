"""Tells how long a server has said nothing while a call waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import httpx

from overnight.client.edge import Async, Blocking

OnSilence: TypeAlias = Callable[[float], None]
"""Hears, about once a second, for how many seconds a server has said nothing; it may be called in another thread."""

EVERY = 1.0


class _Wait:
    """One wait for a server; what it takes of a body counts as a sign of life."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.since = now()

    def go_on(self) -> None:
        self.since = self._now()


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body on its way to a server."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream, wait: _Wait) -> None:
        self._stream = stream
        self._wait = wait

    def __iter__(self) -> Iterator[bytes]:
        for piece in cast("httpx.SyncByteStream", self._stream):
            self._wait.go_on()
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in cast("httpx.AsyncByteStream", self._stream):
            self._wait.go_on()
            yield piece


class _Waits:
    """What is waited for now. Nothing of a wait is told once it has ended."""

    def __init__(self, now: Callable[[], float], tell: OnSilence) -> None:
        self._now = now
        self._tell = tell
        self._lock = threading.Lock()
        self._all: set[_Wait] = set()

    @contextmanager
    def one(self) -> Iterator[_Wait]:
        wait = _Wait(self._now)
        with self._lock:
            self._all.add(wait)
        try:
            yield wait
        finally:
            with self._lock:
                self._all.discard(wait)

    def look(self) -> bool:
        """Tell of the longest silence; say whether anything is waited for."""
        with self._lock:
            if not self._all:
                return False
            silence = self._now() - min(wait.since for wait in self._all)
            if silence >= EVERY:
                self._tell(silence)
            return True


class BlockingTold(Blocking):
    """The blocking edge with a thread that tells of silence."""

    def __init__(self, http: httpx.Client, tell: OnSilence) -> None:
        super().__init__(http)
        self._waits = _Waits(self.now, tell)
        self._closed = threading.Event()
        threading.Thread(target=self._look, name="overnight-silence", daemon=True).start()

    def _look(self) -> None:
        while not self._closed.wait(EVERY):
            self._waits.look()

    async def send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        with self._waits.one() as wait:
            request.stream = _Body(request.stream, wait)
            return await super().send(request, stream=stream)

    async def read(self, response: httpx.Response) -> bytes:
        with self._waits.one():
            return await super().read(response)

    async def next(self, pieces: Iterator[bytes]) -> bytes | None:
        with self._waits.one():
            return await super().next(pieces)

    async def close(self) -> None:
        self._closed.set()
        await super().close()


class AsyncTold(Async):
    """The asynchronous edge with a timer that tells of silence."""

    def __init__(self, http: httpx.AsyncClient, tell: OnSilence) -> None:
        super().__init__(http)
        self._waits = _Waits(self.now, tell)
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def _wait(self) -> Iterator[_Wait]:
        if self._timer is None:
            self._set_timer()
        with self._waits.one() as wait:
            yield wait

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waits.look():
            self._set_timer()

    async def send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        with self._wait() as wait:
            request.stream = _Body(request.stream, wait)
            return await super().send(request, stream=stream)

    async def read(self, response: httpx.Response) -> bytes:
        with self._wait():
            return await super().read(response)

    async def next(self, pieces: Any) -> bytes | None:
        with self._wait():
            return await super().next(pieces)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await super().close()
