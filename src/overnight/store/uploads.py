"""Uploads: files that are sent in parts. A part is stored as a file is, in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from overnight.store import files
from overnight.store.files import Finding
from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("upload")

OPEN = timedelta(hours=1)
"""How long parts may be added."""

LONGER = timedelta(hours=1)
"""How much longer a file may be put together where that began in time."""

KEPT = timedelta(days=7)
"""An upload that ended can be looked at so long."""


class UploadEnded(Exception):
    """The upload was completed or cancelled, or has expired."""


async def count_begun(session: Session, owner: int, most: int) -> tuple[int, float | None]:
    """How many uploads an owner began within the last hour, and in how many seconds there are fewer than `most`."""
    row = await session.row(_SQL["count_begun"], owner=owner, most=most)
    assert row is not None
    return row["begun"], row["wait"]


async def note_begun(session: Session, owner: int) -> None:
    """Count an upload that an owner begins."""
    await session.run(_SQL["note_begun"], owner=owner)


async def measure_stored(session: Session, owner: int) -> int:
    """Bytes of the input files that an owner keeps, or has announced."""
    row = await session.row(_SQL["measure_stored"], owner=owner)
    assert row is not None
    stored: int = row["bytes"]
    return stored


async def create(
    where: Store | Session, upload_id: UUID, owner: int, filename: str, size: int, file_lives: timedelta | None
) -> None:
    """Make an upload to which parts can be added."""
    await where.run(
        _SQL["insert_upload"],
        id=upload_id,
        owner=owner,
        filename=filename,
        bytes=size,
        file_lives=file_lives,
        open=OPEN,
    )


async def find(store: Store, owner: int, upload_id: UUID) -> Row | None:
    """An upload of this owner, in whatever state."""
    return await store.row(_SQL["find_upload"], id=upload_id, owner=owner)


async def count_parts(store: Store, upload: int) -> int:
    """How many parts of an upload are there or on their way."""
    row = await store.row(_SQL["count_parts"], upload=upload)
    assert row is not None
    count: int = row["parts"]
    return count


async def begin_part(store: Store, part_id: UUID, upload: int) -> int:
    """Make the row of a part whose bytes are on their way and return its number. Raises UploadEnded."""
    row = await store.row(_SQL["begin_part_if_pending"], id=part_id, upload=upload)
    if row is None:
        raise UploadEnded
    no: int = row["no"]
    return no


async def finish_part(store: Store, upload: int, part: int, size: int) -> datetime:
    """Make a part one that can be used, and return when it began. Raises UploadEnded, also where it was given up."""
    row = await store.row(_SQL["finish_part_if_pending"], upload=upload, part=part, bytes=size)
    if row is None:
        raise UploadEnded
    created_at: datetime = row["created_at"]
    return created_at


async def find_parts(store: Store, upload: int, part_ids: Sequence[UUID]) -> list[Row]:
    """Number, id and size of those parts that the upload has, in no order."""
    return await store.rows(_SQL["find_parts"], upload=upload, ids=part_ids)


async def hold(store: Store, upload: int) -> None:
    """Give an upload the time that putting it together may take. Raises UploadEnded."""
    if not await store.run(_SQL["hold_if_pending"], upload=upload, longer=LONGER):
        raise UploadEnded


async def complete(
    store: Store, upload: int, file: int, file_id: UUID, finding: Finding, lives: timedelta | None
) -> Row:
    """Make the file that was put together visible and give the parts up, both or neither.

    Raises UploadEnded where the upload has ended, and FileGone where the file was given up meanwhile.
    """
    async with store.transaction() as session:
        if not await session.run(_SQL["complete_if_pending"], upload=upload, file_id=file_id):
            raise UploadEnded
        row = await files.finish(session, file, finding, lives)
        await session.run(_SQL["give_up_parts"], upload=upload)
    return row


async def cancel(store: Store, upload: int) -> bool:
    """End an upload and give its parts up; False where it had ended."""
    async with store.transaction() as session:
        if not await session.run(_SQL["cancel_if_pending"], upload=upload):
            return False
        await session.run(_SQL["give_up_parts"], upload=upload)
    return True


async def purge_round(store: Store) -> bool:
    """Give up the parts of one upload that has expired, and forget some that ended long ago.

    Returns whether there was anything to do.
    """
    async with store.transaction() as session:
        expired = await session.row(_SQL["expire_one"])
        if expired is not None:
            await session.run(_SQL["give_up_parts"], upload=expired["no"])
    return await store.run(_SQL["forget_ended"], kept=KEPT) > 0 or expired is not None
