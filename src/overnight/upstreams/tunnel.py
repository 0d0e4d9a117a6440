"""The moment before encryption in which a proxy is asked for a way through to the server."""

from __future__ import annotations

import asyncio
import re
from typing import cast

from overnight.upstreams.address import Address

_MOST_BYTES = 16_384
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r)")


class NoTunnelError(Exception):
    """The proxy did not open a way to the server."""


class Tunnel(asyncio.Protocol):
    """Asks for CONNECT; `opened` is done once the bytes that follow belong to the server."""

    def __init__(self, to: Address, authorization: str | None) -> None:
        host = f"[{to.host}]" if ":" in to.host else to.host
        lines = [f"CONNECT {host}:{to.port} HTTP/1.1", f"Host: {host}:{to.port}"]
        if authorization is not None:
            lines.append(f"Proxy-Authorization: {authorization}")
        self._request = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
        self._read = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        # uvloop's transports are none of asyncio's by class.
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Read the proxy's answer."""
        self._read += data
        head, end, rest = self._read.partition(b"\r\n\r\n")
        if not end and len(head) <= _MOST_BYTES:
            return
        status = _STATUS.match(head)
        if not end or status is None or rest:
            self._refuse("The proxy's answer to CONNECT is not valid HTTP.")
        elif not status[1].startswith(b"2"):
            self._refuse(f"The proxy would not connect to the server: it answered {int(status[1])}.")
        elif not self.opened.done():
            self.opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """The proxy went away."""
        self._refuse("The proxy closed the connection instead of connecting to the server.")

    def _refuse(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(NoTunnelError(reason))
            # Nobody may be waiting any more, and that is no news.
            self.opened.exception()
