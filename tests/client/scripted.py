"""A server on a loopback port that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """Answers each request with the next of its replies, whole responses as bytes; then it closes the connection."""

    replies: list[bytes]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            method, path, _ = first.split(" ")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(Asked(method, path, headers, body))
            # Asked too often, it says nothing; the test sees the failed connection and the extra request.
            writer.write(self.replies.pop(0) if self.replies else b"")
            await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*replies: bytes) -> AsyncIterator[Scripted]:
    """Run such a server while the block runs; at its end every reply must have been fetched."""
    script = Scripted(list(replies))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    script.url = f"http://{host}:{port}"
    try:
        yield script
        assert script.replies == [], "not everything that was to be said was asked for"
        assert len(script.asked) == len(replies), "more was asked for than was to be said"
    finally:
        server.close()
        await server.wait_closed()


def reply(
    status: int,
    body: bytes | dict[str, Any] = b"",
    headers: Iterable[tuple[str, str]] = (),
    *,
    length: int | None = None,
) -> bytes:
    """A response; `length` promises another number of bytes than come."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in headers] + ["connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


def refusal(status: int, code: str, message: str = "No.", **headers: str) -> bytes:
    """An error as the API shapes it."""
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return reply(status, {"error": error}, [("x-request-id", "req_1"), *named])
