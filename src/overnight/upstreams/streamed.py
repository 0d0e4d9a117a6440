"""Calls whose reply is handed on while it comes: for those who wait for its first words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from overnight.upstreams.call import Broken, BrokenKind, Call, Reply
from overnight.upstreams.connection import Connection
from overnight.upstreams.http import Pool

MOST_AHEAD = 262_144
"""Bytes that wait here to be taken; with more of them the server is not read from."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a reply whose body is still to come. `length` is None where that is not announced."""

    status: int
    content_type: str | None
    retry_after: str | None
    encoding: str | None
    """How the body is encoded, where the server does that although it was not asked to."""
    length: str | None


class CutError(Exception):
    """A reply ended before it was whole."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(broken.message)
        self.broken = broken


class StreamPool(Pool):
    """A pool for exchanges."""

    def _make_connection(self) -> Connection:
        return _StreamedConnection(self, self._most_reply_bytes, self._idle_seconds)


class Exchange:
    """One call and its reply, taken piece by piece by one task.

    `on_end` is called exactly once, however the call ends, and must not raise: at once where it came to nothing, and
    after a whole reply when that can have been handed on. Until then the call uses a connection of the server: whoever
    does not want the rest has to `cancel`.
    """

    def __init__(
        self, pool: StreamPool, path: str, body: bytes, timeout: float, on_end: Callable[[Reply | Broken], None]
    ) -> None:
        """Send the request. `timeout` is in seconds, to the end of the reply."""
        self._pool = pool
        self._on_end = on_end
        self._head: Head | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._came: Reply | Broken | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._call = Call(path, body, timeout, self, self._end)
        pool.send(self._call)

    async def begin(self) -> Head | Broken:
        """Wait for the head of the reply; Broken where none comes."""
        while self._head is None and self._came is None:
            await self._change()
        if self._head is not None:
            return self._head
        assert isinstance(self._came, Broken)
        return self._came

    async def next(self) -> bytes:
        """What came since the last piece; waits for more, and is empty once the body is whole. Raises CutError."""
        while not self._parts and self._came is None:
            await self._change()
        if self._parts:
            piece = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            if self._is_paused:
                self._set_paused(False)
            return piece
        if isinstance(self._came, Broken):
            raise CutError(self._came)
        return b""

    @property
    def is_whole(self) -> bool:
        """Whether all of the reply came and was taken."""
        return not self._parts and isinstance(self._came, Reply)

    def cancel(self) -> None:
        """Give the call up: the server sees its connection close. One that has ended stays as it is."""
        self._pool.cancel(self._call)

    # -- what the connection tells -----------------------------------------------------------------------------

    def take_head(self, head: Head) -> None:
        """The head of the reply came."""
        self._head = head
        self._wake()

    def take_part(self, part: bytes) -> None:
        """A part of its body came."""
        self._parts.append(part)
        self._size += len(part)
        if self._size > MOST_AHEAD and not self._is_paused:
            self._set_paused(True)
        self._wake()

    def _end(self, _: Call, came: Reply | Broken) -> None:
        self._came = came
        self._wake()
        if isinstance(came, Reply):
            # Who waits for the reply goes first: the loop's next turn hands the last of it on, the one after it counts.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._on_end, came)
        else:
            self._on_end(came)

    def _set_paused(self, is_paused: bool) -> None:
        connection = self._call.connection
        self._is_paused = is_paused and connection is not None
        if connection is not None:
            cast("_StreamedConnection", connection).set_paused(is_paused)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class _StreamedConnection(Connection):
    """A connection that hands the reply on instead of keeping it."""

    __slots__ = ()

    def set_paused(self, is_paused: bool) -> None:
        """Read nothing more, or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def on_headers_complete(self) -> None:
        """The head is whole; one of an interim reply is nobody's business."""
        self._headers_complete = True
        status = self._parser.get_status_code()
        if self.call is not None and status >= 200:
            _exchange_of(self.call).take_head(
                Head(
                    status,
                    content_type=self._text_of(b"content-type"),
                    retry_after=self._text_of(b"retry-after"),
                    encoding=self._text_of(b"content-encoding"),
                    length=self._text_of(b"content-length"),
                )
            )

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._size += len(part)
        if self.call is not None:
            _exchange_of(self.call).take_part(part)

    def _text_of(self, name: bytes) -> str | None:
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def _finish(self) -> None:
        # The last part may have been one too many: the next call must find the connection reading.
        self.set_paused(False)
        super()._finish()


def _exchange_of(call: Call) -> Exchange:
    assert isinstance(call.what, Exchange)
    return call.what


__all__ = ["Broken", "BrokenKind", "CutError", "Exchange", "Head", "StreamPool"]
