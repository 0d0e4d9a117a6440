"""Tells how long a server has said nothing while a call waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, TypeAlias, cast

import httpx

from overnight.client.edge import Async, Blocking

OnSilence: TypeAlias = Callable[[float], None]
"""Hears, about once a second, for how many seconds a server has said nothing; it may be called in another thread."""

EVERY = 1.0
NEXT_WITHIN = 60.0
"""Seconds after a wait without an answer within which the next one goes on with it: who asks later asks anew."""


TAKEN_UNREAD = 1 << 16
"""Bytes of a body that a connection takes though nobody reads them: that they went out is no sign of life."""


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
        self._sent = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in cast("httpx.SyncByteStream", self._stream):
            self._note(piece)
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in cast("httpx.AsyncByteStream", self._stream):
            self._note(piece)
            yield piece

    def _note(self, piece: bytes) -> None:
        # A piece is asked for when those before it are out.
        if self._sent > TAKEN_UNREAD:
            self._wait.go_on()
        self._sent += len(piece)


class _Waits:
    """What is waited for now. Nothing of a wait is told once it has ended.

    Where one ended without an answer the next goes on with it: the server has been silent since that began.
    """

    def __init__(self, now: Callable[[], float], tell: OnSilence) -> None:
        self._now = now
        self._tell = tell
        self._lock = threading.Lock()
        self._all: set[_Wait] = set()
        self._heard = self._failed = -inf
        self._silent_since = inf

    @contextmanager
    def one(self) -> Iterator[_Wait]:
        wait = _Wait(self._now)
        with self._lock:
            if wait.since <= self._failed + NEXT_WITHIN:
                wait.since = min(wait.since, self._silent_since)
            self._all.add(wait)
        try:
            yield wait
            self._heard, self._silent_since = self._now(), inf
        except httpx.TransportError:
            self._failed, self._silent_since = self._now(), max(wait.since, self._heard)
            raise
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
