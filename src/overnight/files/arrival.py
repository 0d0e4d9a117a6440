"""An input file on its way in, whichever way its bytes come: checked and stored while they do."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from overnight.domain import events
from overnight.domain.errors import EmptyFile, TooLarge
from overnight.domain.limits import Limits
from overnight.domain.lines import CHECKS, FileCheck
from overnight.domain.owner_limits import refuse_file
from overnight.files.chunks import Chunks
from overnight.files.shape import StoredFile, of_row
from overnight.store import files as rows
from overnight.store.files import Finding
from overnight.store.pool import Row, Store

MOST_LINES_COUNTED = 2**31 - 1


class Arrival:
    """Feed it the file's bytes, in pieces of at most `PIECE_BYTES`, and end it; memory does not grow with them.

    `begin` makes the row of the file and returns its number; it is called when the first chunks are stored. `kept` is
    how many bytes of files its owner keeps already, None where that is not limited.
    """

    def __init__(
        self, store: Store, limits: Limits, begin: Callable[[], Awaitable[int]], kept: int | None = None
    ) -> None:
        self._store = store
        # A file is judged by the limits of its beginning.
        self._limits = limits = copy.copy(limits)
        self._kept = kept
        self._chunks = Chunks(store, begin)
        self._digest = hashlib.sha256()
        self._check = FileCheck(limits)

    async def take(self, piece: bytes) -> None:
        """Take the next bytes of the file. Raises TooLarge, NoRoomForFile, and FileGone where it was given up."""
        size = self._chunks.size + len(piece)
        if size > self._limits.file_bytes:
            raise too_large(size, self._limits)
        if self._kept is not None:
            refuse_file(self._limits, self._kept, size)
        self._digest.update(piece)
        for _ in self._check.steps(piece):
            await asyncio.sleep(0)
        await self._chunks.take(piece)

    async def end(self) -> tuple[int, Finding]:
        """Store what is left and end the checks: number of the file, which nobody sees yet, and what is known of it.

        Raises EmptyFile and FileGone.
        """
        if self._chunks.size == 0:
            raise EmptyFile("The file is empty. Upload one with at least one line.", param="file")
        no = await self._chunks.end()
        self._check.end()
        await self._look_for_repeated_ids(no)
        check = self._check
        return no, Finding(
            size=self._chunks.size,
            lines=min(check.lines, MOST_LINES_COUNTED),
            sha256=self._digest.digest(),
            checks=CHECKS if check.is_whole else 0,
            problem_count=min(check.problem_count, MOST_LINES_COUNTED),
            problems=[asdict(problem) for problem in check.problems],
        )

    async def discard(self) -> None:
        """Remove what was stored. What cannot be removed now, the purge removes later."""
        await self._chunks.discard()

    async def _look_for_repeated_ids(self, no: int) -> None:
        check = self._check
        if not check.is_whole:
            return
        suspects = await asyncio.to_thread(check.suspects)
        if not suspects:
            return
        confirm = check.confirm(suspects)
        async for piece in rows.read_chunks(self._store, no, 0, self._chunks.size):
            confirm(piece)
            await asyncio.sleep(0)
        confirm(b"")


def stored(row: Row) -> StoredFile:
    """The file of a row that has just become visible; tells that it was stored."""
    file = of_row(row)
    events.tell("file_stored", file=file.public_id, bytes=file.bytes, lines=file.lines, problems=file.problem_count)
    return file


def too_large(size: int, limits: Limits, param: str = "file") -> TooLarge:
    """What is raised for a file over the limit."""
    return TooLarge(
        f"A file may be {limits.file_bytes:,} bytes long; {size:,} bytes came or were announced.", param=param
    )
