"""What a process uses: connections, other open files, tasks, threads, memory."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from tests.faults.process import Process

MOST_TO_DATABASE = 18
"""Connections: 16 of a pool, the worker's own and the one that listens."""
MOST_TO_SERVER = 17
"""Connections that are kept for the next requests, as many as run at once, and one that asks for its models."""
MORE_FILES = 2
"""Open files beyond those of the beginning that are no connections to either: a caller's that has just gone."""
MORE_TASKS = 2
"""Tasks beyond those of the beginning: of a caller that has just gone, and of a look under way."""
MORE_THREADS = 8
"""Threads beyond those of the beginning: those that hash and unpack are started when they are first needed."""
MORE_MEMORY = 30
"""MiB beyond those of the beginning: of what requests and answers took, the allocator keeps some."""


@dataclass(frozen=True)
class Uses:
    """What a process uses at a moment; memory in MiB."""

    to_database: int
    to_server: int
    other_files: int
    tasks: int
    threads: int
    memory: int

    def __str__(self) -> str:
        return f"{self.to_database}+{self.to_server}+{self.other_files}/{self.tasks}/{self.threads}/{self.memory}"


async def used(process: Process) -> Uses:
    """Look at a process that runs; that takes it a turn of its loop."""
    tasks = await process.tasks()
    found = psutil.Process(process.pid)
    files = found.num_fds()
    ports = [connection.raddr.port for connection in found.net_connections("tcp") if connection.raddr]
    to_database = ports.count(process.wire.port)
    to_server = ports.count(urlsplit(process.upstream).port or 0)
    rest = files - to_database - to_server
    return Uses(to_database, to_server, rest, tasks, found.num_threads(), found.memory_info().rss // 2**20)


async def used_at_rest(process: Process) -> Uses:
    """Look until two looks see the same tasks."""
    found = await used(process)
    while (again := await used(process)).tasks != found.tasks:
        found = again
    return again


def too_much(now: Uses, before: Uses) -> bool:
    """Whether an idle process has more than it had when it had started, but for what it may keep."""
    return (
        now.to_database > MOST_TO_DATABASE
        or now.to_server > MOST_TO_SERVER
        or now.other_files > before.other_files + MORE_FILES
        or now.tasks > before.tasks + MORE_TASKS
        or now.threads > before.threads + MORE_THREADS
        or now.memory > before.memory + MORE_MEMORY
    )
