"""The requests of a batch that have no response, as an input file in the order of submission."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from overnight.batches import find
from overnight.domain import ids
from overnight.domain.limits import MIB
from overnight.domain.result import safe_to_split
from overnight.files import content
from overnight.files import find as find_file
from overnight.files.shape import StoredFile
from overnight.store import blocks, results
from overnight.store.pool import Row, Store

HELD_BYTES = 64 * MIB
"""Blocks hold requests in the order in which they run. So all blocks are read for as many lines as this holds, then
once more for the next ones: a million requests of a kilobyte take about twenty passes."""

JOINED_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What can be read of a batch that has requests without a response, or had."""

    store: Store
    row: Row
    input_file: StoredFile | None
    """The input itself, where it was never cut into requests: no request of it has run."""

    @property
    def filename(self) -> str:
        return f"{ids.show(ids.BATCH, self.row['id'])}_unfinished.jsonl"

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the file; what gets its response meanwhile may be in it or not.

        Requests are as they were sent, but for what some clients split lines at: three characters that are escaped, and
        carriage returns between the parts of a request, which become spaces.
        """
        if self.input_file is not None:
            async for piece in content.stream(self.store, self.input_file, 0, self.input_file.bytes):
                yield piece
            return
        after: int | None = -1
        while after is not None:
            held, after = await self._next(after)
            joined = bytearray()
            for line in sorted(held):
                joined += _on_one_line(held.pop(line)) + b"\n"
                if len(joined) >= JOINED_BYTES:
                    yield bytes(joined)
                    joined.clear()
            if joined:
                yield bytes(joined)

    async def _next(self, after: int) -> tuple[dict[int, bytes], int | None]:
        """The next requests behind a line, and the line to go on behind; None where these are the last."""
        held: dict[int, bytes] = {}
        size = 0
        before = [results.LAST_LINE]
        async for line, request in blocks.unfinished(self.store, self.row["no"], after, before):
            held[line] = request
            size += len(request)
            if size > HELD_BYTES:
                size = _let_go_later_half(held, before)
                await asyncio.sleep(0)
        return held, before[0] - 1 if before[0] < results.LAST_LINE else None


def _on_one_line(request: bytes) -> bytes:
    """A request that no client splits. In valid JSON a carriage return can only be white space."""
    return safe_to_split(request).replace(b"\r", b" ")


def _let_go_later_half(held: dict[int, bytes], before: list[int]) -> int:
    """Drop the later lines, the first one never, until half of the bytes are left; return how many these are."""
    left = 0
    kept = True
    for line in sorted(held):
        kept = kept and (left == 0 or left + len(held[line]) <= HELD_BYTES // 2)
        if kept:
            left += len(held[line])
        else:
            before[0] = min(before[0], line)
            del held[line]
    return left


async def of(store: Store, owner: int, batch_id: str) -> Unfinished:
    """Find the requests of a batch that have no response.

    Raises BatchNotFound, and FileNotFound where the batch never started and its input is gone.
    """
    known = ids.read(ids.BATCH, batch_id)
    async with store.session() as session:
        row = None if known is None else await results.find_streams(session, owner, known)
    if row is None:
        raise find.not_found(batch_id)
    never_cut = row["in_progress_at"] is None and row["input_file_id"] is not None
    return Unfinished(
        store,
        row,
        await find_file.get(store, owner, ids.show(ids.FILE, row["input_file_id"])) if never_cut else None,
    )
