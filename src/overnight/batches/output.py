"""All results of a batch as JSONL, at any time: as they finished, or in the order of submission."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from overnight.batches import find
from overnight.domain import ids
from overnight.domain.errors import InvalidParameter
from overnight.domain.limits import KIB
from overnight.domain.states import FINAL
from overnight.store import answers, results
from overnight.store.answers import OUTPUT
from overnight.store.files import FileGone
from overnight.store.pool import Row, Store

AT_ONCE = 500
"""Results in the order of submission that are looked up together."""

JOINED_BYTES = 64 * KIB
"""Such lines are sent together: what it takes to send a piece is the same for each."""


@dataclass(frozen=True, slots=True)
class Output:
    """Some of the results of a batch at one moment."""

    store: Store
    row: Row
    start: int
    """Where the bytes begin in the stream of responses."""

    @property
    def is_final(self) -> bool:
        return self.row["status"] in FINAL

    @property
    def lines(self) -> int:
        """Responses so far, whether skipped or not: a caller who goes on later skips so many."""
        count: int = self.row["output_lines"]
        return count

    @property
    def size(self) -> int:
        size: int = self.row["output_bytes"] - self.start
        return size

    @property
    def etag(self) -> str:
        """The strong validator of these bytes: the stream only grows, so its batch and its ends tell them."""
        return f'"{self.row["id"].hex}-{self.start}-{self.start + self.size}"'

    @property
    def filename(self) -> str:
        return f"{ids.show(ids.BATCH, self.row['id'])}_output.jsonl"

    async def read(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """Yield the bytes [start, stop) of these; holds a few segments at a time.

        Raises FileGone where the batch was deleted meanwhile.
        """
        async for piece in answers.stream(self.store, self.row["no"], OUTPUT, self.start + start, self.start + stop):
            start += len(piece)
            yield piece
        if start < stop:
            raise FileGone


async def finished(store: Store, owner: int, batch_id: str, offset: int) -> Output:
    """The responses in the order in which they finished, without the first `offset`: the bytes of the output file.

    Raises BatchNotFound.
    """
    row = await _find(store, owner, batch_id)
    if offset >= row["output_lines"]:
        return Output(store, row, row["output_bytes"])
    return Output(store, row, await results.find_byte(store, row["no"], OUTPUT, offset))


@dataclass(frozen=True, slots=True)
class Submitted:
    """All results of a batch that has ended, responses and errors, in the order of submission."""

    store: Store
    row: Row
    offset: int

    @property
    def size(self) -> int | None:
        """Bytes in all; None where only sending them would tell."""
        return None if self.offset else self.row["output_bytes"] + self.row["error_bytes"]

    @property
    def filename(self) -> str:
        return f"{ids.show(ids.BATCH, self.row['id'])}_results.jsonl"

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the lines, some at a time. Raises FileGone where the batch was deleted meanwhile."""
        total = self.row["output_lines"] + self.row["error_lines"]
        batch, sent = self.row["no"], self.offset
        first = await results.find_answer_after(self.store, batch, sent) if sent < total else None
        while sent < total and first is not None:
            async with self.store.session() as session:
                found, count = await results.answers(session, batch, first, AT_ONCE)
            if not count:
                break
            joined = bytearray()
            for answer in found:
                sent += 1
                first = answer.line + 1
                joined += answer.text
                joined += b"\n"
                if len(joined) >= JOINED_BYTES:
                    yield bytes(joined)
                    joined.clear()
                    await asyncio.sleep(0)
            if joined:
                yield bytes(joined)
        if sent < total:
            raise FileGone


async def submitted(store: Store, owner: int, batch_id: str, offset: int) -> Submitted:
    """The results in the order of submission, without the first `offset`.

    Raises BatchNotFound, and InvalidParameter as long as the batch has not ended.
    """
    row = await _find(store, owner, batch_id)
    if row["status"] not in FINAL:
        says = f"The batch is {row['status']}; its results have an order of submission once it has ended."
        raise InvalidParameter(f"{says} Until then ask for `order=finished`.", param="order")
    return Submitted(store, row, offset)


async def _find(store: Store, owner: int, batch_id: str) -> Row:
    known = ids.read(ids.BATCH, batch_id)
    async with store.session() as session:
        row = None if known is None else await results.find_streams(session, owner, known)
    if row is None:
        raise find.not_found(batch_id)
    return row
