"""A bare relay: hands bytes on from callers to a server and back, and knows nothing of what they are.

Whatever stands in the way of a call as a process of its own costs at least this much. `python -m benchmarks.relay PORT`
says where it listens, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import TracebackType
from typing import Self, cast

import uvloop


class Relay:
    """A running relay to a port of this machine; use it as a context manager."""

    def __init__(self, server: int) -> None:
        self._command = [sys.executable, "-m", "benchmarks.relay", str(server)]
        self.port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()


class _End(asyncio.Protocol):
    """One end of a call's way; what it reads goes out at the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        else:
            self.early.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Caller(_End):
    def __init__(self, server: int, opening: set[asyncio.Task[None]]) -> None:
        super().__init__()
        self._server = server
        self._opening = opening

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.create_task(self._open())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        _, other = await asyncio.get_running_loop().create_connection(_End, "127.0.0.1", self._server)
        self.other, other.other = other, self
        for data in self.early:
            self.data_received(data)


async def relay(server: int) -> None:
    """Relay until standard input ends."""
    opening: set[asyncio.Task[None]] = set()
    listening = await asyncio.get_running_loop().create_server(lambda: _Caller(server, opening), "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(relay(int(sys.argv[1])))
