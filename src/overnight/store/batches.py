"""Batches as they are stored: one row each, moved from state to state by guarded statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from overnight.domain import ids
from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("batch")

_END = {
    None: _SQL["complete_if_sealed"],
    "expired": _SQL["expire_if_sealed"],
    "failed": _SQL["fail_if_sealed"],
    "cancelled": _SQL["cancel_if_sealed"],
}
NEWEST = 2**63 - 1
"""Above the number of every batch."""


async def serialise_creates(session: Session) -> None:
    """Let no other create count or add before this transaction ends."""
    await session.run(_SQL["serialise_creates"])


async def measure_owner(session: Session, owner: int) -> tuple[int, int]:
    """How many unfinished batches an owner has, and how many of their requests are not answered."""
    row = await session.row(_SQL["measure_owner"], owner=owner)
    assert row is not None
    return row["batches"], row["requests"]


async def find_unfinished_of_file(session: Session, input_file: int) -> UUID | None:
    """The id of the unfinished batch that was made from a file."""
    row = await session.row(_SQL["find_unfinished_of_file"], input_file=input_file)
    return None if row is None else row["id"]


async def find_unfinished_retry(session: Session, owner: int, batch: UUID) -> UUID | None:
    """The id of the unfinished batch that runs again what another one has left, where it is not ending."""
    row = await session.row(_SQL["find_unfinished_retry"], owner=owner, batch=batch)
    return None if row is None else row["id"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a batch is promised when it is created; no change of a setting changes it."""

    completion_window: str
    """As it is shown."""
    window: timedelta | None
    output_expires_after: int | None
    """Seconds."""
    retention: timedelta
    most_requests: int
    line_bytes: int
    results_bytes: int | None
    """Of all its responses; None: no limit."""


async def create(
    session: Session,
    *,
    batch_id: UUID,
    owner: int,
    target: str,
    endpoint: str,
    input_file: tuple[int, UUID] | None,
    metadata: dict[str, str],
    defaults: dict[str, Any],
    total: int,
    terms: Terms,
    model: str | None = None,
    unresolved: bool = False,
    retry_of: UUID | None = None,
) -> int:
    """Store a new batch in the state `validating` and return its number.

    `input_file` is the number and the id of its file, None for a direct batch; `unresolved` says that the blocks of a
    direct batch name their models as its requests do.
    """
    row = await session.row(
        _SQL["create_batch"],
        id=batch_id,
        owner=owner,
        target=target,
        endpoint=endpoint,
        input_file=None if input_file is None else input_file[0],
        input_file_id=None if input_file is None else input_file[1],
        metadata=metadata,
        defaults=defaults,
        total=total,
        model=model,
        unresolved=unresolved,
        retry_of=retry_of,
        **asdict(terms),
    )
    assert row is not None
    return int(row["no"])


async def find(session: Session, owner: int, batch_id: UUID) -> Row | None:
    """An owner's batch, with what `measure_progress` says of it."""
    return await session.row(_SQL["find_batch"], owner=owner, id=batch_id)


async def find_to_retry(store: Store, batch: int) -> Row | None:
    """What a batch of another one's unfinished requests takes over from it."""
    return await store.row(_SQL["find_batch_to_retry"], batch=batch)


async def find_batch_no(store: Store, batch_id: str) -> int | None:
    """The number of the batch with a public id, whoever owns it."""
    found = ids.read(ids.BATCH, batch_id)
    row = None if found is None else await store.row(_SQL["find_batch_no"], id=found)
    return None if row is None else row["no"]


async def find_place(session: Session, owner: int, batch_id: UUID) -> int | None:
    """The number of an owner's batch, also of one that was deleted lately."""
    row = await session.row(_SQL["find_place"], id=batch_id, owner=owner)
    return None if row is None else row["no"]


async def page(
    session: Session,
    owner: int,
    *,
    before: int,
    statuses: Sequence[str],
    endpoint: str | None,
    model: str | None,
    since: datetime | None,
    until: datetime | None,
    text: str | None,
    id_range: tuple[UUID, UUID] | None,
    most: int,
) -> list[Row]:
    """An owner's batches below a number, newest first; all that is not None narrows them, see the statement.

    `since` is the first moment of creation that is wanted, `until` the first one after it that is not.
    """
    low, high = id_range or (None, None)
    return await session.rows(
        _SQL["list_batches"],
        owner=owner,
        before=before,
        statuses=list(statuses),
        endpoint=endpoint,
        model=model,
        since=since,
        until=until,
        text=text,
        low=low,
        high=high,
        most=most,
    )


async def measure_progress(session: Session, batches: Sequence[int]) -> dict[int, Row]:
    """For unfinished batches: number → `running`, `ahead`. What is exact is said at `progress_of`."""
    if not batches:
        return {}
    return {row["no"]: row for row in await session.rows(_SQL["measure_progress"], batches=list(batches))}


