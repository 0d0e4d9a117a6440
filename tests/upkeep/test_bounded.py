"""What a call or a round writes does not grow with the batch: the rest follows from the few rows, or goes in pieces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from overnight.batches.cancel import cancel
from overnight.batches.delete import delete
from overnight.batches.pause import pause, resume
from overnight.batches.shape import BatchView
from overnight.store import blocks, deletion, rolls
from overnight.store.answers import ERROR
from overnight.upkeep.expire import Expire
from overnight.upkeep.seal import Seal
from tests.batches.factory import Factory, lines
from tests.upkeep.orphans import OF_REQUESTS

BLOCKS = 3_000
TABLES = (*OF_REQUESTS, "batch", "deleted_batch", "file", "idempotency")


async def large(make: Factory) -> BatchView:
    """A running batch with so many blocks, answers and other rows that whoever touched them all would show it."""
    batch = await make.running(lines(2))
    await make.answer(batch, [0])
    await make.answer(batch, [1], kind=ERROR)
    for sql in (
        "INSERT INTO block (batch, seq, model, state, count, lines, ids, data)"
        " SELECT $1, i, 'm', 'ready', 256, '{}', '{}', '' FROM generate_series(1, $2::integer) AS i",
        "INSERT INTO roll (batch, first, count, ids) SELECT $1, i, 512, '' FROM generate_series(2, $2::integer) AS i",
        "INSERT INTO attempt (batch, worker, no, blocks, lines)"
        " SELECT $1, 1, i, '{}', '{}' FROM generate_series(1, $2::integer) AS i",
        "INSERT INTO call (batch, line, worker, try, took_ms, code, message)"
        " SELECT $1, i, 1, 1, 5, 'timeout', 'No.' FROM generate_series(1, $2::integer) AS i",
        "INSERT INTO segment (batch, kind, starts, lines_before, bytes, lines, data)"
        " SELECT $1, 0, 1000 + i, 0, 0, 0, '' FROM generate_series(2, $2::integer) AS i",
        "INSERT INTO answer SELECT (jsonb_populate_record(a, jsonb_build_object('line', i))).*"
        " FROM answer a, generate_series(2, $2::integer) AS i WHERE a.batch = $1 AND a.line = 0",
    ):
        await make.run(sql, batch.no, BLOCKS)
    await make.run("UPDATE batch SET total = 256 * $2::integer + 2 WHERE no = $1", batch.no, BLOCKS)
    await make.run("INSERT INTO idempotency VALUES ($1, 'key', '', 1, $2)", make.owner, batch.no)
    return await make.look(batch)


async def written(make: Factory, act: Callable[[], Awaitable[Any]]) -> int:
    """How many rows an action inserts, updates and deletes at most; an update counts twice where it also deletes."""
    count = f"SELECT sum(n) FROM ({' UNION ALL '.join(f'SELECT count(*) AS n FROM {t}' for t in TABLES)}) AS counts"
    news = [f"SELECT count(*) AS n FROM {t} WHERE xmin::text::bigint >= $1" for t in TABLES]
    before = await make.value(count)
    first = await make.value("SELECT pg_current_xact_id()::text::bigint")
    await act()
    new = await make.value(f"SELECT sum(n) FROM ({' UNION ALL '.join(news)}) AS counts", first)
    gone = before - await make.value(count)
    return int(new + max(gone + new, 0))


async def test_calls_write_a_few_rows_whatever_the_size_of_the_batch(make: Factory) -> None:
    batch = await large(make)
    for verb in (pause, resume, cancel):
        assert await written(make, lambda verb=verb: verb(make.store, make.owner, batch.public_id)) <= 2, verb  # type: ignore[misc]
    # The batch, its name, what its key points at; nothing of its requests.
    assert await written(make, lambda: delete(make.store, make.owner, batch.public_id)) <= 6
    assert await make.value("SELECT count(*) FROM batch") == 0


async def test_the_end_of_a_window_writes_one_row(make: Factory) -> None:
    batch = await large(make)
    await make.close_window(batch)
    assert await written(make, Expire(make.deps).round) <= 2


async def test_the_end_of_the_retention_writes_a_few_rows(make: Factory) -> None:
    batch = await large(make)
    await make.run(
        "UPDATE batch SET status = 'completed', ended_at = now() - interval '30 days' WHERE no = $1", batch.no
    )
    assert await written(make, lambda: deletion.delete_after_retention(make.store)) <= 6
    assert await make.value("SELECT count(*) FROM batch") == 0


async def test_what_is_left_of_a_deleted_batch_goes_in_bounded_pieces(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (deletion, "SEGMENTS_AT_ONCE"), (deletion, "ROWS_AT_ONCE"), (deletion, "ATTEMPTS_AT_ONCE"),
        (blocks, "DELETED_AT_ONCE"), (rolls, "DELETED_AT_ONCE"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 1_000)
    batch = await large(make)
    await delete(make.store, make.owner, batch.public_id)
    await make.run("UPDATE deleted_batch SET rows_go_at = now()")
    rounds = []
    while await make.value("SELECT count(*) FROM deleted_batch WHERE NOT emptied"):
        rounds.append(await written(make, lambda: deletion.remove_some_rows(make.store)))
    assert 1_000 <= max(rounds) <= 2 * 1_000
    assert len(rounds) >= 3 * len(OF_REQUESTS)
    assert await make.value(" UNION ALL ".join(f"SELECT count(*) FROM {t}" for t in OF_REQUESTS)) == 0


async def test_a_cancelled_batch_is_sealed_some_blocks_at_a_time(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is a transaction: what it writes, and how long it holds the batch, does not grow with the batch."""
    batch = await make.running(lines(600))
    monkeypatch.setattr(blocks, "CLOSED_AT_ONCE", 1)
    await cancel(make.store, make.owner, batch.public_id)
    await Seal(make.deps).round()
    most = "SELECT max(n) FROM (SELECT count(*) AS n FROM {} WHERE batch = $1 GROUP BY xmin) AS transactions"
    assert await make.value(most.format("answer"), batch.no) <= 256
    assert await make.value(most.format("block"), batch.no) == 1
