"""Upload: a form streams in, its file is checked, cut, compressed and stored while it comes."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta

from overnight.domain import events, ids
from overnight.domain.errors import EmptyFile, Interrupted, TooLarge
from overnight.domain.limits import CHUNK_BYTES, Limits
from overnight.domain.lines import CHECKS, FileCheck
from overnight.files.cut import Cutter
from overnight.files.form import MOST_BESIDE_FILE, Form, boundary_of
from overnight.files.shape import StoredFile, of_row
from overnight.store import files as rows
from overnight.store import zstd
from overnight.store.files import Chunk, FileGone, Finding
from overnight.store.pool import LOST, Store

PIECE_BYTES = CHUNK_BYTES // 4
"""Work is done in pieces of this size, a few hundred microseconds each, so that other calls get their turn."""

CHUNKS_STORED_AT_ONCE = 8

TOUCHED_EVERY = 60.0
"""Seconds after which an upload that is too slow to fill a chunk is said to be still going on."""

MOST_LINES_COUNTED = 2**31 - 1


async def receive(
    store: Store,
    limits: Limits,
    owner: int,
    content_type: str,
    body: AsyncIterator[bytes],
    *,
    announced: int | None = None,
) -> StoredFile:
    """Store the file of a multipart form; memory does not grow with it. `announced` is the Content-Length, if any.

    Raises BadRequest, TooLarge, UnsupportedMediaType, Interrupted, and what `body` raises where the sender goes
    away: then nothing is left of the file. Problems of its lines are no reason to refuse it; they are kept with it.
    """
    form = Form(boundary_of(content_type))
    if announced is not None and announced > limits.file_bytes + MOST_BESIDE_FILE:
        raise _too_large(announced, limits)
    arrival = _Arrival(store, limits, owner)
    try:
        async for data in body:
            for start in range(0, len(data), PIECE_BYTES):
                for piece in form.feed(data[start : start + PIECE_BYTES]):
                    await arrival.take(piece, form.filename)
        form.end()
        return await arrival.finish(form.life() or limits.file_retention)
    except FileGone:
        raise Interrupted("The upload stood still for too long and was given up. Send the file again.") from None
    except BaseException:
        await arrival.discard()
        raise


class _Arrival:
    """A file on its way in. Its row is made when the first chunks are stored."""

    def __init__(self, store: Store, limits: Limits, owner: int) -> None:
        self._store = store
        self._limits = limits
        self._owner = owner
        self._filename = ""
        self._no: int | None = None
        self._size = 0
        self._stored = 0
        self._digest = hashlib.sha256()
        self._check = FileCheck(limits)
        self._cutter = Cutter()
        self._chunks: list[Chunk] = []
        self._id = ids.new(time.time_ns() // 1_000_000)
        self._touched = time.monotonic()

    async def take(self, piece: bytes, filename: str | None) -> None:
        """Take the next bytes of the file."""
        self._filename = filename or ""
        self._size += len(piece)
        if self._size > self._limits.file_bytes:
            raise _too_large(self._size, self._limits)
        self._digest.update(piece)
        for _ in self._check.steps(piece):
            await asyncio.sleep(0)
        for chunk in self._cutter.feed(piece):
            await self._keep(chunk)
        if self._no is not None and time.monotonic() - self._touched > TOUCHED_EVERY:
            await rows.touch(self._store, self._no)
            self._touched = time.monotonic()

    async def finish(self, lives: timedelta) -> StoredFile:
        """Store what is left, end the checks and make the file visible."""
        if self._size == 0:
            raise EmptyFile("The file is empty. Upload one with at least one line.", param="file")
        await self._keep(self._cutter.rest())
        await self._store_chunks()
        assert self._no is not None
        self._check.end()
        await self._look_for_repeated_ids(self._no)
        check = self._check
        finding = Finding(
            size=self._size,
            lines=min(check.lines, MOST_LINES_COUNTED),
            sha256=self._digest.digest(),
            checks=CHECKS if check.is_whole else 0,
            problem_count=min(check.problem_count, MOST_LINES_COUNTED),
            problems=[asdict(problem) for problem in check.problems],
        )
        file = of_row(await rows.finish(self._store, self._no, finding, lives))
        events.tell("file_stored", file=file.public_id, bytes=file.bytes, lines=file.lines, problems=file.problem_count)
        return file

    async def discard(self) -> None:
        """Remove what was stored. What cannot be removed now, the purge removes later."""
        if self._no is not None:
            with suppress(*LOST):
                await rows.discard(self._store, self._no)

    async def _keep(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(Chunk(self._stored, len(chunk), zstd.compress(chunk)))
            self._stored += len(chunk)
            # Checking and compressing a chunk takes about 2 ms: others get their turn.
            await asyncio.sleep(0)
        if len(self._chunks) >= CHUNKS_STORED_AT_ONCE:
            await self._store_chunks()

    async def _store_chunks(self) -> None:
        chunks, self._chunks = self._chunks, []
        if self._no is None:
            self._no = await rows.begin(self._store, self._id, self._owner, self._filename)
        if chunks:
            await rows.append(self._store, self._no, chunks)
            self._touched = time.monotonic()

    async def _look_for_repeated_ids(self, no: int) -> None:
        check = self._check
        if not check.is_whole:
            return
        suspects = await asyncio.to_thread(check.suspects)
        if not suspects:
            return
        confirm = check.confirm(suspects)
        async for piece in rows.read_chunks(self._store, no, 0, self._size):
            confirm(piece)
            await asyncio.sleep(0)
        confirm(b"")


def _too_large(size: int, limits: Limits) -> TooLarge:
    return TooLarge(
        f"A file may be {limits.file_bytes:,} bytes long; {size:,} bytes came or were announced.", param="file"
    )
