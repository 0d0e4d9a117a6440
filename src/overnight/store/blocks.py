"""Blocks: runs of requests of one batch, stored together in the order in which they are to start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from overnight.domain import plan
from overnight.store import zstd
from overnight.store.pool import Session, Store
from overnight.store.statements import load

_SQL = load("block")

_COLUMNS = ("batch", "seq", "model", "state", "count", "first", "last", "lines", "ids", "data")
DELETED_AT_ONCE = 64
WRITTEN_AT_ONCE = 32
READ_AT_ONCE = 4
CLOSED_AT_ONCE = 4
SEARCHED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Packed:
    """A block as it is stored: the requests compressed, their line numbers in the same order, the hashes sorted."""

    lines: list[int]
    ids: list[int]
    data: bytes


def pack(block: plan.Block) -> Packed:
    """Compress a planned block; about 3 µs a request."""
    return Packed(block.lines, sorted(block.ids), zstd.compress(b"\n".join(block.requests)))


def unpack(data: bytes) -> list[bytes]:
    """The requests of a stored block."""
    return zstd.decompress(data).split(b"\n")


async def write(session: Session, batch: int, model: str, first: int, blocks: list[Packed]) -> None:
    """Store new blocks, numbered from `first`; the caller's transaction holds the batch."""
    rows = [
        (
            batch, first + i, model, "ready", len(block.lines), min(block.lines), max(block.lines), block.lines,
            block.ids, block.data,
        )
        for i, block in enumerate(blocks)
    ]  # fmt: skip
    if len(rows) == 1:
        # A small batch: copying asks for the table's columns first, each time.
        await session.run(_SQL["insert_block"], **dict(zip(_COLUMNS, rows[0], strict=True)))
    else:
        await session.ask(session.connection.copy_records_to_table, "block", columns=_COLUMNS, records=rows)


async def write_all(session: Session, batch: int, blocks: Sequence[tuple[str, Packed]]) -> None:
    """Store all blocks of a batch that is made in the same transaction, each with its model."""
    first = 0
    for model, run in groupby(blocks, key=itemgetter(0)):
        packed = [block for _, block in run]
        for at in range(0, len(packed), WRITTEN_AT_ONCE):
            await write(session, batch, model, first + at, packed[at : at + WRITTEN_AT_ONCE])
        first += len(packed)


async def list_models(session: Session, batch: int) -> list[str]:
    """What the blocks of a batch call their models."""
    return [row["model"] for row in await session.rows(_SQL["list_models_of_blocks"], batch=batch)]


async def rename_models(session: Session, batch: int, models: Mapping[str, str]) -> None:
    """Give the blocks of a batch the names that servers have for their models: old name → new name."""
    await session.run(_SQL["rename_models_of_blocks"], batch=batch, names=list(models), models=list(models.values()))


async def read_of_models(session: Session, batch: int, models: Sequence[str]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield line and request of each block of a batch that names one of these models."""
    after = -1
    while models:
        rows = await session.rows(
            _SQL["list_blocks_of_models"], batch=batch, after=after, models=models, most=READ_AT_ONCE
        )
        for row in rows:
            for line, request in zip(row["lines"], unpack(row["data"]), strict=True):
                yield line, request
        if len(rows) < READ_AT_ONCE:
            return
        after = rows[-1]["seq"]


async def read(session: Session, batch: int, seqs: Sequence[int]) -> dict[int, bytes]:
    """The requests of some blocks of a batch by their lines; there are none of a batch that was deleted."""
    rows = await session.rows(_SQL["read_blocks"], batch=batch, seqs=seqs)
    return {line: text for row in rows for line, text in zip(row["lines"], unpack(row["data"]), strict=True)}


async def delete_some(session: Session, batch: int) -> bool:
    """Delete some blocks of a batch; False when none is left."""
    return await session.run(_SQL["delete_blocks"], batch=batch, most=DELETED_AT_ONCE) == DELETED_AT_ONCE


@dataclass(frozen=True, slots=True)
class Closed:
    """A block that no worker can lease any more."""

    seq: int
    was_leased: bool
    """Without that it has no answers, and nothing of it was ever sent."""
    lines: list[int]
    data: bytes


async def close_some(session: Session, batch: int) -> list[Closed]:
    """Close the next ready blocks of a batch, in their order; the caller's transaction holds the batch."""
    rows = await session.rows(_SQL["close_ready_blocks"], batch=batch, most=CLOSED_AT_ONCE)
    rows.sort(key=lambda row: row["seq"])
    return [Closed(row["seq"], row["leases"] > 0, row["lines"], row["data"]) for row in rows]


async def unfinished(store: Store, batch: int, after: int, before: list[int]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield (line, request) of the requests without a response behind line `after`, in the order of the blocks.

    `before` holds the line before which they are wanted, which the caller may lower while it reads.
    """
    seq = -1
    while True:
        rows = await store.rows(
            _SQL["list_blocks_with_unfinished"],
            batch=batch,
            after_seq=seq,
            after=after,
            before=before[0],
            most=SEARCHED_AT_ONCE,
        )
        for row in rows:
            wanted = set(row["wanted"] or ())
            for line, request in zip(row["lines"], unpack(row["data"]), strict=True) if wanted else ():
                if line in wanted and line < before[0]:
                    yield line, request
        if len(rows) < SEARCHED_AT_ONCE:
            return
        seq = rows[-1]["seq"]
