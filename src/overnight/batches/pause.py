"""Pause a batch, and let it go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from overnight.batches import find
from overnight.batches.shape import BatchView
from overnight.domain import events, ids
from overnight.domain.errors import InvalidParameter
from overnight.domain.states import Status
from overnight.store import batches
from overnight.store.pool import Session, Store

BY_USER: dict[str, Any] = {"reason": "user", "by": None, "until": None}

_MAY_START = (Status.VALIDATING, Status.IN_PROGRESS)


async def pause(store: Store, owner: int, batch_id: str) -> BatchView:
    """Start nothing of an owner's batch until it is resumed; what runs finishes, and its window goes on.

    Pausing twice changes nothing. Raises BatchNotFound, and InvalidParameter where nothing of the batch could start
    any more: who pauses it takes it for one that can go on later, so silence would mislead.
    """

    async def pause_it(session: Session, batch: int) -> bool:
        return await batches.pause_if_it_may_start(session, owner, batch, BY_USER)

    view, changed = await _change(store, owner, batch_id, "paused", pause_it)
    if changed:
        events.tell("batch_paused", batch=view.public_id)
    return view


async def resume(store: Store, owner: int, batch_id: str) -> BatchView:
    """Let an owner's batch go on. One that is not paused, or not by its owner, is returned as it is.

    Raises BatchNotFound, and InvalidParameter where nothing of the batch could start any more.
    """

    async def resume_it(session: Session, batch: int) -> bool:
        return await batches.resume_if_paused_by_user(session, owner, batch)

    view, changed = await _change(store, owner, batch_id, "resumed", resume_it)
    if changed:
        events.tell("batch_resumed", batch=view.public_id)
    return view


async def _change(
    store: Store, owner: int, batch_id: str, done: str, change: Callable[[Session, int], Awaitable[bool]]
) -> tuple[BatchView, bool]:
    known = ids.read(ids.BATCH, batch_id)
    if known is None:
        raise find.not_found(batch_id)
    async with store.session() as session:
        number = await batches.find_place(session, owner, known)
        changed = number is not None and await change(session, number)
        view = await find.in_session(session, owner, known)
    if view is None:
        raise find.not_found(batch_id)
    if not changed and view.status not in _MAY_START:
        raise InvalidParameter(f"The batch is {view.status.value}; only one whose requests may start can be {done}.")
    return view, changed
