"""An upload as its owner sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from overnight.domain import ids
from overnight.domain.errors import UploadNotFound, UploadNotPending
from overnight.files import shape
from overnight.files.shape import StoredFile
from overnight.store import files, uploads
from overnight.store.pool import Store

PENDING = "pending"
COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is sent in parts, and what became of it."""

    no: int
    id: UUID
    owner: int
    filename: str
    bytes: int
    status: str
    """`pending`, `completed`, `cancelled` or `expired`."""
    file: StoredFile | None
    """The file that it was completed to, as long as that is there."""
    file_lives: timedelta | None
    created_at: datetime
    expires_at: datetime

    @property
    def public_id(self) -> str:
        return ids.show(ids.UPLOAD, self.id)


async def get(store: Store, owner: int, upload_id: str) -> Upload:
    """Return an upload by its public id. Raises UploadNotFound."""
    known = ids.read(ids.UPLOAD, upload_id)
    row = None if known is None else await uploads.find(store, owner, known)
    if row is None:
        shown = upload_id if len(upload_id) <= 80 else upload_id[:77] + "..."
        raise UploadNotFound(f"There is no upload {shown!r}.")
    file = None if row["file_id"] is None else await files.find(store, owner, row["file_id"])
    return Upload(
        no=row["no"],
        id=row["id"],
        owner=row["owner"],
        filename=row["filename"],
        bytes=row["bytes"],
        status=row["status"],
        file=None if file is None else shape.of_row(file),
        file_lives=row["file_lives"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )


async def get_pending(store: Store, owner: int, upload_id: str) -> Upload:
    """Return an upload that parts can be added to. Raises UploadNotFound and UploadNotPending."""
    upload = await get(store, owner, upload_id)
    refuse_unless_pending(upload)
    return upload


def refuse_unless_pending(upload: Upload) -> None:
    """Raise UploadNotPending for an upload that has ended."""
    if upload.status != PENDING:
        was = "has expired" if upload.status == "expired" else f"was {upload.status}"
        raise UploadNotPending(f"The upload {upload.public_id} {was}. Create a new one.")


def as_json(upload: Upload) -> dict[str, Any]:
    """The public object of an upload."""
    return {
        "id": upload.public_id,
        "object": "upload",
        "bytes": upload.bytes,
        "created_at": int(upload.created_at.timestamp()),
        "expires_at": int(upload.expires_at.timestamp()),
        "filename": upload.filename,
        "purpose": "batch",
        "status": upload.status,
        "file": None if upload.file is None else shape.as_json(upload.file),
    }
