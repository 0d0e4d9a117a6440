"""Answers: recorded once, in segments that are appended and never rewritten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import accumulate, chain, cycle, islice, repeat
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


class Answer(msgspec.Struct, gc=False):
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


_COUNTS = (
    "batches", "completed", "failed", "cancelled", "input_tokens", "cached_tokens", "output_tokens",
    "reasoning_tokens", "output_bytes", "error_bytes",
)  # fmt: skip
_SEGMENT_COLUMNS = ("s_batch", "s_kind", "s_bytes", "s_lines", "s_data")
_ANSWER_COLUMNS = (
    "a_batch", "a_line", "a_kind", "a_status", "a_tries", "a_frame_index", "a_frame_at", "a_frame_bytes",
    "a_started_ms", "a_took_ms", "a_input_tokens", "a_cached_tokens", "a_output_tokens", "a_reasoning_tokens",
)  # fmt: skip


class _Columns:
    """The arguments of the recording statement, grown column by column."""

    def __init__(self) -> None:
        self.batches: dict[str, list[int]] = {name: [] for name in _COUNTS}
        self.segments: dict[str, list[int | bytes]] = {name: [] for name in _SEGMENT_COLUMNS}
        self.answers: dict[str, list[int | None]] = {name: [] for name in _ANSWER_COLUMNS}
        self.codes: list[str | None] = []


async def record(session: Session, worker: int, flush: Iterable[tuple[int, list[Answer]]]) -> int:
    """Store the answers of some batches, each a (batch, answers) pair, all or none; return how many were stored.

    Fewer come back where a batch was deleted meanwhile. Raises Fenced where the worker was declared dead, and
    asyncpg.UniqueViolationError where a request is answered already: then nothing of the flush is written.
    """
    columns = _Columns()
    for batch, answers in flush:
        _add(columns, batch, answers)
    row = await session.ask(session.connection.fetchrow, _RECORD.sql, *_arguments(columns, worker))
    if not row["alive"]:
        raise Fenced
    stored: int = row["answers"]
    return stored


def _add(columns: _Columns, batch: int, answers: list[Answer]) -> None:
    outputs = [a for a in answers if a.kind == OUTPUT]
    errors = [a for a in answers if a.kind == ERROR]
    cancelled = sum([not a.ran for a in answers])
    usages = [a.usage for a in answers]
    _grow(
        columns.batches,
        batches=[batch],
        completed=[len(outputs)],
        failed=[sum([a.ran for a in errors])],
        cancelled=[cancelled],
        input_tokens=[sum([usage.input for usage in usages])],
        cached_tokens=[sum([usage.cached for usage in usages])],
        output_tokens=[sum([usage.output for usage in usages])],
        reasoning_tokens=[sum([usage.reasoning for usage in usages])],
        output_bytes=[_add_segment(columns, batch, OUTPUT, outputs) if outputs else 0],
        error_bytes=[_add_segment(columns, batch, ERROR, errors) if errors else 0],
    )


def _add_segment(columns: _Columns, batch: int, kind: int, answers: list[Answer]) -> int:
    """Add answers of one kind; returns the bytes of their lines."""
    count = len(answers)
    lines = [a.text for a in answers]
    frames = [zstd.compress(b"".join(lines[i : i + FRAME_LINES])) for i in range(0, count, FRAME_LINES)]
    sizes = [len(frame) for frame in frames]
    starts = accumulate(sizes, initial=0)
    size = sum(map(len, lines))
    data = b"".join(frames)
    _grow(columns.segments, s_batch=[batch], s_kind=[kind], s_bytes=[size], s_lines=[count], s_data=[data])
    usages = [a.usage for a in answers]
    _grow(
        columns.answers,
        a_batch=[batch] * count,
        a_line=[a.line for a in answers],
        a_kind=[kind] * count,
        a_status=[a.status for a in answers],
        a_tries=[a.tries for a in answers],
        a_frame_index=islice(cycle(range(FRAME_LINES)), count),
        a_frame_at=_of_each_line(starts, count),
        a_frame_bytes=_of_each_line(sizes, count),
        a_started_ms=[a.started_ms for a in answers],
        a_took_ms=[a.took_ms for a in answers],
        a_input_tokens=[usage.input for usage in usages],
        a_cached_tokens=[usage.cached for usage in usages],
        a_output_tokens=[usage.output for usage in usages],
        a_reasoning_tokens=[usage.reasoning for usage in usages],
    )
    columns.codes += [a.code for a in answers]
    return size


def _of_each_line(of_frames: Iterable[int], count: int) -> Iterable[int]:
    """What is known of frames, for each of `count` lines in them."""
    return islice(chain.from_iterable(map(repeat, of_frames, repeat(FRAME_LINES))), count)


def _grow(columns: dict[str, list[Any]], **more: Iterable[Any]) -> None:
    """Add to columns, to each as many values as to the others."""
    for name, values in more.items():
        columns[name] += values


def _arguments(columns: _Columns, worker: int) -> list[object]:
    given: dict[str, object] = {"worker": worker, **columns.batches, **columns.segments}
    given.update((name, _array_of_numbers(numbers)) for name, numbers in columns.answers.items())
    given["a_code"] = _array_of_codes(columns.codes)
    return _RECORD.arguments(given)


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
