"""Finds, watches and kills the processes around an embedded server, and runs users of it in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from overnight.store.embedded import Embedded, ensure, is_running
from overnight.store.folder import Folder
from overnight.store.remains import read_pid_file
from overnight.store.runas import AsRoot

BINARIES = Path(os.environ["OVERNIGHT_TEST_POSTGRES"]) if "OVERNIGHT_TEST_POSTGRES" in os.environ else None
"""The programs that tests of the embedded server use, like those of all tests; found by themselves if None."""

SMALL = {"shared_buffers": "16MB", "max_connections": "20"}

USER = """
import asyncio, sys
from pathlib import Path
from typing import Any
from overnight.store.embedded import ensure

async def use():
    async with await ensure(Path(sys.argv[1]), settings=%r, as_root=sys.argv[2], grace=0.2) as server:
        print(server.dsn, flush=True)
        for line in sys.stdin:
            await server.revive()
            print(server.dsn, flush=True)

asyncio.run(use())
"""


class User:
    """A user of the server in a process of its own, that revives the server when told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.dsn = ""

    @classmethod
    async def start(cls, folder: Path, *command: str, as_root: AsRoot = "auto", **options: Any) -> User:
        """Start the process by a command of ours that runs Python; `options` are those of subprocess."""
        return cls(
            await asyncio.create_subprocess_exec(
                *(command or [sys.executable]),
                "-c",
                USER % SMALL,
                folder,
                as_root,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                **options,
            )
        )

    async def holds(self) -> User:
        """Wait until it holds a server that accepts connections."""
        assert self.process.stdout
        assert self.process.stderr
        self.dsn = (await self.process.stdout.readline()).decode().strip()
        if not self.dsn:
            raise AssertionError((await self.process.stderr.read()).decode())
        return self

    async def revive(self) -> User:
        """Have it revive the server."""
        assert self.process.stdin
        self.process.stdin.write(b"revive\n")
        return await self.holds()

    async def kill(self) -> None:
        """Kill it on the spot."""
        self.process.kill()
        await self.process.communicate()

    async def leave(self) -> None:
        """Let it release the server and end, which it does at the end of its input."""
        await self.process.communicate(b"")


async def start_server(folder: Path) -> Embedded:
    """Use the folder's server in this process."""
    return await ensure(folder, binaries=BINARIES, settings=SMALL, grace=0.2)


async def keep_rows(server: Embedded) -> None:
    """Commit a thousand rows."""
    await run(server, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")


async def count_rows(server: Embedded | str) -> object:
    """Return how many of them are there."""
    return await run(server, "SELECT count(*) FROM kept")


def keepers_of(folder: Path) -> list[int]:
    """Return the ids of the folder's living keepers."""
    wanted = f"-m overnight.store.keeper {folder}"
    return [pid for pid, command in _commands() if command.endswith(wanted)]


def _commands() -> Iterator[tuple[int, str]]:
    """Yield the id and the command line of all processes; a zombie has none."""
    if sys.platform == "linux":
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                yield int(path.parent.name), path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    else:
        listing = subprocess.run(["ps", "-wwaxo", "pid=,command="], capture_output=True, text=True, check=True)
        for line in listing.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command


def keeper_of(folder: Path) -> int:
    """Return the id of the folder's keeper."""
    (pid,) = keepers_of(folder)
    return pid


def postmaster_of(folder: Path) -> int:
    """Return the id of the server's main process, 0 if there is none."""
    lines = read_pid_file(Folder(folder))
    return int(lines[0]) if lines else 0


def kill(pid: int) -> None:
    """Kill a process on the spot: it has given back what it held when this returns, buried or not."""
    os.kill(pid, signal.SIGKILL)
    while _is_alive(pid):
        time.sleep(0.001)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until the condition holds; fail if it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def until_stopped(folder: Path) -> None:
    """Wait until neither a keeper nor any process of the server is left."""
    await until(lambda: not is_running(folder) and not keepers_of(folder))


async def run(server: Embedded | str, statement: str, *arguments: object) -> object:
    """Run one statement on a connection of its own and return the first value of its first row."""
    connection = await asyncpg.connect(server if isinstance(server, str) else server.dsn)
    try:
        return await connection.fetchval(statement, *arguments)
    finally:
        await connection.close()
