"""One connection to an upstream server: it carries one call at a time and reads the reply to it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from time import monotonic
from typing import Protocol, cast

import httptools

from overnight.upstreams.call import Broken, BrokenKind, Call, Reply
from overnight.upstreams.encoding import TooLargeDecodedError, UndecodableError, decode_body

MOST_HEAD_BYTES = 65_536
# A body sent one byte a chunk is six bytes a byte on the wire; beyond this a server sends framing, not a reply.
MOST_FRAMING_PER_BYTE = 8
# Requests up to this size are surely out of our hands once the whole reply is in.
_SMALL_REQUEST = 16_384
_KEPT_HEADERS = frozenset(
    {b"content-length", b"transfer-encoding", b"content-encoding", b"content-type", b"retry-after", b"keep-alive"}
)
_KEEP_ALIVE = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*(\d{1,9})")


class Keeper(Protocol):
    """Who owns a connection."""

    def keep(self, connection: Connection) -> None:
        """The connection has carried its call and can carry another."""

    def lose(self, connection: Connection) -> None:
        """The connection is gone for good."""

    def end_soon(self, call: Call, broken: Broken) -> None:
        """The call came to nothing; its `on_end` is to be called from the loop."""


class _UnaskedError(Exception):
    """A second reply follows the one that was asked for; raised to stop the parser."""


class Connection(asyncio.Protocol):
    """Reads replies by httptools (llhttp), whose callbacks are the `on_` methods.

    A reply is whole by its length, by its last chunk, or by the end of the connection (RFC 9112, section 6.3).
    """

    __slots__ = (
        "_body",
        "_complete",
        "_fault",
        "_headers",
        "_headers_complete",
        "_is_small",
        "_keeper",
        "_most_bytes",
        "_parser",
        "_received",
        "_reusable",
        "_size",
        "_started",
        "_transport",
        "call",
        "closed",
        "idle_since",
        "keep_seconds",
        "number",
    )

    def __init__(self, keeper: Keeper, most_bytes: Callable[[], int], keep_seconds: float) -> None:
        self._keeper = keeper
        self._most_bytes = most_bytes
        self.keep_seconds = keep_seconds
        """How long the connection may lie idle before it is used again."""
        self.idle_since = 0.0
        self.call: Call | None = None
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self.number = -1
        """Of its file in this process."""
        self._forget_reply()

    def _forget_reply(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._received = 0
        self._headers_complete = False
        self._complete = False
        self._reusable = False
        self._fault: tuple[BrokenKind, str] | None = None

    # -- what the pool does ------------------------------------------------------------------------------------

    def start(self, call: Call, request: bytes) -> None:
        """Send a request; the reply goes to the call."""
        assert self._transport is not None
        self._forget_reply()
        self.call = call
        self._is_small = len(request) <= _SMALL_REQUEST
        call.connection = self
        self._started = monotonic()
        self._transport.write(request)

    def close_unless_fresh(self, now: float) -> bool:
        """Whether an idle connection may carry a call as far as it knows: it is open, and not idle for too long."""
        if self.closed or self._transport is None or self._transport.is_closing():
            return False
        if now - self.idle_since > self.keep_seconds:
            self.close()
            return False
        return True

    def break_off(self, kind: BrokenKind, message: str) -> None:
        """End the call that runs, if one does, and close the connection."""
        call, self.call = self.call, None
        self.close()
        if call is not None:
            self._keeper.end_soon(call, Broken(kind, message, sent=True))

    def close(self) -> None:
        """Close at once; what was written and not sent is dropped."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # -- what the transport tells ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Get ready to carry calls."""
        # uvloop's transports are none of asyncio's by class.
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        plain = transport.get_extra_info("socket")
        _notice_dead_peers(plain)
        self.number = plain.fileno()

    def data_received(self, data: bytes) -> None:
        """Read on in the reply."""
        if self.call is None:
            # Nothing was asked. Whatever this is, the next reply must not begin with it.
            self.close()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fault = (BrokenKind.GARBAGE, "The server wants to switch to a protocol nobody asked for.")
        except httptools.HttpParserError as error:
            self._reusable = False
            if not self._complete and self._fault is None:
                self._fault = (BrokenKind.GARBAGE, f"The server's reply is not valid HTTP: {error}")
        if self._received > MOST_HEAD_BYTES + (MOST_FRAMING_PER_BYTE + 1) * self._size:
            self._fault = (BrokenKind.GARBAGE, "The server's reply has far more headers or framing than content.")
        if self._fault is not None:
            self.break_off(*self._fault)
        elif self._complete:
            self._finish()

    def eof_received(self) -> None:
        """The server sends no more: the reply may end here."""
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._end(error)
        if self._transport is not None:
            # The parser holds our methods: without this only the garbage collector would free the two.
            del self._parser
        self._transport = None
        self._keeper.lose(self)

    def _end(self, error: Exception | None) -> None:
        if self.call is None:
            self.close()
        elif self._headers_complete and error is None and self._ends_with_connection():
            self._reusable = False
            self._finish()
        elif self._received:
            self.break_off(BrokenKind.CUT, "The server closed the connection in the middle of its reply.")
        else:
            self.break_off(BrokenKind.CLOSED, "The server closed the connection without a reply.")

    def _ends_with_connection(self) -> bool:
        return b"content-length" not in self._headers and b"transfer-encoding" not in self._headers

    # -- what the parser tells ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A reply begins; a second one was not asked for."""
        if self._complete:
            raise _UnaskedError

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line, or one trailer."""
        name = name.lower()
        if name in _KEPT_HEADERS and not self._headers_complete:
            before = self._headers.get(name)
            self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        """The head is whole: refuse a body that is announced as too large."""
        self._headers_complete = True
        length = self._headers.get(b"content-length")
        if length is not None and (len(length) > 18 or int(length) > self._most_bytes()):
            self._refuse_size()

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._size += len(part)
        if self._size > self._most_bytes():
            self._body.clear()
            self._refuse_size()
        else:
            self._body.append(part)

    def on_message_complete(self) -> None:
        """The reply is whole, or an interim one before it is (RFC 9110, section 15.2)."""
        if self._parser.get_status_code() < 200:
            self._headers_complete = False
            self._headers = {}
            return
        self._complete = True
        self._reusable = self._parser.should_keep_alive()

    def _refuse_size(self) -> None:
        self._fault = (BrokenKind.TOO_LARGE, f"The server's reply is larger than {self._most_bytes():,} bytes.")

    # -- the end of a reply ------------------------------------------------------------------------------------

    def _finish(self) -> None:
        call = self.call
        assert call is not None
        self.call = None
        reply = self._make_reply()
        if self._reusable and (self._is_small or self._is_written()):
            hint = self._headers.get(b"keep-alive")
            if hint is not None:
                self._heed_keep_alive(hint)
            # The connection is free before the caller hears of it, so that its next call can go out on it.
            self._keeper.keep(self)
        else:
            self.close()
        call.connection = None
        call.ended = True
        call.on_end(call, reply)

    def _is_written(self) -> bool:
        """Whether the request is out: a server may answer before it has read all of a large one."""
        assert self._transport is not None
        return self._transport.get_write_buffer_size() == 0

    def _heed_keep_alive(self, hint: bytes) -> None:
        """Stay a second below the time the server says it keeps an idle connection."""
        found = _KEEP_ALIVE.search(hint)
        if found is not None:
            self.keep_seconds = min(self.keep_seconds, max(0.0, int(found[1]) - 1.0))

    def _make_reply(self) -> Reply | Broken:
        headers = self._headers
        retry_after, content_type = headers.get(b"retry-after"), headers.get(b"content-type")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        encoding = headers.get(b"content-encoding")
        if encoding is not None and body:
            try:
                body = decode_body(body, encoding.decode("latin-1"), self._most_bytes())
            except TooLargeDecodedError:
                self._refuse_size()
            except UndecodableError as error:
                self._fault = (BrokenKind.GARBAGE, f"The body of the server's reply cannot be decoded: {error}.")
            if self._fault is not None:
                return Broken(*self._fault, sent=True)
        return Reply(
            status=self._parser.get_status_code(),
            body=body,
            retry_after=None if retry_after is None else retry_after.decode("latin-1"),
            content_type=None if content_type is None else content_type.decode("latin-1"),
            seconds=monotonic() - self._started,
        )


def _notice_dead_peers(plain: socket.socket) -> None:
    """Let the kernel ask a silent peer whether it still lives, so that a lost machine is noticed in two minutes."""
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        option = getattr(socket, name, None)
        if option is not None:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)
