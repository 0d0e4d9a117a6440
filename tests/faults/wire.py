"""A wire between one process and PostgreSQL that can be cut, go silent, or break around a certain commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from tests.faults.spans import Spans

COMMIT = b"COMMIT;"
FENCE = b"overnight worker "
"""What a transaction of several statements by a worker begins with: it checks an input, or seals a batch."""


class State(StrEnum):
    """What the wire does with what comes along."""

    WHOLE = "whole"
    CUT = "cut"
    """Connections are broken, new ones too."""
    SILENT = "silent"
    """Nothing gets through and nobody is told; later it goes on as if nothing had been."""


class Wire:
    """Listens on a port of its own and passes everything on to the server's socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self.state = State.WHOLE
        self.port = 0
        self.troubles = Spans()
        """When it was not whole."""
        self.broke = asyncio.Event()
        """The commit that was waited for came by, and the connection was broken."""
        self._marked = b""
        self._after = False
        self._statements = 0
        self._strike: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Break everything."""
        if self._server is not None:
            self._server.close()
        self._abort_all()

    @property
    def connections(self) -> int:
        """Open connections of the process."""
        return len(self._writers) // 2

    def set(self, state: State) -> None:
        """Change what the wire does."""
        self.state = state
        if state is State.WHOLE:
            self.troubles.end()
        else:
            self.troubles.begin()
        if state is State.SILENT:
            self._passing.clear()
        else:
            self._passing.set()
        if state is State.CUT:
            self._abort_all()

    def break_at_commit(self, marked: str, *, after: bool) -> None:
        """Break the connection whose transaction mentions `marked` when it commits: before the server hears of it, or
        after the server did it and before its client hears of that."""
        self._marked, self._after = marked.encode(), after
        self.broke.clear()

    def strike(self, statements: int, strike: Callable[[], None]) -> None:
        """Do something as the process sends so many statements from now on that belong to checking or sealing a batch;
        0: never mind."""
        self._statements, self._strike = statements, strike

    def _abort_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.state is State.CUT:
            writer.transport.abort()
            return
        try:
            inner, outer = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, outer}
        watch = _Watch()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, outer, writer, watch, from_client=True))
                group.create_task(self._pass(inner, writer, outer, watch, from_client=False))
        except asyncio.CancelledError:
            # The loop ends; a task of asyncio's own server that says so would be told as an error.
            pass
        finally:
            self._writers -= {writer, outer}
            writer.transport.abort()
            outer.transport.abort()

    async def _pass(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        watch: _Watch,
        *,
        from_client: bool,
    ) -> None:
        try:
            while data := await source.read(2**16):
                await self._passing.wait()
                if from_client and self._statements:
                    self._count(data, watch)
                if self._marked and self._breaks(data, watch, from_client):
                    break
                sink.write(data)
                await sink.drain()
        except (ConnectionError, OSError):
            pass
        # Either end that closes closes the other.
        sink.transport.abort() if watch.broken else sink.close()
        if watch.broken:
            back.transport.abort()

    def _count(self, data: bytes, watch: _Watch) -> None:
        watch.fenced |= FENCE in data
        if watch.fenced:
            watch.fenced = COMMIT not in data
            self._statements -= 1
            if not self._statements:
                self._strike()

    def _breaks(self, data: bytes, watch: _Watch, from_client: bool) -> bool:
        if not from_client:
            watch.broken = watch.committing
        else:
            watch.marked |= self._marked in data
            is_commit = watch.marked and COMMIT in data
            watch.committing = is_commit and self._after
            watch.broken = is_commit and not self._after
        if watch.broken:
            self._marked = b""
            self.troubles.note()
            self.broke.set()
        return watch.broken


class _Watch:
    """What was seen on one connection."""

    def __init__(self) -> None:
        self.marked = False
        self.fenced = False
        self.committing = False
        self.broken = False
