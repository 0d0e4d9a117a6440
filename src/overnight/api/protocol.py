"""HTTP as the server speaks it: uvicorn's, with malformed calls answered in the API's shape and heads bounded."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from functools import lru_cache
from time import time as now
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from overnight.api import errors
from overnight.api.middleware import BODY_IS_WHOLE
from overnight.domain import ids
from overnight.domain.errors import BadRequest

LONGEST_HEAD = 64 * 1024
"""Of the request line and the headers that come after the first read; the parser itself keeps any number."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    _in_head = False
    _head = 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self.server_state.default_headers = _dated(int(now()))
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not None and self.cycle is not before:
            self.cycle.transport = cast("asyncio.Transport", Joined(self.cycle.transport))

    def on_message_complete(self) -> None:
        self.scope["state"][BODY_IS_WHOLE] = True
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and give up on a head that does not end."""
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head and not self.transport.is_closing():
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self.send_400_response("The head of the request is too long.")

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or too much of it, and close: where the next call begins cannot be known."""
        request_id = ids.new_text(ids.REQUEST, int(now() * 1_000))
        shown = errors.show(BadRequest(f"{msg} Check the address and the headers that were sent."))
        head = (
            "HTTP/1.1 400 Bad Request\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(shown.body)}\r\n"
            f"x-request-id: {request_id}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + shown.body)
        self.transport.close()


class Joined:
    """What one answer is written to: its head goes out with the first piece of its body, where both come in one turn.

    Written by itself it would wake the caller, who can do nothing with it, and cost as much as the piece.
    """

    __slots__ = ("_held", "_transport", "_was_held")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held = b""
        self._was_held = False

    def write(self, data: bytes) -> None:
        """Write at once, but for what is written first: that waits for the second, and no longer than this turn."""
        if not self._was_held:
            self._was_held = True
            self._held = data
            asyncio.get_running_loop().call_soon(self._let_go)
            return
        held, self._held = self._held, b""
        self._transport.write(held + data if held else data)

    def is_closing(self) -> bool:
        """Whether nothing written goes out any more."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close once all that was written is out."""
        self._let_go()
        self._transport.close()

    def _let_go(self) -> None:
        if self._held and not self._transport.is_closing():
            self.write(b"")


@lru_cache(1)
def _dated(second: int) -> list[tuple[bytes, bytes]]:
    """The headers that every answer has, for a second of Unix time (RFC 9110, section 6.6.1)."""
    return [(b"date", formatdate(second, usegmt=True).encode("ascii"))]
