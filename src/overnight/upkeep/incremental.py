"""One result stream as a file on this host: whole lines are appended as they are committed, safe to be tailed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from overnight.domain.limits import MIB
from overnight.store import answers
from overnight.store.flock import give_to_owner
from overnight.store.pool import Store

P = ParamSpec("P")
T = TypeVar("T")

READABLE = 0o640
"""Results hold what models answered: nothing for every user of the host to read. Whoever runs Overnight may let
others in by the group of the folder's files."""

MOST_AT_ONCE = 64 * MIB
"""After so many bytes other files have their turn."""


class Changed(Exception):
    """Somebody else wrote to the file, cut it or removed it."""


class DiskRefused(Exception):
    """The disk is full, or the file cannot be opened, read or written."""


class IncrementalFile:
    """Follows one stream of one batch. What the file holds is compared with the stream once, then trusted.

    Each segment is one write. The kernel may show a reader the first pages of a write before the last: whoever reads
    line by line waits for the line end, as with every log; no byte that was seen changes.
    """

    def __init__(self, store: Store, batch: int, kind: int, path: Path) -> None:
        self._store = store
        self._batch = batch
        self._kind = kind
        self._path = path
        self._at: int | None = None
        """Bytes that the file has and that are right; None: not known."""

    async def catch_up(self, size: int) -> bool:
        """Append what is missing of the stream's first `size` bytes, which end with a line.

        Returns whether the file has all of them now; where there was too much for one time, it does not.
        Raises DiskRefused; the file then ends with the last piece that was written whole.
        """
        try:
            if self._at is None:
                self._at = await self._verify(size)
            return await self._append(size)
        except Changed:
            self._at = await self._verify(size)
            return await self._append(size)

    async def _append(self, size: int) -> bool:
        assert self._at is not None
        first = self._at
        file = await _on_disk(_open, self._path)
        try:
            _check_size(file, first)
            async for piece in answers.stream(self._store, self._batch, self._kind, first, size):
                await _on_disk(_write, file, self._at, piece)
                self._at += len(piece)
                if self._at - first >= MOST_AT_ONCE:
                    break
        finally:
            os.close(file)
        return self._at >= size

    async def _verify(self, size: int) -> int:
        """Compare the file with the stream; cut it at the first difference and return where that is."""
        file = await _on_disk(_open_existing, self._path)
        if file is None:
            return 0
        try:
            same = 0
            async for piece in answers.stream(self._store, self._batch, self._kind, 0, size):
                equal = await _on_disk(_compare, file, same, piece)
                same += equal
                if equal < len(piece):
                    break
            if os.fstat(file).st_size > same:
                await _on_disk(os.ftruncate, file, same)
        finally:
            os.close(file)
        return same


async def _on_disk(do: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Do something in a thread, since a disk may take its time."""
    try:
        return await asyncio.to_thread(do, *given, **named)
    except OSError as e:
        raise DiskRefused(str(e)) from e


def _open_existing(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _open(path: Path) -> int:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, READABLE)
    give_to_owner(file, path.parent)
    return file


def _check_size(file: int, expected: int) -> None:
    found = os.fstat(file)
    if found.st_size != expected or found.st_nlink == 0:
        raise Changed


def _write(file: int, at: int, piece: bytes) -> None:
    """Append all of a piece, or nothing of it."""
    left = memoryview(piece)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        os.ftruncate(file, at)
        raise


def _compare(file: int, at: int, piece: bytes) -> int:
    """How many bytes of `piece` the file has at a place."""
    found = b""
    while len(found) < len(piece):
        more = os.pread(file, len(piece) - len(found), at + len(found))
        if not more:
            break
        found += more
    if found == piece:
        return len(piece)
    low, high = 0, len(found)
    while low < high:
        middle = (low + high + 1) // 2
        if found[:middle] == piece[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