async def cancel_if_unfinished(session: Session, owner: int, batch: int) -> bool:
    """Let a batch start nothing more and end as cancelled."""
    return await session.row(_SQL["cancel_if_unfinished"], batch=batch, owner=owner) is not None


async def pause_if_it_may_start(session: Session, owner: int, batch: int, paused: dict[str, Any]) -> bool:
    """Let a batch start nothing until it is resumed; False where it is paused, or ends, already."""
    row = await session.row(_SQL["pause_if_it_may_start"], batch=batch, owner=owner, paused=paused)
    return row is not None


async def resume_if_paused_by_user(session: Session, owner: int, batch: int) -> bool:
    """Let a batch start requests again; False where it was not paused by its owner."""
    return await session.row(_SQL["resume_if_paused_by_user"], batch=batch, owner=owner) is not None


async def claim_validating(
    store: Store, worker: int, only: Sequence[int] | None = None, *, skipped: Sequence[int] = (), may_read: bool
) -> Row | None:
    """Take the next batch to be checked. Without `may_read` only those whose outcome is known without a model."""
    return await store.row(_SQL["claim_validating"], worker=worker, only=only, skipped=skipped, may_read=may_read)


async def hold_validating(session: Session, batch: int, worker: int) -> bool:
    """Keep a batch in the check of this worker until the transaction ends; False where it is no longer."""
    return await session.row(_SQL["hold_validating"], batch=batch, worker=worker) is not None


async def start_if_validated(session: Session, batch: int, worker: int, model: str | None, total: int) -> bool:
    """Let the requests of a checked batch run. `model` is None where they use several."""
    row = await session.row(_SQL["start_if_validated"], batch=batch, worker=worker, model=model, total=total)
    return row is not None


async def refuse_if_validating(
    session: Session, batch: int, worker: int, code: str, message: str, errors: list[dict[str, Any]]
) -> bool:
    """End a batch whose input has problems."""
    row = await session.row(
        _SQL["refuse_if_validating"],
        batch=batch,
        worker=worker,
        error_code=code,
        error_message=message,
        errors=errors,
    )
    return row is not None


async def close_if_window_ended(store: Store, only: Sequence[int] | None) -> list[Row]:
    """Let batches start nothing more whose window has ended; some at a time."""
    return await store.rows(_SQL["close_if_window_ended"], only=only)


async def list_paces(store: Store, after: int, most: int, only: Sequence[int] | None) -> list[Row]:
    """Batches with a window, above a number, how far they are, and whether it was told that they will be late."""
    return await store.rows(_SQL["list_paces"], after=after, most=most, only=only)


async def note_late_if_not_told(store: Store, late: Sequence[int]) -> list[Row]:
    """Of these batches those that nobody has told to be late yet."""
    return await store.rows(_SQL["note_late_if_not_told"], batches=late)


async def forget_that_late_was_told(store: Store, in_time: Sequence[int]) -> None:
    """These batches will be done in time after all."""
    await store.run(_SQL["forget_that_late_was_told"], batches=in_time)


async def claim_over(
    store: Store, worker: int, only: Sequence[int] | None = None, *, skipped: Sequence[int] = ()
) -> Row | None:
    """Take a batch whose work is over, to seal it: first one whose sealing was interrupted."""
    row = await store.row(_SQL["claim_finalizing"], worker=worker, only=only, skipped=skipped)
    return row or await store.row(_SQL["finalize_if_over"], worker=worker, only=only, skipped=skipped)


async def hold_finalizing(session: Session, batch: int, worker: int) -> Row | None:
    """Lock a batch that this worker seals until the transaction ends; None where it does so no longer."""
    return await session.row(_SQL["hold_finalizing"], batch=batch, worker=worker)


async def explain_if_unexplained(session: Session, batch: int, worker: int, code: str, message: str) -> None:
    """Say of a batch that this worker seals why no request of it got a response, or why not all when it expired."""
    await session.row(
        _SQL["explain_if_unexplained"], batch=batch, worker=worker, error_code=code, error_message=message
    )


async def end_if_sealed(
    session: Session, held: Row, worker: int, output_file_id: UUID | None, error_file_id: UUID | None
) -> bool:
    """Give a batch its final state, the one that `ends_as` names; False where requests are without an answer."""
    row = await session.row(
        _END[held["ends_as"]],
        batch=held["no"],
        worker=worker,
        output_file_id=output_file_id,
        error_file_id=error_file_id,
    )
    return row is not None


async def list_running(store: Store, after: int, most: int) -> list[Row]:
    """Batches that may get results, above a number."""
    return await store.rows(_SQL["list_running"], after=after, most=most)


async def list_ended(store: Store, since: datetime, after: int, most: int) -> list[Row]:
    """Batches with results that ended after a moment; those of the very moment above a number."""
    return await store.rows(_SQL["list_ended"], since=since, after=after, most=most)
