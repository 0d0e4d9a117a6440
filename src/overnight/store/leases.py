"""What a worker holds and is about to send, as the database knows it: leases, attempts, tries that were not final.

Every write here is fenced: it raises `Fenced` where the worker was declared dead, and then nothing was written.

How tries are counted: an attempt is written down before it is sent, and each is a try, unless a `call` row of that
line says that it did not count. An attempt without any outcome, lost with its worker, is a try.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from overnight.store.answers import Fenced
from overnight.store.blocks import unpack
from overnight.store.pool import Row, Session
from overnight.store.statements import Statement, load

_SQL = load("lease")
_ANSWERS = load("answer")

SCHEMA = 1
"""Batches of a newer schema are left to newer workers."""

_LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which blocks a worker asks for.

    `models` None means any but `other_models`. At most `of_each` blocks of a batch are given, `of_owner` of an owner
    and `most` in all; batches in `skipped` and owners in `fed` give none. Owners numbered above `after` come first.
    `places` says of an owner when and which batch was due before which nothing was ready a moment ago.
    """

    models: Sequence[str] | None
    other_models: Sequence[str]
    most: int
    of_each: int
    of_owner: int | None = None
    after: int = 0
    only: Sequence[int] | None = None
    skipped: Sequence[int] = ()
    held: Sequence[int] = ()
    """Batches in `skipped` that give a block each all the same if it went back, beyond `most`."""
    fed: Sequence[int] = ()
    places: Mapping[int, tuple[datetime, int]] = field(default_factory=dict)
    in_order: bool = True
    """Nothing is left out but for want of room: where there was some, no other block of these owners is ready."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many requests of a batch are left, how many were answered, and in how many seconds."""

    left: int
    answered: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    """What a worker needs to know of a batch."""

    no: int
    id: UUID
    owner: int
    endpoint: str
    defaults: dict[str, Any]
    expires_at: datetime | None
    due: datetime
    """The end of its window, or a moment long after its creation."""
    pace: Pace
    results_left: int | None = None
    """Bytes of responses that it may still store; None: there is no limit."""


@dataclass(frozen=True, slots=True)
class LeasedBlock:
    """Requests that are ours until they are answered or given back, in the order in which they are to start."""

    batch: LeasedBatch
    seq: int
    model: str
    was_leased_before: bool
    lines: list[int]
    requests: list[bytes]


@dataclass(frozen=True, slots=True)
class Past:
    """What became of a line before: how often it was sent, how many of these were no tries and how many were lost
    with their worker or their engine, and when it may start again."""

    sent: int
    uncounted: int
    losses: int
    again_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A try that was not final. `attempt` counts the line's attempts from 1.

    One that used up no try is not `counted`; `lost` is one under which a local engine died.
    """

    batch: int
    line: int
    attempt: int
    took_ms: int
    status: int | None
    code: str
    message: str
    again_at: datetime | None
    counted: bool = True
    lost: bool = False


@dataclass(frozen=True, slots=True)
class BatchState:
    """Whether a batch may still start requests, and how fast it is."""

    is_live: bool
    pace: Pace


async def _fenced(session: Session, statement: Statement, **given: Any) -> Row:
    row = await session.row(statement, **given)
    if not row["alive"]:  # type: ignore[index]  # these statements always give a row
        raise Fenced
    return row


async def lease(session: Session, worker: int, wanted: Wanted) -> tuple[list[LeasedBlock], datetime]:
    """Lease ready blocks of batches that may start requests; also return the database's clock."""
    rows = await session.rows(
        _SQL["lease_blocks_if_alive"],
        worker=worker,
        schema=SCHEMA,
        models=wanted.models,
        other_models=wanted.other_models,
        most=wanted.most,
        of_owner=wanted.of_owner,
        of_each=wanted.of_each,
        after=wanted.after,
        only=wanted.only,
        skipped=wanted.skipped,
        held=wanted.held,
        fed=wanted.fed,
        owners=list(wanted.places),
        dues=[due.astimezone(UTC).replace(tzinfo=None) for due, _ in wanted.places.values()],
        nos=[no for _, no in wanted.places.values()],
    )
    if not rows[0]["alive"]:
        raise Fenced
    batches: dict[int, LeasedBatch] = {}
    blocks = []
    for row in rows:
        no = row["batch"]
        if no is None:
            continue
        if no not in batches:
            batches[no] = _batch(row)
        blocks.append(_block(batches[no], row))
    return blocks, rows[0]["now"]


def _batch(row: Row) -> LeasedBatch:
    return LeasedBatch(
        no=row["batch"],
        id=row["id"],
        owner=row["owner"],
        endpoint=row["endpoint"],
        defaults=row["defaults"],
        expires_at=row["expires_at"],
        due=row["due"].replace(tzinfo=UTC),
        pace=_pace(row),
        results_left=row["results_left"],
    )


