"""The bytes of a request's head, made once for each path."""

from __future__ import annotations

import re

from overnight import __version__
from overnight.upstreams.address import Address
from overnight.upstreams.call import Endpoint
from overnight.upstreams.proxy import Proxy

# HEAD is missing because its reply has a length and no body, which the reader of replies does not know about.
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_PATH = re.compile(r"/[!$-~]*\Z")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(r"[!-~]([ !-~]*[!-~])?\Z")
_OURS = frozenset(
    {"accept-encoding", "authorization", "connection", "content-length", "expect", "host", "keep-alive"}
    | {"proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
)


class Heads:
    """Request heads for one endpoint.

    `of` gives the bytes up to the value of Content-Length, which is last: what follows is the length, an empty line
    and the body.
    """

    def __init__(self, endpoint: Endpoint, address: Address, proxy: Proxy | None) -> None:
        forwarded = proxy is not None and not address.secure
        self._front = f"http://{address.authority}{address.prefix}" if forwarded else address.prefix
        lines = [
            f"Host: {address.authority}",
            f"User-Agent: overnight/{__version__}",
            "Accept: application/json",
            "Accept-Encoding: identity",
        ]
        if endpoint.api_key is not None:
            lines.append(f"Authorization: Bearer {endpoint.api_key}")
        if forwarded and proxy is not None and proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        self._common = lines

    def of(self, method: str, path: str, headers: tuple[tuple[str, str], ...]) -> bytes:
        """The head of a request. ValueError when a part could not stand in a request as it is."""
        if method not in _METHODS:
            raise ValueError(f"The method {method!r} is not one that can be sent.")
        if not _PATH.match(path):
            raise ValueError("The path of a call must start with a slash and hold visible ASCII characters only.")
        lines = [f"{method} {self._front}{path} HTTP/1.1", *self._common]
        for name, value in headers:
            if not _NAME.match(name) or name.lower() in _OURS:
                raise ValueError(f"The header {name!r} cannot be added to a call.")
            if not _VALUE.match(value):
                raise ValueError(f"The value of the header {name!r} may hold visible ASCII characters only.")
            lines.append(f"{name}: {value}")
        if not any(name.lower() == "content-type" for name, _ in headers):
            lines.append("Content-Type: application/json")
        return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("ascii")
