"""Create a batch: check the call, then store the batch; a file is checked in the background, direct requests before."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from overnight.batches import direct, find, idempotency, room
from overnight.batches.direct import Prepared
from overnight.batches.idempotency import Key
from overnight.batches.request import NewBatch
from overnight.batches.request import read_create as read_create
from overnight.batches.shape import BatchView
from overnight.domain import events, ids
from overnight.domain.errors import DuplicateBatch, FileNotFound, FileNotUsable
from overnight.domain.limits import Limits
from overnight.domain.targets import TARGETS
from overnight.domain.window import window_of
from overnight.files import find as find_file
from overnight.files.keep import Kept
from overnight.files.shape import StoredFile
from overnight.store import accounts, batches, blocks
from overnight.store.batches import Terms
from overnight.store.pool import LOST, Session, Store
from overnight.store.served import list_served

LONGEST_IN_DOUBT = 30.0
"""Seconds in which a create whose commit broke finds out whether it happened."""


async def create(
    store: Store,
    limits: Limits,
    owner: int,
    new: NewBatch,
    key: Key | None = None,
    *,
    retry_of: UUID | None = None,
    kept: Kept | None = None,
) -> BatchView:
    """Store a batch in the state `validating`, or return the one that was made under this key meanwhile.

    A retry of a batch that has one under way already is that one. `kept` is its input where that is a file of the
    server's own, which appears together with the batch.

    Raises FileNotUsable, DuplicateBatch where the file has an unfinished batch already, what `direct.prepare` raises
    where requests have problems, InvalidParameter where the window may not be had, what `room.refuse_without_room`
    raises, and what `idempotency.replay` raises. Creates are counted one after the other, so all limits are exact.
    """
    is_local = await accounts.is_local(store, owner)
    terms = _terms(new, limits, limits.most_requests(is_local))
    source = await _source(store, terms, owner, new) if kept is None else kept
    batch_id = ids.new(time.time_ns() // 1_000_000)
    at_commit = False
    try:
        async with store.transaction() as session:
            await batches.serialise_creates(session)
            view = await _made_before(session, owner, key, retry_of)
            if view is None:
                file_or_requests = await source.appear(session) if isinstance(source, Kept) else source
                if isinstance(file_or_requests, StoredFile) and limits.one_batch_per_file:
                    await _refuse_second(session, file_or_requests)
                total = _requests_to_queue(file_or_requests, terms.most_requests)
                await room.refuse_without_room(session, limits, owner, total, is_local=is_local)
                number = await _store(session, terms, owner, new, file_or_requests, batch_id, total, retry_of)
                if key is not None:
                    await idempotency.remember(session, owner, key, number)
                view = await find.in_session(session, owner, batch_id)
            at_commit = True
    except LOST:
        # A caller who is told of an error must be able to rely on nothing being run.
        view = await _find_committed(store, owner, batch_id) if at_commit else None
        if view is None:
            raise
    assert view is not None
    if view.id == batch_id:
        events.tell("batch_created", batch=view.public_id, number=view.no, requests=view.counts.total)
    return view


async def _find_committed(store: Store, owner: int, batch_id: UUID) -> BatchView | None:
    """The batch whose commit nobody heard the end of, None where it did not happen or the database stays away.

    The lock of creates is had only when the transaction of before has ended, one way or the other.
    """
    ends = time.monotonic() + LONGEST_IN_DOUBT
    while (left := ends - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(left), store.transaction() as session:
                await batches.serialise_creates(session)
                return await find.in_session(session, owner, batch_id)
        except LOST:
            await asyncio.sleep(0.1)
    return None


async def _made_before(session: Session, owner: int, key: Key | None, retry_of: UUID | None) -> BatchView | None:
    made = None if key is None else await idempotency.replay_in_session(session, owner, key)
    if made is None and retry_of is not None:
        made = await find.retry_under_way(session, owner, retry_of)
    return made


def _terms(new: NewBatch, limits: Limits, most_requests: int) -> Terms:
    """What the batch is promised. Raises InvalidParameter where it asks for a window that it may not have."""
    completion_window, window = window_of(new.completion_window, limits.window, limits.longest_window)
    return Terms(
        completion_window,
        window,
        new.output_expires_after,
        # A result is kept at least as long as was asked for: it is no copy, and goes with its batch.
        retention=max(limits.retention, new.kept_for) if new.kept_for else limits.retention,
        most_requests=most_requests,
        line_bytes=limits.line_bytes,
        results_bytes=limits.results_bytes,
    )


async def _source(store: Store, terms: Terms, owner: int, new: NewBatch) -> Prepared | StoredFile:
    if new.requests is not None:
        return await direct.prepare(new, terms.most_requests, terms.line_bytes, await list_served(store))
    assert new.input_file_id is not None
    return await _usable_file(store, owner, new.input_file_id)


async def _store(
    session: Session,
    terms: Terms,
    owner: int,
    new: NewBatch,
    source: Prepared | StoredFile,
    batch_id: UUID,
    total: int,
    retry_of: UUID | None,
) -> int:
    prepared = source if isinstance(source, Prepared) else None
    endpoint = new.endpoint if prepared is None else prepared.endpoint
    assert endpoint is not None
    number = await batches.create(
        session,
        batch_id=batch_id,
        owner=owner,
        target=TARGETS[endpoint].name,
        endpoint=endpoint,
        input_file=None if isinstance(source, Prepared) else (source.no, source.id),
        metadata=new.metadata,
        defaults=new.defaults,
        total=total,
        terms=terms,
        model=None if prepared is None else prepared.model,
        unresolved=prepared is not None and prepared.unresolved,
        retry_of=retry_of,
    )
    if prepared is not None:
        await blocks.write_all(session, number, prepared.blocks)
        await prepared.roll.write(session, number, whole=True)
    return number


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


def _requests_to_queue(source: Prepared | StoredFile, most: int) -> int:
    """How many requests join the queue; none where it is known that the batch will be refused."""
    if isinstance(source, Prepared):
        return source.requests
    return 0 if source.problem_count or source.lines > most else source.lines
