"""A server that says exactly the bytes a test tells it to."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from types import TracebackType

CHAT = b'{"choices":[{"message":{"content":"yes"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came over the wire."""

    line: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """One connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> Request:
        """The next request, whole. IncompleteReadError when the client goes away instead."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = dict(entry.lower().split(": ", 1) for entry in rest)
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Request(line, headers, body)

    async def read_head(self) -> None:
        """The head of the next request; its body stays unread."""
        await self._reader.readuntil(b"\r\n\r\n")

    async def read_some(self) -> bytes:
        """What came, nothing at the end."""
        return await self._reader.read(65536)

    async def say(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, body: bytes = CHAT, status: str = "200 OK", headers: str = "") -> None:
        """Send a reply of known length. `headers` end with a line end each."""
        await self.say(f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def see_goodbye(self) -> bytes:
        """Wait until the client closes; what it sent before that."""
        try:
            return await self._reader.read(-1)
        except ConnectionResetError:
            return b""

    def hang_up(self) -> None:
        """Close."""
        self._writer.close()

    def reset(self) -> None:
        """Close with a reset, as a process does that dies with unread data."""
        plain = self._writer.get_extra_info("socket")
        plain.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """Plays a script on every connection, then closes it. Use as an async context manager.

    What a script raises, an assertion say, is raised when the server ends; a client that goes away is no error.
    """

    def __init__(self, script: Script, trust: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._trust = trust
        self._failures: list[BaseException] = []
        self._peers: set[asyncio.Task[None]] = set()
        self.accepted = 0
        """How many connections there were."""
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL."""
        return f"{'https' if self._trust else 'http'}://localhost:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._peers.add(task)
        try:
            await self._script(Peer(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            # The test is over; asyncio's own done-callback would log this as a fault.
            pass
        except AssertionError as error:
            self._failures.append(error)
        finally:
            writer.close()
            self._peers.discard(task)

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._trust)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        peers = list(self._peers)
        for task in peers:
            task.cancel()
        await asyncio.gather(*peers, return_exceptions=True)
        if self._failures and error is None:
            raise self._failures[0]


def always(body: bytes = CHAT, status: str = "200 OK", headers: str = "") -> Script:
    """A script that answers every request alike."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            await peer.answer(body, status, headers)

    return script


def saying(data: bytes) -> Script:
    """A script that reads one request, says these bytes and closes."""

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(data)

    return script
