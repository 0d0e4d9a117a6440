"""What one owner may upload and keep: counted before anything is read, and again when a file becomes visible."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from overnight.domain.limits import Limits
from overnight.domain.owner_limits import refuse_file, refuse_upload
from overnight.store import accounts, files, uploads
from overnight.store.files import Finding
from overnight.store.pool import Row, Session, Store


async def begin(store: Store, limits: Limits, owner: int) -> int | None:
    """Count an upload and return the bytes of files that its owner keeps by now; None where there is no limit.

    It stays counted, whatever becomes of it. Raises TooManyUploads.
    """
    async with _counting(store, owner) as session:
        if session is None:
            return None
        refuse_upload(limits, *await uploads.count_begun(session, owner, limits.uploads_per_hour))
        await uploads.note_begun(session, owner)
        return await uploads.measure_stored(session, owner)


@asynccontextmanager
async def room_for(store: Store, limits: Limits, owner: int, size: int) -> AsyncIterator[Store | Session]:
    """Let the block keep a file of so many bytes, by what it is given: nobody else counts the owner's files meanwhile.

    Raises NoRoomForFile.
    """
    async with _counting(store, owner) as session:
        if session is not None:
            refuse_file(limits, await uploads.measure_stored(session, owner), size)
        yield session or store


async def finish(store: Store, limits: Limits, owner: int, file: int, finding: Finding, lives: timedelta | None) -> Row:
    """Make an arriving file visible to its owner. Raises NoRoomForFile, and FileGone if it was given up."""
    async with room_for(store, limits, owner, finding.size) as where:
        return await files.finish(where, file, finding, lives)


async def refuse_without_room(session: Session, limits: Limits, owner: int, size: int) -> None:
    """Raise NoRoomForFile where an owner may not keep so many bytes more; true until the session's transaction ends."""
    if not await accounts.is_local(session, owner):
        await accounts.lock(session, owner)
        refuse_file(limits, await uploads.measure_stored(session, owner), size)


@asynccontextmanager
async def _counting(store: Store, owner: int) -> AsyncIterator[Session | None]:
    """A transaction in which nobody else counts what the owner has; None where no limit holds for the owner."""
    if await accounts.is_local(store, owner):
        yield None
        return
    async with store.transaction() as session:
        await accounts.lock(session, owner)
        yield session
