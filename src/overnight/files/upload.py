"""Upload: a form streams in, its file is checked, cut, compressed and stored while it comes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from overnight.domain import ids
from overnight.domain.errors import Interrupted
from overnight.domain.limits import Limits
from overnight.domain.owner_limits import refuse_file
from overnight.files import allowance
from overnight.files.arrival import Arrival, stored, too_large
from overnight.files.chunks import in_pieces
from overnight.files.form import MOST_BESIDE_FILE, Form, boundary_of
from overnight.files.shape import StoredFile
from overnight.store import files as rows
from overnight.store.files import FileGone
from overnight.store.pool import Store


async def receive(
    store: Store,
    limits: Limits,
    owner: int,
    content_type: str,
    body: AsyncIterator[bytes],
    *,
    announced: int | None = None,
) -> StoredFile:
    """Store the file of a multipart form; memory does not grow with it. `announced` is the Content-Length, if any.

    Raises BadRequest, TooLarge, UnsupportedMediaType, TooManyUploads, NoRoomForFile, Interrupted, and what `body`
    raises where the sender goes away: then nothing is left of the file. Problems of its lines are no reason to refuse
    it; they are kept with it.
    """
    form = Form(boundary_of(content_type))
    if announced is not None and announced > limits.file_bytes + MOST_BESIDE_FILE:
        raise too_large(announced, limits)
    kept = await allowance.begin(store, limits, owner)
    if kept is not None and announced is not None:
        refuse_file(limits, kept, announced - MOST_BESIDE_FILE)
    file_id = ids.new(time.time_ns() // 1_000_000)
    arrival = Arrival(store, limits, lambda: rows.begin(store, file_id, owner, form.filename or ""), kept)
    try:
        async for piece in read(form, body):
            await arrival.take(piece)
        no, finding = await arrival.end()
        lives = form.life() or limits.file_retention
        return stored(await allowance.finish(store, limits, owner, no, finding, lives))
    except FileGone:
        raise Interrupted("The upload stood still for too long and was given up. Send the file again.") from None
    except BaseException:
        await arrival.discard()
        raise


async def read(form: Form, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the bytes of the form's file as they come, in small pieces, then check that the whole form came.

    Raises what `form` raises.
    """
    async for data in body:
        for piece in in_pieces(data):
            for found in form.feed(piece):
                yield found
    form.end()
