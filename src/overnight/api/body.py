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


async def read_json(request: Request, most: int) -> bytes:
    """Read a whole body of at most `most` bytes that says it is JSON; it is not parsed.

    Raises UnsupportedMediaType, TooLarge (without reading on) and Interrupted.
    """
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = _CHARSET.search(parameters)
    if kind.strip() != "application/json" or (charset and charset[1] not in ("utf-8", "utf8")):
        raise UnsupportedMediaType("Send the body as UTF-8 JSON, with the header Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Send the body as it is: a Content-Encoding is not understood here.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large(int(announced), most)
    body = bytearray()
    async for piece in pieces(request):
        body += piece
        if len(body) > most:
            raise _too_large(len(body), most)
    return bytes(body)


def _too_large(size: int, most: int) -> TooLarge:
    return TooLarge(f"The body may be {most:,} bytes long; {size:,} bytes came or were announced.")
