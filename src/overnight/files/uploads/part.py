"""Take a part of an upload in: its bytes are stored as they come, and checked when the file is put together."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from overnight.domain import ids
from overnight.domain.errors import Interrupted, InvalidParameter, TooLarge
from overnight.domain.limits import MOST_PARTS, PART_BYTES
from overnight.files.chunks import Chunks
from overnight.files.form import MOST_BESIDE_FILE, Form, boundary_of
from overnight.files.upload import read
from overnight.files.uploads.find import Upload, get_pending
from overnight.store import uploads
from overnight.store.files import FileGone
from overnight.store.pool import Store
from overnight.store.uploads import UploadEnded


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of an upload, whose place in the file is said when it is completed."""

    id: UUID
    upload: UUID
    created_at: datetime


async def receive(
    store: Store,
    owner: int,
    upload_id: str,
    content_type: str,
    body: AsyncIterator[bytes],
    *,
    announced: int | None = None,
) -> Part:
    """Store the part of a multipart form; memory does not grow with it. `announced` is the Content-Length, if any.

    Raises UploadNotFound, UploadNotPending, BadRequest, TooLarge, UnsupportedMediaType, Interrupted, and what
    `body` raises where the sender goes away: then nothing is left of the part.
    """
    upload = await get_pending(store, owner, upload_id)
    form = Form(boundary_of(content_type), "data", ())
    if announced is not None:
        _refuse(upload, announced - MOST_BESIDE_FILE, announced)
    if await uploads.count_parts(store, upload.no) >= MOST_PARTS:
        raise InvalidParameter(f"An upload may have {MOST_PARTS:,} parts; send larger ones.", param="data")
    try:
        return await _store(store, upload, read(form, body))
    except (FileGone, UploadEnded):
        await get_pending(store, owner, upload_id)
        raise Interrupted("The part stood still for too long and was given up. Send it again.") from None


async def _store(store: Store, upload: Upload, pieces: AsyncIterator[bytes]) -> Part:
    part_id = ids.new(time.time_ns() // 1_000_000)
    chunks = Chunks(store, lambda: uploads.begin_part(store, part_id, upload.no))
    try:
        async for piece in pieces:
            _refuse(upload, chunks.size + len(piece))
            await chunks.take(piece)
        created_at = await uploads.finish_part(store, upload.no, await chunks.end(), chunks.size)
    except BaseException:
        await chunks.discard()
        raise
    return Part(part_id, upload.id, created_at)


def as_json(part: Part) -> dict[str, Any]:
    """The public object of a part."""
    return {
        "id": ids.show(ids.PART, part.id),
        "object": "upload.part",
        "created_at": int(part.created_at.timestamp()),
        "upload_id": ids.show(ids.UPLOAD, part.upload),
    }


def _refuse(upload: Upload, size: int, came: int | None = None) -> None:
    """Raise TooLarge or InvalidParameter for a part of at least `size` bytes; `came` is what to call it, if other."""
    came = size if came is None else came
    if size > PART_BYTES:
        raise TooLarge(
            f"A part may be {PART_BYTES:,} bytes long; {came:,} bytes came or were announced. Send smaller parts.",
            param="data",
        )
    if size > upload.bytes:
        raise InvalidParameter(
            f"The upload was announced with {upload.bytes:,} bytes; {came:,} bytes came or were announced for this "
            "part alone.",
            param="data",
        )
