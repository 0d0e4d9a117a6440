"""Files: rows, and their bytes in compressed chunks that are cut at line ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from overnight.domain import ids
from overnight.store import zstd
from overnight.store.answers import OUTPUT
from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("file")

CHUNKS_AT_ONCE = 4
"""Chunks read together: at most 4 MiB of plain text, usually 1."""

UNTOUCHED = timedelta(minutes=15)
"""An upload that stored nothing for so long is over: its sender or its process is gone."""

KEPT_FOR_DOWNLOADS = timedelta(hours=1)
"""A deleted file's bytes stay so long, for downloads that began before."""

CHUNKS_PURGED_AT_ONCE = 64


class FileGone(Exception):
    """The file was deleted, or expired, before it was read to its end."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of a file's bytes, compressed; `starts` and `size` are of the plain text."""

    starts: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of a file once all its bytes have come."""

    size: int
    lines: int
    sha256: bytes
    checks: int
    problem_count: int
    problems: Sequence[dict[str, str | int | None]]


async def begin(store: Store, file_id: UUID, owner: int, filename: str) -> int:
    """Make the row of a file whose bytes are on their way and return its number; nobody sees it yet."""
    row = await store.row(_SQL["begin_file"], id=file_id, owner=owner, filename=filename)
    assert row is not None
    no: int = row["no"]
    return no


async def append(store: Store, file: int, chunks: Sequence[Chunk]) -> None:
    """Store chunks of an arriving file. Raises FileGone where it was given up meanwhile."""
    stored = await store.run(
        _SQL["append_chunks_if_arriving"],
        file=file,
        starts=[c.starts for c in chunks],
        sizes=[c.size for c in chunks],
        datas=[c.data for c in chunks],
    )
    if stored != len(chunks):
        raise FileGone


async def touch(store: Store, file: int) -> None:
    """Say that an upload goes on though nothing could be stored yet. Raises FileGone where it was given up."""
    if not await store.run(_SQL["touch_if_arriving"], file=file):
        raise FileGone


async def finish(where: Store | Session, file: int, finding: Finding, lives: timedelta | None) -> Row:
    """Make an arriving file visible to its owner; it expires after `lives`. Raises FileGone if it was given up."""
    row = await where.row(
        _SQL["finish_if_arriving"],
        file=file,
        bytes=finding.size,
        lines=finding.lines,
        sha256=finding.sha256,
        checks=finding.checks,
        problem_count=finding.problem_count,
        problems=list(finding.problems) or None,
        lives=lives,
    )
    if row is None:
        raise FileGone
    return row


async def discard(store: Store, file: int) -> None:
    """Remove an arriving file and its chunks; one that was finished meanwhile stays."""
    if await store.run(_SQL["abandon_if_arriving"], file=file):
        while await store.run(_SQL["delete_some_chunks"], file=file, most=CHUNKS_PURGED_AT_ONCE):
            pass
        await store.run(_SQL["forget_file"], file=file)


async def find(store: Store, owner: int, file_id: UUID) -> Row | None:
    """A file of this owner that is there and has not expired."""
    return await store.row(_SQL["find_file"], id=file_id, owner=owner)


async def find_place(store: Store, owner: int, file_id: UUID) -> tuple[datetime, int] | None:
    """Where in the list of its owner a file stands, or stood until it was deleted."""
    row = await store.row(_SQL["find_place"], id=file_id, owner=owner)
    return None if row is None else (row["created_at"], row["no"])


async def page(
    store: Store,
    owner: int,
    *,
    purpose: str | None,
    most: int,
    newest_first: bool,
    after: tuple[datetime, int] | None,
) -> list[Row]:
    """At most `most` files of this owner, in order of creation, that stand behind `after` in that order."""
    created_at, no = after or (None, 0)
    statement = _SQL["list_newest_first" if newest_first else "list_oldest_first"]
    return await store.rows(statement, owner=owner, purpose=purpose, created_at=created_at, no=no, most=most)


async def delete(store: Store, owner: int, file_id: UUID) -> bool:
    """Delete a file for good; False where its owner has none of this id."""
    return await store.row(_SQL["delete_if_ready"], id=file_id, owner=owner) is not None


async def read_chunks(store: Store, file: int, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yield the bytes [start, stop) of a file, whatever its state; no connection is held in between.

    Raises FileGone where its chunks were removed.
    """
    while start < stop:
        for piece in await _some_chunks(store, file, start, stop):
            start += len(piece)
            yield piece


async def read_input(store: Store, file_no: int, start: int = 0) -> AsyncIterator[bytes]:
    """Yield the bytes of an input from byte `start` on, in its stored pieces.

    Raises FileGone as soon as the file is deleted or has expired.
    """
    while True:
        row = await store.row(_SQL["find_input"], file=file_no)
        if row is None:
            raise FileGone
        if start >= row["bytes"]:
            return
        for piece in await _some_chunks(store, file_no, start, row["bytes"]):
            start += len(piece)
            yield piece


async def _some_chunks(store: Store, file: int, start: int, stop: int) -> list[bytes]:
    rows = await store.rows(_SQL["list_chunks"], file=file, start=start, stop=stop, most=CHUNKS_AT_ONCE)
    pieces = []
    for row in rows:
        piece = zstd.decompress(row["data"])[max(start - row["starts"], 0) : stop - row["starts"]]
        if row["starts"] > start or not piece:
            raise FileGone
        start += len(piece)
        pieces.append(piece)
    if not pieces:
        raise FileGone
    return pieces


async def open_output(
    session: Session,
    owner: int,
    batch_no: int,
    batch_id: UUID,
    kind: int,
    bytes: int,  # noqa: A002
    lines: int,
    sha256: bytes,
    expires_at: datetime | None,
) -> UUID:
    """Make the file of a batch's result stream and return its id; nothing is copied.

    Raises asyncpg.UniqueViolationError where the batch has a file of this kind already.
    """
    file_id = ids.new(time.time_ns() // 1_000_000)
    ending = "output" if kind == OUTPUT else "error"
    await session.run(
        _SQL["insert_output"],
        id=file_id,
        owner=owner,
        filename=f"{ids.show(ids.BATCH, batch_id)}_{ending}.jsonl",
        bytes=bytes,
        lines=lines,
        sha256=sha256,
        batch=batch_no,
        kind=kind,
        expires_at=expires_at,
    )
    return file_id


async def purge_round(store: Store) -> bool:
    """Delete what has expired, give up what no longer arrives, remove a piece of what was deleted before.

    Returns whether there was anything to do.
    """
    ended = await store.run(_SQL["delete_expired"])
    ended += await store.run(_SQL["give_up_arriving"], untouched=UNTOUCHED)
    async with store.transaction() as session:
        row = await session.row(_SQL["lock_purgeable"], kept=KEPT_FOR_DOWNLOADS)
        if row is None:
            return ended > 0
        if not await session.run(_SQL["delete_some_chunks"], file=row["no"], most=CHUNKS_PURGED_AT_ONCE):
            await session.run(_SQL["forget_file"], file=row["no"])
    return True
