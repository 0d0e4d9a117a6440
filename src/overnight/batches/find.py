"""Look at one's batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from overnight.batches.shape import BatchView, of_row
from overnight.domain import ids
from overnight.domain.errors import BatchNotFound, InvalidParameter
from overnight.domain.states import FINAL, Status
from overnight.domain.targets import ENDPOINTS, TARGETS
from overnight.store import batches
from overnight.store.pool import Row, Session, Store

LIMITS = range(1, 101)
LONGEST_SEARCH = 512
LATEST = 32_503_680_000
"""Unix seconds: the year 3000."""


async def get(store: Store, owner: int, batch_id: str) -> BatchView:
    """Return a batch by its public id. Raises BatchNotFound."""
    known = ids.read(ids.BATCH, batch_id)
    if known is None:
        raise not_found(batch_id)
    async with store.session() as session:
        view = await in_session(session, owner, known)
    if view is None:
        raise not_found(batch_id)
    return view


async def in_session(session: Session, owner: int, batch_id: UUID) -> BatchView | None:
    """Return a batch as this connection sees it; None where this owner has none of the id."""
    row = await batches.find(session, owner, batch_id)
    return None if row is None else of_row(row, row)


async def retry_under_way(session: Session, owner: int, batch_id: UUID) -> BatchView | None:
    """Return the retry of a batch that may still run all it was made for; None where there is none."""
    known = await batches.find_unfinished_retry(session, owner, batch_id)
    return None if known is None else await in_session(session, owner, known)


async def page(
    store: Store,
    owner: int,
    *,
    limit: int,
    after: str | None,
    q: str | None = None,
    status: Sequence[str] = (),
    endpoint: str | None = None,
    model: str | None = None,
    created_after: int | None = None,
    created_before: int | None = None,
) -> tuple[list[BatchView], bool]:
    """Return up to `limit` batches, newest first, and whether there are more of those that are wanted.

    `after` is the public id of the batch before the page; `q` is how an id begins, or a part of a metadata value in
    whatever case; `status` keeps those in one of these states, `endpoint` and `model` those that have this one, and
    `created_after` and `created_before` those whose `created_at`, in whole unix seconds, is larger or smaller.
    Raises InvalidParameter.
    """
    _refuse_unless_known(limit, status, endpoint)
    for name, value in (("q", q), ("model", model)):
        if value is not None and (len(value) > LONGEST_SEARCH or "\0" in value):
            says = f"{name} must be at most {LONGEST_SEARCH} characters without a zero character."
            raise InvalidParameter(says, param=name)
    async with store.session() as session:
        before = batches.NEWEST if after is None else await _place(session, owner, after)
        rows = await batches.page(
            session,
            owner,
            before=before,
            statuses=sorted(set(status) or Status),
            endpoint=endpoint,
            model=model,
            since=_second(created_after, "created_after", 1),
            until=_second(created_before, "created_before", 0),
            text=q or None,
            id_range=_ids_that_begin(q) if q else None,
            most=limit + 1,
        )
        return await _views(session, rows[:limit]), len(rows) > limit


def _refuse_unless_known(limit: int, status: Sequence[str], endpoint: str | None) -> None:
    if limit not in LIMITS:
        raise InvalidParameter(f"limit must be from {LIMITS[0]} to {LIMITS[-1]}.", param="limit")
    for value in status:
        if value not in set(Status):
            raise InvalidParameter(f"status must be one of {', '.join(Status)}.", param="status")
    if endpoint is not None and endpoint not in TARGETS:
        raise InvalidParameter(f"endpoint must be one of {ENDPOINTS}.", param="endpoint")


def _second(given: int | None, name: str, later: int) -> datetime | None:
    """The moment at which a second begins, or one that is so many later; None where none is given."""
    if given is None:
        return None
    if not 0 <= given <= LATEST:
        raise InvalidParameter(f"{name} must be a time in whole unix seconds from 0 to {LATEST}.", param=name)
    return datetime.fromtimestamp(given + later, UTC)


async def _place(session: Session, owner: int, after: str) -> int:
    known = ids.read(ids.BATCH, after)
    place = None if known is None else await batches.find_place(session, owner, known)
    if place is None:
        raise InvalidParameter("`after` is not the id of one of your batches.", param="after")
    return place


def _ids_that_begin(q: str) -> tuple[UUID, UUID] | None:
    """The first and the last id that begin as `q` does, with or without the prefix of batches or a part of it."""
    if ids.BATCH.startswith(q) and len(q) > 1:
        return UUID(int=0), UUID(int=2**128 - 1)
    digits = q.removeprefix(ids.BATCH)
    if not 1 <= len(digits) <= 32 or not all(c in "0123456789abcdef" for c in digits):
        return None
    return UUID(hex=digits.ljust(32, "0")), UUID(hex=digits.ljust(32, "f"))


async def _views(session: Session, rows: Sequence[Row]) -> list[BatchView]:
    unfinished = [row["no"] for row in rows if row["status"] not in FINAL]
    measured = await batches.measure_progress(session, unfinished)
    return [of_row(row, measured.get(row["no"])) for row in rows]


def not_found(batch_id: str) -> BatchNotFound:
    """What is raised for an id that is unknown, of somebody else or deleted: all read the same."""
    shown = batch_id if len(batch_id) <= 80 else batch_id[:77] + "..."
    return BatchNotFound(f"There is no batch {shown!r}. It may have been deleted.")
