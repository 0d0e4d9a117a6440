"""Results by request: the lines of a batch's answers in the order of submission, and what is known of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from overnight.domain.limits import MIB
from overnight.store import zstd
from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("result")

FRAME_BYTES_AT_ONCE = 8 * MIB
"""Compressed bytes that one look at answers brings along, and one frame more: a frame holds at most 8 results."""

KEPT_AHEAD = 8 * MIB
"""Bytes of results that are kept for later lines because they lie in a frame that was opened for an earlier one."""

LAST_LINE = 2**31 - 1

Place: TypeAlias = tuple[int, int, int]
"""A frame: kind, segment, where in it."""


@dataclass(frozen=True, slots=True)
class Result:
    """An answered request: `text` is its line of the result file, without the line end."""

    line: int
    code: str | None
    tries: int
    text: bytes


async def find_streams(session: Session, owner: int, batch_id: UUID, line: int | None = None) -> Row | None:
    """Where a batch stands, how much its two result streams hold, and whether a line of it has an answer."""
    return await session.row(_SQL["find_streams"], owner=owner, id=batch_id, line=line)


async def answers(
    session: Session, batch: int, first: int, most: int, last: int = LAST_LINE
) -> tuple[Iterator[Result], int]:
    """The answers of the lines `first` … `last` in their order, at most `most`, and how many of them there are.

    Fewer come where they are large: as many as lie in FRAME_BYTES_AT_ONCE compressed bytes, and at least one.
    """
    rows = await session.rows(
        _SQL["list_answers"], batch=batch, first=first, last=last, most=most, most_bytes=FRAME_BYTES_AT_ONCE
    )
    return _open(rows), len(rows)


async def find_answer_after(store: Store, batch: int, skipped: int) -> int | None:
    """The line of the answer that `skipped` others stand before; None where there are not so many."""
    row = await store.row(_SQL["find_answer_after"], batch=batch, skipped=skipped)
    return None if row is None else row["line"]


async def describe_unanswered(session: Session, batch: int, lines: Sequence[int]) -> dict[int, Row]:
    """Of lines without an answer, in their order: `is_running`, `tries`, and how the last counted one failed."""
    if not lines:
        return {}
    rows = await session.rows(_SQL["describe_unanswered"], batch=batch, lines=lines, first=lines[0], last=lines[-1])
    return {row["line"]: row for row in rows}


def _open(rows: Sequence[Row]) -> Iterator[Result]:
    """Take the results out of their frames: each is opened once, unless what it holds for later is too much to keep."""
    frames: dict[Place, bytes] = {}
    wanted: dict[Place, list[Row]] = {}
    for row in rows:
        wanted.setdefault(_place(row), []).append(row)
    ahead: dict[int, bytes] = {}
    ahead_bytes = 0
    for row in rows:
        place = _place(row)
        if row["frame"] is not None:
            frames[place] = row["frame"]
        text = ahead.pop(row["line"], None)
        if text is not None:
            ahead_bytes -= len(text)
        elif place in frames:
            texts = zstd.decompress(frames[place]).split(b"\n")
            text = texts[row["frame_index"]]
            for other in wanted[place]:
                line, later = other["line"], texts[other["frame_index"]]
                if line > row["line"] and line not in ahead and ahead_bytes + len(later) <= KEPT_AHEAD:
                    ahead[line] = later
                    ahead_bytes += len(later)
        else:
            return
        yield Result(row["line"], row["code"], row["tries"], text)


def _place(row: Row) -> Place:
    return row["kind"], row["segment"], row["frame_at"]


async def find_byte(store: Store, batch: int, kind: int, skipped: int) -> int:
    """Where in a result stream the line begins that `skipped` others stand before; the stream must have so many."""
    if skipped == 0:
        return 0
    row = await store.row(_SQL["find_segment_of_line"], batch=batch, kind=kind, skipped=skipped)
    if row is None:
        raise LookupError(f"stream {kind} of batch {batch} has no line {skipped}")
    left = skipped - row["lines_before"]
    found: int = row["starts"]
    for piece in zstd.read(row["data"], 0, row["bytes"]):
        ends = piece.count(b"\n")
        if ends >= left:
            break
        left -= ends
        found += len(piece)
    return found + sum(len(line) + 1 for line in piece.split(b"\n", left)[:-1])
