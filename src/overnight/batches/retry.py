"""Retry a batch: a new one of the requests that the first has left without a response."""

from __future__ import annotations

import msgspec

from overnight.batches import create as creating
from overnight.batches import find, unfinished
from overnight.batches.request import NewBatch
from overnight.batches.shape import BatchView
from overnight.domain import ids
from overnight.domain.errors import FileNotFound, FileNotUsable, InvalidParameter
from overnight.domain.limits import Limits
from overnight.domain.states import FINAL
from overnight.domain.window import is_allowed
from overnight.files.keep import Kept, keep
from overnight.files.shape import StoredFile
from overnight.store import batches
from overnight.store.pool import Row, Store


async def retry(store: Store, limits: Limits, owner: int, batch_id: str) -> BatchView:
    """Make a batch with the endpoint, defaults and metadata of one that has ended, of its unfinished requests.

    They become an input file of their own, or direct requests where they were; the window begins now. As long as the
    retry goes on, another call returns it: so one whose answer was lost can be made again. File and batch appear in
    one commit. Raises BatchNotFound, InvalidParameter where the batch has not ended or has nothing left to
    run, FileNotUsable where it never started and its input is gone, and what `create` raises: then nothing is left of
    the call.
    """
    try:
        found = await unfinished.of(store, owner, batch_id)
    except FileNotFound as e:
        raise FileNotUsable(e.message, param="input_file_id") from None
    if found.row["status"] not in FINAL:
        raise InvalidParameter(
            f"The batch is {found.row['status']}. Only one that has ended can be retried: wait, or cancel it first."
        )
    async with store.session() as session:
        made = await find.retry_under_way(session, owner, found.row["id"])
    if made is not None:
        return made
    old = await batches.find_to_retry(store, found.row["no"])
    if old is None or (found.input_file is None and old["completed"] == old["total"]):
        raise InvalidParameter("Every request of the batch has its response; there is nothing to retry.")
    if found.input_file is not None:
        return await _create(store, limits, owner, found, old, found.input_file)
    if found.row["source"] == "direct":
        return await _create(store, limits, owner, found, old, await _requests(found))
    async with keep(store, limits, owner, found.filename, found.read(), limits.file_retention) as kept:
        return await _create(store, limits, owner, found, old, kept)


async def _requests(found: unfinished.Unfinished) -> list[msgspec.Raw]:
    """Requests that came in a create call, all at once as they did then: its body was bounded."""
    text = b"".join([piece async for piece in found.read()])
    return [msgspec.Raw(line) for line in text.split(b"\n")[:-1]]


async def _create(
    store: Store,
    limits: Limits,
    owner: int,
    found: unfinished.Unfinished,
    old: Row,
    source: StoredFile | Kept | list[msgspec.Raw],
) -> BatchView:
    same_window = is_allowed(old["completion_window"], limits.window, limits.longest_window)
    new = NewBatch(
        ids.show(ids.FILE, source.id) if isinstance(source, StoredFile) else None,
        old["endpoint"],
        requests=source if isinstance(source, list) else None,
        completion_window=old["completion_window"] if same_window else None,
        metadata=old["metadata"],
        defaults=old["defaults"],
        output_expires_after=old["output_expires_after"],
    )
    kept = source if isinstance(source, Kept) else None
    return await creating.create(store, limits, owner, new, retry_of=found.row["id"], kept=kept)
