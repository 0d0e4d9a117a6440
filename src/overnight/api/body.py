"""The body of a call, counted while it arrives."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from overnight.api.deps import Request
from overnight.domain.errors import Interrupted, TooLarge, UnsupportedMediaType

_CHARSET = re.compile(r"""charset\s*=\s*"?([^\s";]*)""")


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes, in pieces that are not empty. Raises Interrupted where the caller goes away."""
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise Interrupted("The connection ended before the whole body had come.")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


def announced(request: Request) -> int | None:
    """The Content-Length, if there is one."""
    given = request.headers.get("content-length", "")
    return int(given) if given.isdecimal() else None


def refuse_encoded(request: Request) -> None:
    """Raise UnsupportedMediaType for a body that is compressed."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Send the body as it is: a Content-Encoding is not understood here.")


async def read_json(request: Request, most: int) -> bytes:
    """Read a whole body of at most `most` bytes that says it is JSON; it is not parsed.

    Raises UnsupportedMediaType, TooLarge (without reading on) and Interrupted.
    """
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = _CHARSET.search(parameters)
    if kind.strip() != "application/json" or (charset and charset[1] not in ("utf-8", "utf8")):
        raise UnsupportedMediaType("Send the body as UTF-8 JSON, with the header Content-Type: application/json.")
    refuse_encoded(request)
    size = announced(request)
    if size is not None and size > most:
        raise _too_large(size, most)
    body = bytearray()
    async for piece in pieces(request):
        body += piece
        if len(body) > most:
            raise _too_large(len(body), most)
    return bytes(body)


def _too_large(size: int, most: int) -> TooLarge:
    return TooLarge(f"The body may be {most:,} bytes long; {size:,} bytes came or were announced.")
