"""A file whose bytes the server itself puts together: it appears with the caller's commit, or nothing is left of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from overnight.domain import ids
from overnight.domain.errors import Interrupted
from overnight.domain.limits import Limits
from overnight.files import allowance
from overnight.files.arrival import Arrival, stored
from overnight.files.chunks import in_pieces
from overnight.files.shape import StoredFile, of_row
from overnight.store import files as rows
from overnight.store.files import FileGone, Finding
from overnight.store.pool import Row, Session, Store


@dataclass(slots=True)
class Kept:
    """A file that is whole and that nobody sees yet."""

    _limits: Limits
    _owner: int
    _no: int
    _finding: Finding
    _lives: timedelta | None
    row: Row | None = None
    """Its row, once it has been made to appear."""

    async def appear(self, session: Session) -> StoredFile:
        """Make it visible to its owner with the transaction's commit.

        Raises NoRoomForFile where the owner keeps too much already, and Interrupted where the file was given up.
        """
        await allowance.refuse_without_room(session, self._limits, self._owner, self._finding.size)
        try:
            self.row = await rows.finish(session, self._no, self._finding, self._lives)
        except FileGone:
            raise _too_late() from None
        return of_row(self.row)


@asynccontextmanager
async def keep(
    store: Store, limits: Limits, owner: int, filename: str, content: AsyncIterator[bytes], lives: timedelta | None
) -> AsyncIterator[Kept]:
    """Store a file and check it like any other; within the block it can be made to appear.

    Raises EmptyFile, TooLarge, Interrupted, and what `content` raises. Nothing is left of a file that did not appear:
    what a process that died has stored of it is given up later.
    """
    file_id = ids.new(time.time_ns() // 1_000_000)
    arrival = Arrival(store, limits, lambda: rows.begin(store, file_id, owner, filename))
    try:
        async for data in content:
            for piece in in_pieces(data):
                await arrival.take(piece)
        kept = Kept(limits, owner, *await arrival.end(), lives)
        yield kept
    except FileGone:
        raise _too_late() from None
    finally:
        # One that has appeared is not arriving any more, and stays.
        await arrival.discard()
    if kept.row is not None:
        stored(kept.row)


def _too_late() -> Interrupted:
    return Interrupted("The file could not be stored in time. Try again.")
