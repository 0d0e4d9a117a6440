"""A stream of bytes on its way into the store: cut, compressed, and kept as chunks of a row that nobody sees yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from overnight.domain.limits import CHUNK_BYTES
from overnight.files.cut import Cutter
from overnight.store import files as rows
from overnight.store import zstd
from overnight.store.files import Chunk
from overnight.store.pool import LOST, Store

PIECE_BYTES = CHUNK_BYTES // 4
"""Work is done in pieces of this size, a few hundred microseconds each, so that other calls get their turn."""

CHUNKS_STORED_AT_ONCE = 8

TOUCHED_EVERY = 60.0
"""Seconds after which a stream that is too slow to fill a chunk is said to be still going on."""


def in_pieces(data: bytes) -> Iterator[bytes]:
    """Yield the bytes in pieces that are small enough to be worked on at once."""
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


class Chunks:
    """The chunks of one row. `begin` makes the row and returns its number; it is called when the first are stored."""

    def __init__(self, store: Store, begin: Callable[[], Awaitable[int]]) -> None:
        self.size = 0
        """Bytes that were taken."""
        self._store = store
        self._begin = begin
        self._no: int | None = None
        self._cut = 0
        self._cutter = Cutter()
        self._waiting: list[Chunk] = []
        self._touched = time.monotonic()

    async def take(self, piece: bytes) -> None:
        """Take the next bytes. Raises FileGone where the row was given up meanwhile, and what `begin` raises."""
        self.size += len(piece)
        for chunk in self._cutter.feed(piece):
            await self._keep(chunk)
        if self._no is not None and time.monotonic() - self._touched > TOUCHED_EVERY:
            await rows.touch(self._store, self._no)
            self._touched = time.monotonic()

    async def end(self) -> int:
        """Store what is left and return the number of the row. Raises as `take` does."""
        await self._keep(self._cutter.rest())
        return await self._store_waiting()

    async def discard(self) -> None:
        """Remove what was stored. What cannot be removed now, the purge removes later."""
        if self._no is not None:
            with suppress(*LOST):
                await rows.discard(self._store, self._no)

    async def _keep(self, chunk: bytes) -> None:
        if chunk:
            self._waiting.append(Chunk(self._cut, len(chunk), zstd.compress(chunk)))
            self._cut += len(chunk)
            # Compressing a chunk, and whatever else is done with it, takes about 2 ms: others get their turn.
            await asyncio.sleep(0)
        if len(self._waiting) >= CHUNKS_STORED_AT_ONCE:
            await self._store_waiting()

    async def _store_waiting(self) -> int:
        chunks, self._waiting = self._waiting, []
        if self._no is None:
            self._no = await self._begin()
        if chunks:
            await rows.append(self._store, self._no, chunks)
            self._touched = time.monotonic()
        return self._no
