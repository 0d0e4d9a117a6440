"""Create a batch: check the call, then store the batch; its file is checked in the background."""

from __future__ import annotations

import time

from overnight.batches import find
from overnight.batches.request import NewBatch
from overnight.batches.request import read_create as read_create
from overnight.batches.shape import BatchView
from overnight.domain import events, ids
from overnight.domain.errors import CapacityExceeded, DuplicateBatch, FileNotFound, FileNotUsable
from overnight.domain.intake import has_room
from overnight.domain.limits import Limits
from overnight.domain.targets import TARGETS
from overnight.files import find as find_file
from overnight.files.shape import StoredFile
from overnight.store import batches
from overnight.store.pool import Session, Store

RETRY_AFTER = 30
"""Seconds after which a create that found the queue full may be worth another try."""


async def create(store: Store, limits: Limits, owner: int, new: NewBatch) -> BatchView:
    """Store a batch in the state `validating`.

    Raises FileNotUsable, DuplicateBatch where the file has an unfinished batch already, and CapacityExceeded where
    the queue has no room for all of its requests. Creates are counted one after the other, so the capacity is exact.
    """
    file = await _usable_file(store, owner, new.input_file_id)
    window = new.window or limits.window
    batch_id = ids.new(time.time_ns() // 1_000_000)
    async with store.transaction() as session:
        await batches.serialise_creates(session)
        await _refuse_second(session, file)
        total = await _requests_to_queue(session, limits, file)
        number = await batches.create(
            session,
            batch_id=batch_id,
            owner=owner,
            target=TARGETS[new.endpoint].name,
            endpoint=new.endpoint,
            input_file=file.no,
            input_file_id=file.id,
            completion_window=new.completion_window or f"{round(window.total_seconds() / 3600)}h",
            window=window,
            metadata=new.metadata,
            defaults=new.defaults,
            total=total,
            output_expires_after=new.output_expires_after,
            # A result is kept at least as long as was asked for: it is no copy, and goes with its batch.
            retention=max(limits.retention, new.kept_for) if new.kept_for else limits.retention,
        )
        view = await find.in_session(session, owner, batch_id)
    assert view is not None
    events.tell("batch_created", batch=view.public_id, number=number, requests=file.lines)
    return view


async def _usable_file(store: Store, owner: int, file_id: str) -> StoredFile:
    try:
        file = await find_file.get(store, owner, file_id)
    except FileNotFound as e:
        raise FileNotUsable(e.message, param="input_file_id") from None
    if file.purpose != "batch":
        says = (
            f"The file {file.public_id} has the purpose {file.purpose!r}; a batch is made from one of purpose 'batch'."
        )
        raise FileNotUsable(says, param="input_file_id")
    return file


async def _refuse_second(session: Session, file: StoredFile) -> None:
    first = await batches.find_unfinished_of_file(session, file.no)
    if first is not None:
        raise DuplicateBatch(
            f"The file {file.public_id} is being run by {ids.show(ids.BATCH, first)}. "
            "Wait until that batch has ended, or upload the file again.",
            param="input_file_id",
        )


async def _requests_to_queue(session: Session, limits: Limits, file: StoredFile) -> int:
    """How many requests join the queue; none where it is known that the batch will be refused."""
    if file.problem_count or file.lines > limits.intake:
        return 0
    waiting = await batches.count_unanswered(session)
    if not has_room(waiting, file.lines, limits.intake):
        raise CapacityExceeded(
            f"The queue holds {waiting:,} of {limits.intake:,} requests and has no room for {file.lines:,} more. "
            "Try again later.",
            retry_after=RETRY_AFTER,
        )
    return file.lines