def _pace(row: Row) -> Pace:
    return Pace(row["unanswered"], row["answered"], row["seconds"] or 0.0)


def _block(batch: LeasedBatch, row: Row) -> LeasedBlock:
    requests = unpack(row["data"])
    if len(requests) != len(row["lines"]):
        raise ValueError(f"block {row['seq']} of batch {batch.no} holds {len(requests)} of {len(row['lines'])} lines")
    return LeasedBlock(batch, row["seq"], row["model"], row["leases"] > 1, row["lines"], requests)


async def answered(session: Session, batch: int, lines: Sequence[int]) -> set[int]:
    """Which of these lines have an answer."""
    rows = await session.rows(_ANSWERS["list_answered_lines"], batch=batch, lines=lines)
    return {row["line"] for row in rows}


async def past(session: Session, batch: int, seq: int, lines: Sequence[int]) -> dict[int, Past]:
    """What became of the lines of a block before; lines that were never sent are missing."""
    counts = await session.rows(_SQL["count_tries_of_block"], batch=batch, seq=seq, lines=lines)
    calls = await session.rows(_ANSWERS["list_last_calls"], batch=batch, lines=lines)
    again_at = {row["line"]: row["again_at"] for row in calls}
    return {
        row["line"]: Past(row["sent"], row["uncounted"], row["losses"], again_at.get(row["line"])) for row in counts
    }


async def write_down(
    session: Session, worker: int, no: int, groups: dict[int, tuple[list[int], list[int]]]
) -> set[int]:
    """Write down what is about to be sent: batch → (its lines, the blocks that these belong to).

    `no` counts the worker's groups. Returns the batches whose lines were written: those that may start requests.
    """
    lines: list[int] = []
    blocks: list[int] = []
    cuts: list[tuple[int, int, int, int]] = []
    for of_batch, of_blocks in groups.values():
        cuts.append((len(lines) + 1, len(lines) + len(of_batch), len(blocks) + 1, len(blocks) + len(of_blocks)))
        lines += of_batch
        blocks += of_blocks
    firsts, lasts, first_blocks, last_blocks = zip(*cuts, strict=True)
    row = await _fenced(
        session,
        _SQL["write_down_if_alive"],
        worker=worker,
        no=no,
        batches=list(groups),
        lines=lines,
        blocks=blocks,
        firsts=firsts,
        lasts=lasts,
        first_blocks=first_blocks,
        last_blocks=last_blocks,
    )
    return set(row["batches"] or ())


async def take_back(session: Session, worker: int, unsent: Sequence[tuple[int, int, int]]) -> None:
    """Unwrite lines that were never sent: (batch, number of the group, line) each."""
    batches, nos, lines = zip(*unsent, strict=True)
    await _fenced(session, _SQL["take_back_if_alive"], worker=worker, batches=batches, nos=nos, lines=lines)


async def note_calls(session: Session, worker: int, calls: Sequence[FailedCall]) -> None:
    """Store tries that were not final; noting one again changes nothing."""
    await _fenced(
        session,
        _SQL["note_calls_if_alive"],
        worker=worker,
        batches=[c.batch for c in calls],
        lines=[c.line for c in calls],
        tries=[c.attempt for c in calls],
        took_ms=[c.took_ms for c in calls],
        statuses=[c.status for c in calls],
        codes=[c.code for c in calls],
        messages=[_storable(c.message) for c in calls],
        counted=[c.counted for c in calls],
        lost=[c.lost for c in calls],
        again_at=[c.again_at for c in calls],
    )


def _storable(message: str) -> str:
    """PostgreSQL's text holds no zero character, and asyncpg sends no lone surrogates."""
    return message[:_LONGEST_MESSAGE].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


async def end_leases(session: Session, worker: int, blocks: Iterable[tuple[int, int, bool]]) -> None:
    """Let go of blocks: (batch, seq, whether all their requests are answered) each."""
    ended = list(blocks)
    await _fenced(
        session,
        _SQL["end_leases_if_ours"],
        worker=worker,
        batches=[batch for batch, _, _ in ended],
        seqs=[seq for _, seq, _ in ended],
        states=["done" if is_done else "ready" for _, _, is_done in ended],
    )


async def list_leases(session: Session, worker: int) -> list[tuple[int, int]]:
    """The blocks that a worker holds: (batch, seq) each."""
    return [(row["batch"], row["seq"]) for row in await session.rows(_SQL["list_leases"], worker=worker)]


async def states(session: Session, batches: Sequence[int]) -> tuple[dict[int, BatchState], datetime | None]:
    """How the batches stand; deleted ones are missing. Also return the database's clock, None without any."""
    rows = await session.rows(_SQL["list_batch_states"], batches=batches)
    found = {row["no"]: BatchState(row["is_live"], _pace(row)) for row in rows}
    return found, rows[0]["now"] if rows else None
