"""The model server of the fault runs: the witness of what was really sent, by whom, when and with which outcome.

It does as it is commanded: takes its time, fails, answers garbage, goes down and comes up again.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

MODEL = "test-model"


class Outcome(StrEnum):
    """What became of a request that arrived."""

    OPEN = "open"
    """It is being worked on."""
    ANSWERED = "answered"
    """A whole good reply was written."""
    REFUSED = "refused"
    """A whole reply that no other try would change was written."""
    FAILED = "failed"
    """It was told to fail in a way that may pass."""
    GONE = "gone"
    """The caller closed its connection before the reply."""


class Mood(StrEnum):
    """What the server does with the requests it has."""

    WELL = "well"
    FAILING = "failing"
    """Half of them get a 500 or a 503."""
    GARBAGE = "garbage"
    """Some get what is no HTTP, is cut off, or is no JSON."""


@dataclass(slots=True)
class Send:
    """One arrival of a request. Moments are seconds of the wall clock, which the database shares."""

    name: str
    process: str
    pid: int
    at: float
    ended: float = 0.0
    outcome: Outcome = Outcome.OPEN


class Recorder:
    """Serves HTTP/1.1 with kept connections. The first part of a path names the process that calls."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pace = (0.02, 0.2)
        """Seconds that a reply takes, at least and at most."""
        self.mood = Mood.WELL
        self.once: set[str] = set()
        """Names that fail when they arrive first."""
        self.refused: set[str] = set()
        """Names that are always answered with a 400."""
        self.deadly: dict[str, Callable[[str], None]] = {}
        """Names whose arrival calls this with the process that sent them; they get no reply."""
        self.pids: dict[str, int] = {}
        self.sends: dict[str, list[Send]] = defaultdict(list)
        self.downs: list[tuple[float, float]] = []
        """From when to when it could not be reached."""
        self.arrived = 0
        self._changed = asyncio.Condition()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._down_at = 0.0

    def url(self, process: str) -> str:
        """The base URL for one process."""
        return f"http://127.0.0.1:{self._port}/{process}/v1"

    @property
    def is_up(self) -> bool:
        return self._server is not None

    async def up(self) -> None:
        """Listen, on the port of before where there was one."""
        if self._server is None:
            self._server = await asyncio.start_server(self._talk, "127.0.0.1", self._port, limit=2**20)
            self._port = self._server.sockets[0].getsockname()[1]
            if self._down_at:
                self.downs.append((self._down_at, time.time()))

    async def down(self) -> None:
        """Listen no more and break all connections."""
        server, self._server = self._server, None
        if server is not None:
            self._down_at = time.time()
            server.close()
            for writer in list(self._open):
                writer.transport.abort()

    async def until_arrived(self, count: int) -> None:
        """Wait until so many requests have arrived since it was made."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.arrived >= count)

    def of(self, names: Iterable[str]) -> list[Send]:
        """All arrivals of these names."""
        return [send for name in names for send in self.sends.get(name, [])]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while await self._answer_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # Cancelled as the loop ends; a task of asyncio's own server that says so would be told as an error.
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        if method == "GET":
            return await _write(writer, 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        process = path.split("/")[1]
        name = str(json.loads(body)["messages"][-1]["content"])
        send = Send(name, process, self.pids.get(process, 0), time.time())
        self.sends[name].append(send)
        async with self._changed:
            self.arrived += 1
            self._changed.notify_all()
        try:
            return await self._reply(send, reader, writer)
        finally:
            send.ended = time.time()
            if send.outcome is Outcome.OPEN:
                send.outcome = Outcome.GONE

    async def _reply(self, send: Send, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if send.name in self.deadly:
            self.deadly[send.name](send.process)
            return False
        await asyncio.sleep(self.chance.uniform(*self.pace))
        if reader.at_eof() or writer.transport.is_closing():
            return False
        number = len(self.sends[send.name])
        if send.name in self.once and number == 1:
            return await self._fail(send, writer, 500)
        if send.name in self.refused:
            send.outcome = Outcome.REFUSED
            return await _write(writer, 400, _error("This one is refused."))
        if self.mood is Mood.FAILING and self.chance.random() < 0.5:
            return await self._fail(send, writer, self.chance.choice([500, 503, 429]))
        if self.mood is Mood.GARBAGE and self.chance.random() < 0.3:
            return await self._babble(send, writer)
        send.outcome = Outcome.ANSWERED
        return await _write(writer, 200, _completion(f"{send.name} for {send.process}"))

    async def _fail(self, send: Send, writer: asyncio.StreamWriter, status: int) -> bool:
        send.outcome = Outcome.FAILED
        return await _write(writer, status, _error("Not now."))

    async def _babble(self, send: Send, writer: asyncio.StreamWriter) -> bool:
        kind = self.chance.randrange(4)
        # What is no valid JSON would be no better another time, and is an answer; what broke is tried again.
        send.outcome = Outcome.REFUSED if kind < 2 else Outcome.FAILED
        if kind == 0:
            return await _write(writer, 200, b'{"id": "x", "choices": [')
        if kind == 1:
            return await _write(writer, 200, b'{"id": "caf\xe9", "choices": []}')
        garbage = [b"\0\1 this is no HTTP\r\n\r\n", b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"id":']
        writer.write(garbage[kind - 2])
        await writer.drain()
        return False


def _error(message: str) -> dict[str, object]:
    return {"error": {"message": message, "type": "test", "code": None}}


def _completion(text: str) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return {"id": "c", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}


async def _write(writer: asyncio.StreamWriter, status: int, body: dict[str, object] | bytes) -> bool:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()
    return True
