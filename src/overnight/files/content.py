"""The bytes of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

from overnight.files.shape import StoredFile
from overnight.store import answers
from overnight.store import files as rows
from overnight.store.pool import Store


async def stream(store: Store, file: StoredFile, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yield the bytes [start, stop) of a file; holds a few chunks at a time and no connection in between.

    Raises `store.files.FileGone` where they were removed meanwhile, so that nobody takes a part for the whole.
    """
    if file.batch is None or file.kind is None:
        pieces = rows.read_chunks(store, file.no, start, stop)
    else:
        pieces = answers.stream(store, file.batch, file.kind, start, stop)
    async for piece in pieces:
        start += len(piece)
        yield piece
    if start < stop:
        raise rows.FileGone
