"""Keeps what an engine's process says on its standard error: the last lines, and a file of bounded size."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

LONGEST_LINE = 4_096
LAST_LINES = 500
"""vLLM writes over a hundred lines of tracebacks after the one that tells why it cannot start."""
LARGEST_FILE = 1 << 20


class EngineLog:
    """The log of one engine over all lives of its process. Without a path only the last lines are kept."""

    def __init__(self, path: Path | None, largest: int = LARGEST_FILE) -> None:
        self.path = path
        self.largest = largest
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        """The last lines of the current life of the process."""

    async def follow(self, source: asyncio.StreamReader, keep: Callable[[str], bool]) -> None:
        """Read `source`, one life of the process, to its end, and keep the lines that `keep` lets through."""
        self.last.clear()
        rest = b""
        while chunk := await source.read(LONGEST_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line, keep)
            if len(rest) > LONGEST_LINE:
                self._take(rest, keep)
                rest = b""
        if rest:
            self._take(rest, keep)

    def _take(self, line: bytes, keep: Callable[[str], bool]) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")[:LONGEST_LINE]
        if text.strip() and keep(text):
            self.last.append(text)
            self._write(text)

    def _write(self, text: str) -> None:
        """Append to the file; beyond its limit it becomes `….1` and a new one begins."""
        if self.path is None:
            return
        try:
            if _append(self.path, text.encode() + b"\n") > self.largest:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
        except OSError:
            # A full disk must not end an engine that runs well.
            pass


def _append(path: Path, line: bytes) -> int:
    """Returns the size of the file afterwards, in bytes."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, line)
        return os.fstat(file).st_size
    finally:
        os.close(file)
