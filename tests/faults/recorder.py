"""The model server of the fault runs: the witness of what was really sent, by whom, when and with which outcome.

It does as it is commanded: takes its time, fails, answers garbage, goes down and comes up again.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import select
import time
from collections import Counter, defaultdict
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
    BROKEN = "broken"
    """Its connection was broken from this side before the reply, as the server went down."""


class Mood(StrEnum):
    """What the server does with the requests it has."""

    WELL = "well"
    FAILING = "failing"
    """Half of them get a 500 or a 503."""
    GARBAGE = "garbage"
    """Some get what is no HTTP, is cut off, or is no JSON."""


@dataclass(slots=True, eq=False)
class Send:
    """One arrival of a request. Moments are seconds of the wall clock, which the database shares."""

    name: str
    process: str
    pid: int
    at: float
    ended: float = 0.0
    outcome: Outcome = Outcome.OPEN
    status: int | None = None
    """Of the reply; None where there was none that could be read as HTTP."""


class Recorder:
    """Serves HTTP/1.1 with kept connections. The first part of a path names the process that calls.

    A request is open from its arrival until its reply is written or its connection is gone, whoever closed it: what a
    killed process had sent is worked on for as long as the kernel keeps its connections.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pace = (0.02, 0.2)
        """Seconds that a reply takes, at least and at most."""
        self.mood = Mood.WELL
        self.once: set[str] = set()
        """Names that fail when they arrive first."""
        self.refused: set[str] = set()
        """Names that are always answered with a 400."""
        self.later: set[str] = set()
        """Names that take up to a second more."""
        self.deadly: dict[str, Callable[[str], None]] = {}
        """Names whose arrival calls this with the process that sent them; they get no reply."""
        self.pids: dict[str, int] = {}
        self.sends: dict[str, list[Send]] = defaultdict(list)
        self.downs: list[tuple[float, float]] = []
        """From when to when it could not be reached."""
        self.arrived = 0
        self.cap: int | None = None
        """How many requests may be open at once, over all processes."""
        self.most_open = 0
        self.over_cap: list[tuple[float, str]] = []
        """When more of them were open, and whose."""
        self._working: dict[Send, asyncio.StreamWriter] = {}
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
            for send in list(self._working):
                self._end(send, Outcome.BROKEN)
            for writer in list(self._open):
                writer.transport.abort()

    def was_down(self, since: float, until: float) -> bool:
        """Whether it could not be reached at some moment of these."""
        return any(down <= until and up >= since for down, up in self.downs)

    async def until_arrived(self, count: int) -> None:
        """Wait until so many requests have arrived since it was made."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.arrived >= count)

    def of(self, names: Iterable[str]) -> list[Send]:
        """All arrivals of these names."""
        return [send for name in names for send in self.sends.get(name, [])]

    def beside(self, send: Send) -> list[Send]:
        """Other requests of the same process that were open when this one arrived."""
        of_process = (o for sends in self.sends.values() for o in sends if o.pid == send.pid and o is not send)
        return [other for other in of_process if other.at <= send.at < (other.ended or float("inf"))]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        # Who is killed may be started again before all that it has sent is read.
        pids = dict(self.pids)
        try:
            while await self._answer_one(reader, writer, pids):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # Cancelled as the loop ends; a task of asyncio's own server that says so would be told as an error.
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pids: dict[str, int]
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        if method == "GET":
            return await _write(writer, 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        process = path.split("/")[1]
        name = str(json.loads(body)["messages"][-1]["content"])
        send = Send(name, process, pids.get(process, 0), time.time())
        self.sends[name].append(send)
        self._working[send] = writer
        self._count(send)
        async with self._changed:
            self.arrived += 1
            self._changed.notify_all()
        try:
            return self.is_up and await self._reply(send, reader, writer)
        finally:
            self._end(send, Outcome.GONE if self.is_up else Outcome.BROKEN)

    def _count(self, send: Send) -> None:
        """See how many are open. Whoever has left may not have been noticed yet: then the kernel knows."""
        count = len(self._working)
        if self.cap is not None and count > self.cap:
            there = [other for other, writer in self._working.items() if not _has_left(writer)]
            count = len(there)
            if count > self.cap:
                whose = ", ".join(f"{name} {n}" for name, n in Counter(s.process for s in there).items())
                self.over_cap.append((send.at, f"{count} requests were open at once ({whose}), {self.cap} may be"))
        self.most_open = max(self.most_open, count)

    def _end(self, send: Send, outcome: Outcome, status: int | None = None) -> bool:
        """It is open no more, for the first reason; says whether this one is."""
        if send.outcome is not Outcome.OPEN:
            return False
        send.outcome, send.status, send.ended = outcome, status, time.time()
        del self._working[send]
        return True

    async def _reply(self, send: Send, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if send.name in self.deadly:
            self.deadly[send.name](send.process)
            return False
        more = self.chance.uniform(0.3, 1.0) if send.name in self.later else 0.0
        if not await _stays(reader, self.chance.uniform(*self.pace) + more) or _has_left(writer):
            return False
        number = len(self.sends[send.name])
        if send.name in self.once and number == 1:
            return await self._fail(send, writer, 500)
        if send.name in self.refused:
            return self._end(send, Outcome.REFUSED, 400) and await _write(writer, 400, _error("This one is refused."))
        if self.mood is Mood.FAILING and self.chance.random() < 0.5:
            return await self._fail(send, writer, self.chance.choice([500, 503, 429]))
        if self.mood is Mood.GARBAGE and self.chance.random() < 0.3:
            return await self._babble(send, writer)
        text = f"{send.name} for {send.process}"
        return self._end(send, Outcome.ANSWERED, 200) and await _write(writer, 200, _completion(text))

    async def _fail(self, send: Send, writer: asyncio.StreamWriter, status: int) -> bool:
        return self._end(send, Outcome.FAILED, status) and await _write(writer, status, _error("Not now."))

    async def _babble(self, send: Send, writer: asyncio.StreamWriter) -> bool:
        kind = self.chance.randrange(4)
        # What is no valid JSON would be no better another time, and is an answer; what broke is tried again.
        said = (Outcome.REFUSED, 200) if kind < 2 else (Outcome.FAILED, None)
        if not self._end(send, *said):
            return False
        if kind == 0:
            return await _write(writer, 200, b'{"id": "x", "choices": [')
        if kind == 1:
            return await _write(writer, 200, b'{"id": "caf\xe9", "choices": []}')
        garbage = [b"\0\1 this is no HTTP\r\n\r\n", b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"id":']
        writer.write(garbage[kind - 2])
        await writer.drain()
        return False


async def _stays(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Work for so long; False as soon as the caller goes away, as a server that notices would stop."""
    leaving = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait([leaving], timeout=seconds)
        return not leaving.done()
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


def _has_left(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end of a connection is closed, which the loop may not have got round to yet."""
    if writer.transport.is_closing():
        return True
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


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
