"""The roll of a batch: the names of its requests in the order in which they were submitted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from overnight.store import zstd
from overnight.store.pool import Session
from overnight.store.statements import load

_SQL = load("roll")

NAMES = 512
"""Names of a row: a page of 100 reads one or two, and a million requests take about 2,000."""

DELETED_AT_ONCE = 512

_COLUMNS = ("batch", "first", "count", "lines", "ids")
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(list[str]).decode


@dataclass(frozen=True, slots=True)
class Packed:
    """A row of a roll as it is stored."""

    first: int
    count: int
    lines: list[int] | None
    ids: bytes


@dataclass(slots=True)
class Writer:
    """Takes the names of a batch in the order of their lines; holds the rows that are not stored yet, compressed."""

    _lines: list[int] = field(default_factory=list)
    _ids: list[str] = field(default_factory=list)
    _packed: list[Packed] = field(default_factory=list)

    def add(self, line: int, custom_id: str) -> None:
        self._lines.append(line)
        self._ids.append(custom_id)
        if len(self._lines) >= NAMES:
            self._pack()

    def clear(self) -> None:
        """Forget what is not stored."""
        self._lines, self._ids, self._packed = [], [], []

    async def write(self, session: Session, batch: int, *, whole: bool = False) -> None:
        """Store full rows, and with `whole` the last one too; the caller's transaction holds the batch."""
        if whole and self._lines:
            self._pack()
        if self._packed:
            rows = [(batch, row.first, row.count, row.lines, row.ids) for row in self._packed]
            if len(rows) == 1:
                # A small batch: copying asks for the table's columns first, each time.
                await session.run(_SQL["insert_roll"], **dict(zip(_COLUMNS, rows[0], strict=True)))
            else:
                await session.ask(session.connection.copy_records_to_table, "roll", columns=_COLUMNS, records=rows)
            self._packed = []

    def _pack(self) -> None:
        lines, ids = self._lines, self._ids
        follow_each_other = lines[-1] - lines[0] == len(lines) - 1
        ids_stored = zstd.compress(_encode(ids))
        self._packed.append(Packed(lines[0], len(lines), None if follow_each_other else lines, ids_stored))
        self._lines, self._ids = [], []


async def read(session: Session, batch: int, start: int, most: int) -> list[tuple[int, str]]:
    """The (line, custom id) of a batch's requests from line `start` on: at least `most` of them where there are."""
    rows = await session.rows(_SQL["list_roll"], batch=batch, start=start, most=most // NAMES + 2)
    found: list[tuple[int, str]] = []
    for row in rows:
        lines: Sequence[int] = row["lines"] or range(row["first"], row["first"] + row["count"])
        if lines[-1] < start:
            continue
        at = bisect_left(lines, start)
        found += zip(lines[at:], _decode(zstd.decompress(row["ids"]))[at:], strict=True)
        if len(found) >= most:
            break
    return found


async def delete_some(session: Session, batch: int) -> bool:
    """Delete some of a batch's names; False when none is left."""
    return await session.run(_SQL["delete_roll"], batch=batch, most=DELETED_AT_ONCE) == DELETED_AT_ONCE
