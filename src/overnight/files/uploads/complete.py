"""Complete an upload: its parts, streamed in the order that was given, become a file as any other upload does."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Sequence

from overnight.domain import ids
from overnight.domain.errors import InvalidParameter, NotReady
from overnight.domain.limits import Limits
from overnight.files.arrival import Arrival, stored
from overnight.files.chunks import in_pieces
from overnight.files.uploads.find import COMPLETED, PENDING, Upload, get, refuse_unless_pending
from overnight.files.uploads.request import Completion
from overnight.store import files, uploads
from overnight.store.files import FileGone
from overnight.store.pool import Row, Store
from overnight.store.uploads import UploadEnded


async def complete(store: Store, limits: Limits, owner: int, upload_id: str, wanted: Completion) -> Upload:
    """Make the file; an upload that was completed before is returned with the file it has.

    Until the file is whole nothing changes, so a call that ended in the middle can be made again. Where two
    calls are made at once, both put the file together and one of them is kept.

    Raises UploadNotFound, UploadNotPending, InvalidParameter where the parts are not this upload's, or do not have
    its size or MD5, TooLarge, and NotReady.
    """
    upload = await get(store, owner, upload_id)
    if upload.status == COMPLETED:
        return upload
    refuse_unless_pending(upload)
    try:
        parts = await _parts_in_order(store, upload, wanted)
        await uploads.hold(store, upload.no)
        await _put_together(store, limits, upload, parts, wanted.md5)
    except (FileGone, UploadEnded):
        upload = await get(store, owner, upload_id)
        if upload.status == PENDING:
            raise NotReady("The file was given up while it was put together. Complete the upload again.") from None
        if upload.status != COMPLETED:
            refuse_unless_pending(upload)
        return upload
    return await get(store, owner, upload_id)


async def _parts_in_order(store: Store, upload: Upload, wanted: Completion) -> list[Row]:
    known = [part_id for part_id in wanted.parts if part_id is not None]
    found = {row["id"]: row for row in await uploads.find_parts(store, upload.no, known)}
    for part_id, shown in zip(wanted.parts, wanted.shown, strict=True):
        if part_id not in found:
            if (await get(store, upload.owner, upload.public_id)).status != PENDING:
                raise UploadEnded
            raise InvalidParameter(f"{shown[:80]!r} is not the id of a part that this upload has.", param="part_ids")
    size = sum(row["bytes"] for row in found.values())
    if size != upload.bytes:
        raise InvalidParameter(
            f"The upload was announced with {upload.bytes:,} bytes; these parts have {size:,}.", param="part_ids"
        )
    return [found[part_id] for part_id in known]


async def _put_together(store: Store, limits: Limits, upload: Upload, parts: Sequence[Row], md5: str | None) -> None:
    file_id = ids.new(time.time_ns() // 1_000_000)
    arrival = Arrival(store, limits, lambda: files.begin(store, file_id, upload.owner, upload.filename))
    try:
        digest = hashlib.md5(usedforsecurity=False)
        async for piece in _bytes_of(store, parts):
            if md5 is not None:
                digest.update(piece)
            await arrival.take(piece)
        if md5 not in (None, digest.hexdigest()):
            raise InvalidParameter(f"The MD5 of these parts is {digest.hexdigest()}, not {md5}.", param="md5")
        no, finding = await arrival.end()
        lives = upload.file_lives or limits.file_retention
        row = await uploads.complete(store, upload.no, no, file_id, finding, lives)
    except BaseException:
        await arrival.discard()
        raise
    stored(row)


async def _bytes_of(store: Store, parts: Sequence[Row]) -> AsyncIterator[bytes]:
    for part in parts:
        async for chunk in files.read_chunks(store, part["no"], 0, part["bytes"]):
            for piece in in_pieces(chunk):
                yield piece
