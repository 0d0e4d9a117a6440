"""Begin an upload, or end one without its file."""

from __future__ import annotations

import time

from overnight.domain import ids
from overnight.domain.errors import UploadNotPending
from overnight.domain.limits import Limits
from overnight.files import allowance
from overnight.files.uploads.find import COMPLETED, Upload, get
from overnight.files.uploads.request import NewUpload
from overnight.store import uploads
from overnight.store.pool import Store


async def create(store: Store, limits: Limits, owner: int, new: NewUpload) -> Upload:
    """Make an upload that waits for its parts; the room for its file is held as long as it waits.

    Raises TooManyUploads and NoRoomForFile.
    """
    upload_id = ids.new(time.time_ns() // 1_000_000)
    await allowance.begin(store, limits, owner)
    async with allowance.room_for(store, limits, owner, new.bytes) as where:
        await uploads.create(where, upload_id, owner, new.filename, new.bytes, new.file_lives)
    return await get(store, owner, ids.show(ids.UPLOAD, upload_id))


async def cancel(store: Store, owner: int, upload_id: str) -> Upload:
    """Give an upload and its parts up; one that was cancelled or has expired is returned as it is.

    Raises UploadNotFound, and UploadNotPending where it was completed.
    """
    upload = await get(store, owner, upload_id)
    if await uploads.cancel(store, upload.no):
        return await get(store, owner, upload_id)
    upload = await get(store, owner, upload_id)
    if upload.status == COMPLETED:
        raise UploadNotPending(f"The upload {upload.public_id} was completed; delete its file instead.")
    return upload
