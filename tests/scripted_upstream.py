"""A model server at the far edge of the tests: it answers as it is told to, and counts."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """One request as it arrived. `name` is what its prompt says, `time` counts its arrivals from 1."""

    path: str
    body: dict[str, Any]
    name: str
    time: int


@dataclass
class Say:
    """What to answer. `raw` replaces everything and closes the connection."""

    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


Script = Callable[[Asked], Awaitable[Say]]


def completion(text: str) -> bytes:
    """The body of a good answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return json.dumps({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def failure(code: str, message: str = "no") -> bytes:
    """The body of an error."""
    return json.dumps({"error": {"message": message, "type": "server_error", "code": code}}).encode()


async def echo(asked: Asked) -> Say:
    """Answer every request well and at once."""
    return Say(body=completion(f"hello {asked.name}"))


class Upstream:
    """Serves HTTP/1.1 with kept connections; `script` decides what every POST is answered."""

    def __init__(self) -> None:
        self.script: Script = echo
        self.models: Say = Say(body=b'{"object":"list","data":[{"id":"m","object":"model"}]}')
        self.pages: dict[str, Say] = {}
        """What a GET of another path than that of the models is answered."""
        self.got: list[str] = []
        self.keys: dict[str, str | None] = {}
        """What was sent as authorization with the last GET of a path."""
        self.arrivals: Counter[str] = Counter()
        self.asked: list[Asked] = []
        self.beside: dict[str, int] = {}
        """How many others were in flight when a request arrived last."""
        self.in_flight = 0
        self.most_in_flight = 0
        self.changed = asyncio.Condition()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        """Listen, on the port of before where there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and break all connections."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        await self._server.wait_closed()

    async def until_in_flight(self, count: int) -> None:
        """Wait until so many requests are in flight."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.in_flight >= count)

    async def settled(self) -> None:
        """Wait until a request comes or goes, or a moment has passed."""
        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait(), 0.05)
            except TimeoutError:
                return

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.in_flight += change
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        lengths = [line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(lengths[0]) if lengths else 0)
        if method == "GET":
            self.got.append(path)
            given = [
                line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("authorization:")
            ]
            self.keys[path] = given[0] if given else None
            say = self.pages.get(path, self.models if path.endswith("/models") else Say(404))
        else:
            say = await self._ask(path, json.loads(body))
        if say.raw is not None:
            writer.write(say.raw)
            await writer.drain()
            return False
        sent = say.body or b"{}"
        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent)), **say.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {say.status} OK\r\n{lines}\r\n".encode() + sent)
        await writer.drain()
        return True

    async def _ask(self, path: str, body: dict[str, Any]) -> Say:
        name = str(body["messages"][-1]["content"])
        self.arrivals[name] += 1
        asked = Asked(path, body, name, self.arrivals[name])
        self.asked.append(asked)
        self.beside[name] = self.in_flight
        await self._count(1)
        try:
            return await self.script(asked)
        finally:
            await self._count(-1)


@asynccontextmanager
async def serving() -> AsyncIterator[Upstream]:
    """An upstream that serves while the block runs."""
    upstream = Upstream()
    await upstream.start()
    try:
        yield upstream
    finally:
        await upstream.stop()


class Gate:
    """A script that lets requests wait until it is opened."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, asked: Asked) -> Say:
        await self._open.wait()
        return await echo(asked)


class Turnstile:
    """A script that answers so many requests, by another script, and lets the others wait."""

    def __init__(self, script: Script = echo) -> None:
        self._passes = asyncio.Semaphore(0)
        self._script = script

    def let_pass(self, count: int) -> None:
        """Answer so many more."""
        for _ in range(count):
            self._passes.release()

    async def __call__(self, asked: Asked) -> Say:
        await self._passes.acquire()
        return await self._script(asked)
