"""Delete a file for good."""

from __future__ import annotations

from overnight.domain import events, ids
from overnight.files.find import not_found
from overnight.store import files as rows
from overnight.store.pool import Store


async def delete(store: Store, owner: int, file_id: str) -> None:
    """Delete a file; a download under way still finishes, and batches made from it are not touched.

    Raises FileNotFound.
    """
    known = ids.read(ids.FILE, file_id)
    if known is None or not await rows.delete(store, owner, known):
        raise not_found(file_id)
    events.tell("file_deleted", file=file_id)
