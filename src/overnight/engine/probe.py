"""Asks an engine on loopback for a page, without a client that could wait or retry."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

LARGEST_PAGE = 4 << 20


async def health_of(base_url: str, within: float) -> int | None:
    """The status that the server gives for its health, 200 when it is well; None without one in so many seconds."""
    answer = await _get(base_url, "/health", None, within)
    return answer[0] if answer is not None else None


async def get_page(base_url: str, path: str, api_key: str | None, within: float) -> str | None:
    """The text at a path; None when it is not a 200, or not there within so many seconds."""
    answer = await _get(base_url, path, api_key, within)
    return answer[1] if answer is not None and answer[0] == 200 else None


async def _get(base_url: str, path: str, api_key: str | None, within: float) -> tuple[int, str] | None:
    address = urlsplit(base_url)
    key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {address.netloc}\r\n{key}\r\n".encode())
                _, status, *_ = (await reader.readline()).split(b" ")
                return int(status), await _body(reader)
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError):
        return None


async def _body(reader: asyncio.StreamReader) -> str:
    """What follows the headers, up to the length that they name or the end. ValueError for what is too long."""
    length = LARGEST_PAGE
    while (line := await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    read = bytearray()
    while len(read) < length and (chunk := await reader.read(1 << 16)):
        read += chunk
        if len(read) > LARGEST_PAGE:
            raise ValueError("the page is too long")
    return read.decode("utf-8", "replace")
