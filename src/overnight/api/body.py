"""The body of a call, counted while it arrives."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from overnight.domain.errors import Interrupted, TooLarge, UnsupportedMediaType

_CHARSET = re.compile(r"""charset\s*=\s*"?([^\s";]*)""")


class Arriving(Protocol):
    """A call of which the head is there: one of the framework's, or as the HTTP server hands it over."""

    @property
    def scope(self) -> Mapping[str, Any]:
        """What ASGI says of it."""

    @property
    def receive(self) -> Callable[[], Awaitable[Any]]:
        """Hands over the next piece of its body."""


async def pieces(request: Arriving) -> AsyncIterator[bytes]:
    """Yield the body as it comes, in pieces that are not empty. Raises Interrupted where the caller goes away."""
    has_more = True
    while has_more:
        piece, has_more = await _next(request)
        if piece:
            yield piece


def announced(request: Arriving) -> int | None:
    """The Content-Length, if there is one."""
    given = _header(request, b"content-length")
    return int(given) if given.isdecimal() else None


def refuse_encoded(request: Arriving) -> None:
    """Raise UnsupportedMediaType for a body that is compressed."""
    if _header(request, b"content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Send the body as it is: a Content-Encoding is not understood here.")


async def read_json(request: Arriving, most: int) -> bytes:
    """Read a whole body of at most `most` bytes that says it is JSON; it is not parsed.

    Raises UnsupportedMediaType, TooLarge (without reading on) and Interrupted.
    """
    kind, _, parameters = _header(request, b"content-type").lower().partition(";")
    charset = _CHARSET.search(parameters)
    if kind.strip() != "application/json" or (charset and charset[1] not in ("utf-8", "utf8")):
        raise UnsupportedMediaType("Send the body as UTF-8 JSON, with the header Content-Type: application/json.")
    refuse_encoded(request)
    size = announced(request)
    if size is not None and size > most:
        raise _too_large(size, most)
    piece, has_more = await _next(request)
    if len(piece) <= most and not has_more:
        return piece
    body = bytearray(piece)
    while has_more and len(body) <= most:
        piece, has_more = await _next(request)
        body += piece
    if len(body) > most:
        raise _too_large(len(body), most)
    return bytes(body)


async def _next(request: Arriving) -> tuple[bytes, bool]:
    """The next piece, and whether more comes after it."""
    message = await request.receive()
    if message["type"] != "http.request":
        raise Interrupted("The connection ended before the whole body had come.")
    return message.get("body", b""), message.get("more_body", False)


def _header(request: Arriving, name: bytes, default: str = "") -> str:
    """The first header of that name, which is in lower case."""
    for given, value in request.scope["headers"]:
        if given == name:
            return str(value, "latin-1")
    return default


def _too_large(size: int, most: int) -> TooLarge:
    return TooLarge(f"The body may be {most:,} bytes long; {size:,} bytes came or were announced.")
