"""HTTP as the server speaks it: uvicorn's, with malformed calls answered in the API's shape and heads bounded."""

from __future__ import annotations

from email.utils import formatdate
from functools import lru_cache
from time import time as now

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
        super().on_headers_complete()

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
        request_id = ids.show(ids.REQUEST, ids.new(int(now() * 1_000)))
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


@lru_cache(1)
def _dated(second: int) -> list[tuple[bytes, bytes]]:
    """The headers that every answer has, for a second of Unix time (RFC 9110, section 6.6.1)."""
    return [(b"date", formatdate(second, usegmt=True).encode("ascii"))]
