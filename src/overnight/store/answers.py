"""Answers: recorded once, in segments that are appended and never rewritten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from overnight.domain.limits import FRAME_LINES
from overnight.domain.outcome import NO_USAGE, Usage
from overnight.store import zstd
from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("answer")
_RECORD = _SQL["record_if_alive"]

OUTPUT = 0
ERROR = 1
"""The two result streams of a batch: requests with a response, and the others."""

SEGMENTS_AT_ONCE = 4


class Fenced(Exception):
    """A write of a worker that was declared dead: nothing was written."""


class Answer(msgspec.Struct):
    """The final outcome of one request, with its line as the result file holds it."""

    line: int
    text: bytes
    kind: int
    tries: int
    status: int | None = None
    code: str | None = None
    started_ms: int | None = None
    took_ms: int | None = None
    usage: Usage = NO_USAGE
    ran: bool = True
    """False for a request that never ran because its batch was cancelled: it is in no count."""


@dataclass(slots=True)
class _Columns:
    """The arguments of the recording statement, grown column by column."""

    batches: dict[str, list[int]] = field(
        default_factory=lambda: {
            name: []
            for name in (
                "batches", "completed", "failed", "cancelled", "input_tokens", "cached_tokens", "output_tokens",
                "reasoning_tokens", "output_bytes", "error_bytes",
            )
        }
    )  # fmt: skip
    segments: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    answers: list[tuple[int | str | None, ...]] = field(default_factory=list)


async def record(session: Session, worker: int, flush: Iterable[tuple[int, list[Answer]]]) -> int:
    """Store the answers of some batches, each a (batch, answers) pair, all or none; return how many were stored.

    Fewer come back where a batch was deleted meanwhile. Raises Fenced where the worker was declared dead, and
    asyncpg.UniqueViolationError where a request is answered already: then nothing of the flush is written.
    """
    columns = _Columns()
    for batch, answers in flush:
        _add(columns, batch, answers)
    row = await session.connection.fetchrow(_RECORD.sql, *_arguments(columns, worker))
    if not row["alive"]:
        raise Fenced
    stored: int = row["answers"]
    return stored


def _add(columns: _Columns, batch: int, answers: list[Answer]) -> None:
    sizes = [0, 0]
    for kind in (OUTPUT, ERROR):
        of_kind = [a for a in answers if a.kind == kind]
        if not of_kind:
            continue
        frames: list[bytes] = []
        at = 0
        for i in range(0, len(of_kind), FRAME_LINES):
            group = of_kind[i : i + FRAME_LINES]
            text = b"".join([a.text for a in group])
            frame = zstd.compress(text)
            frames.append(frame)
            sizes[kind] += len(text)
            columns.answers += [_row(batch, a, index, at, len(frame)) for index, a in enumerate(group)]
            at += len(frame)
        columns.segments.append((batch, kind, sizes[kind], len(of_kind), b"".join(frames)))
    count = columns.batches
    count["batches"].append(batch)
    count["completed"].append(sum(a.kind == OUTPUT for a in answers))
    count["failed"].append(sum(a.kind == ERROR and a.ran for a in answers))
    count["cancelled"].append(sum(not a.ran for a in answers))
    count["input_tokens"].append(sum(a.usage.input for a in answers))
    count["cached_tokens"].append(sum(a.usage.cached for a in answers))
    count["output_tokens"].append(sum(a.usage.output for a in answers))
    count["reasoning_tokens"].append(sum(a.usage.reasoning for a in answers))
    count["output_bytes"].append(sizes[OUTPUT])
    count["error_bytes"].append(sizes[ERROR])


def _row(batch: int, a: Answer, index: int, frame_at: int, frame_bytes: int) -> tuple[int | str | None, ...]:
    usage = a.usage
    return (
        batch, a.line, a.kind, a.status, a.tries, index, frame_at, frame_bytes, a.started_ms, a.took_ms,
        usage.input, usage.cached, usage.output, usage.reasoning, a.code,
    )  # fmt: skip


_SEGMENT_COLUMNS = ("s_batch", "s_kind", "s_bytes", "s_lines", "s_data")
_ANSWER_COLUMNS = (
    "a_batch", "a_line", "a_kind", "a_status", "a_tries", "a_frame_index", "a_frame_at", "a_frame_bytes",
    "a_started_ms", "a_took_ms", "a_input_tokens", "a_cached_tokens", "a_output_tokens", "a_reasoning_tokens", "a_code",
)  # fmt: skip


def _arguments(columns: _Columns, worker: int) -> list[object]:
    given: dict[str, object] = {"worker": worker, **columns.batches}
    given.update(_turned(_SEGMENT_COLUMNS, columns.segments))
    turned = _turned(_ANSWER_COLUMNS, columns.answers)
    given["a_code"] = _array_of_codes(turned.pop("a_code"))
    given.update((name, _array_of_numbers(numbers)) for name, numbers in turned.items())
    return _RECORD.arguments(given)


def _turned(names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    if not rows:
        return {name: [] for name in names}
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _array_of_numbers(numbers: list[int | None]) -> str:
    """Numbers as PostgreSQL writes an array. asyncpg takes six times as long, and there are fifteen an answer."""
    return "{" + str(numbers)[1:-1].replace("None", "NULL") + "}"


def _array_of_codes(codes: list[str | None]) -> str:
    return "{" + ",".join(["NULL" if code is None else _quoted(code) for code in codes]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def last_errors(session: Session, batch: int, lines: Sequence[int]) -> list[Row]:
    """How the last try of each of these lines failed, of those that used up a try."""
    return await session.rows(_SQL["list_last_errors"], batch=batch, lines=lines)


async def count_codes(store: Store, batch: int, most: int) -> list[tuple[str, int]]:
    """The most frequent error codes of a batch with the number of requests; reads all its answers."""
    return [(row["code"], row["requests"]) for row in await store.rows(_SQL["count_codes"], batch=batch, most=most)]


async def list_times(store: Store, batch: int) -> list[int]:
    """Milliseconds that the last try of each request with a response took."""
    return [row["took_ms"] for row in await store.rows(_SQL["list_times"], batch=batch)]


async def stream(store: Store, batch: int, kind: int, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yield the bytes [start, stop) of a batch's result stream in pieces; holds a few segments, compressed, at a time.

    Ends early where the stream has no more bytes (yet), or some are gone. Raises zstd.Damaged.
    """
    while start < stop:
        rows = await store.rows(
            _SQL["list_segments"], batch=batch, kind=kind, start=start, stop=stop, most=SEGMENTS_AT_ONCE
        )
        at = start
        for row in rows:
            begins = row["starts"]
            if begins + row["bytes"] <= start:
                continue
            if begins > start:
                return
            for piece in zstd.read(row["data"], start - begins, min(stop - begins, row["bytes"])):
                start += len(piece)
                yield piece
        if start == at:
            return
