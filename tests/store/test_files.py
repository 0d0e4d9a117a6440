"""The rows and chunks of files: reading inputs, purging, plans."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from overnight.domain import ids
from overnight.domain.limits import Limits
from overnight.store import files as rows
from overnight.store import zstd
from overnight.store.accounts import local_owner
from overnight.store.files import Chunk, FileGone, Finding
from overnight.store.pool import Store
from overnight.store.statements import load

PIECES = [bytes([n]) * 1_000 for n in range(10)]
WHOLE = b"".join(PIECES)
FINDING = Finding(len(WHOLE), 10, bytes(32), 1, 0, [])


async def arriving(store: Store, pieces: list[bytes] = PIECES) -> int:
    """A file whose bytes have all come, but which is not finished."""
    no = await rows.begin(store, ids.new(0), await local_owner(store), "in.jsonl")
    await rows.append(store, no, [Chunk(n * 1_000, 1_000, zstd.compress(piece)) for n, piece in enumerate(pieces)])
    return no


async def ready(store: Store, pieces: list[bytes] = PIECES) -> int:
    no = await arriving(store, pieces)
    await rows.finish(store, no, FINDING, Limits().file_retention)
    return no


async def change(store: Store, no: int, assignment: str) -> None:
    async with store.session() as session:
        await session.connection.execute(f"UPDATE file SET {assignment} WHERE no = $1", no)


async def left(store: Store) -> tuple[list[int], int]:
    """The files whose rows are left, and how many chunks."""
    async with store.session() as session:
        files = await session.connection.fetch("SELECT no FROM file ORDER BY no")
        return [r["no"] for r in files], await session.connection.fetchval("SELECT count(*) FROM file_chunk")


async def purge_all(store: Store) -> int:
    rounds = 0
    while await rows.purge_round(store):
        rounds += 1
    return rounds


async def read(store: Store, no: int, start: int = 0) -> bytes:
    return b"".join([piece async for piece in rows.read_input(store, no, start)])


@pytest.mark.parametrize("start", [0, 1, 999, 1_000, 5_500, 9_999, 10_000, 20_000])
async def test_an_input_is_read_from_any_byte_on(store: Store, start: int) -> None:
    assert await read(store, await ready(store), start) == WHOLE[start:]


async def test_an_input_that_is_not_whole_yet_cannot_be_read(store: Store) -> None:
    no = await arriving(store)

    with pytest.raises(FileGone):
        await read(store, no)


@pytest.mark.parametrize("assignment", ["state = 'deleted'", "expires_at = now()"])
async def test_an_input_deleted_or_expired_while_it_is_read_is_noticed(store: Store, assignment: str) -> None:
    no = await ready(store)
    reading = rows.read_input(store, no)
    await anext(reading)
    await change(store, no, assignment)

    with pytest.raises(FileGone):
        _ = [piece async for piece in reading]


async def test_a_missing_chunk_is_noticed(store: Store) -> None:
    no = await ready(store)
    async with store.session() as session:
        await session.connection.execute("DELETE FROM file_chunk WHERE starts = 2000")

    for start in (0, 2_000, 2_500):
        with pytest.raises(FileGone):
            _ = [piece async for piece in rows.read_chunks(store, no, start, 10_000)]


async def test_a_deleted_file_is_purged_with_its_chunks_and_no_other(store: Store) -> None:
    gone, kept = await ready(store), await ready(store)
    await change(store, gone, "state = 'deleted', touched_at = now() - interval '61 minutes'")

    await purge_all(store)

    assert await left(store) == ([kept], 10)


async def test_a_file_deleted_within_the_hour_keeps_its_bytes(store: Store) -> None:
    no = await ready(store)
    await change(store, no, "state = 'deleted', touched_at = now() - interval '59 minutes'")

    assert not await rows.purge_round(store)
    assert await left(store) == ([no], 10)


async def test_an_expired_file_is_deleted_and_its_bytes_stay_for_downloads_under_way(store: Store) -> None:
    no = await ready(store)
    await change(store, no, "expires_at = now()")

    assert await rows.purge_round(store)
    assert not await rows.purge_round(store)
    assert await left(store) == ([no], 10)
    await change(store, no, "touched_at = touched_at - interval '61 minutes'")
    await purge_all(store)
    assert await left(store) == ([], 0)


async def test_a_file_that_never_expires_is_never_purged(store: Store) -> None:
    no = await ready(store)
    await change(store, no, "expires_at = NULL, touched_at = now() - interval '1000 days'")

    assert not await rows.purge_round(store)


async def test_an_upload_of_a_process_that_died_is_purged_after_a_quarter_of_an_hour(store: Store) -> None:
    gone, kept = await arriving(store), await arriving(store)
    await change(store, gone, "touched_at = now() - interval '16 minutes'")
    await change(store, kept, "touched_at = now() - interval '14 minutes'")

    await purge_all(store)

    assert await left(store) == ([kept], 10)
    with pytest.raises(FileGone):
        await rows.append(store, gone, [Chunk(10_000, 1, zstd.compress(b"x"))])
    with pytest.raises(FileGone):
        await rows.finish(store, gone, FINDING, None)
    with pytest.raises(FileGone):
        await rows.touch(store, gone)


async def test_a_large_file_is_purged_in_bounded_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "CHUNKS_PURGED_AT_ONCE", 3)
    await change(store, await ready(store), "state = 'deleted', touched_at = '-infinity'")

    remaining = []
    while await rows.purge_round(store):
        remaining.append((await left(store))[1])

    assert remaining == [7, 4, 1, 0, 0]
    assert await left(store) == ([], 0)


async def test_two_processes_purge_side_by_side(store: Store) -> None:
    first, second = await ready(store), await ready(store)
    for no in (first, second):
        await change(store, no, "state = 'deleted', touched_at = '-infinity'")

    async with store.transaction() as session:
        locked = await session.row(load("file")["lock_purgeable"], kept=rows.KEPT_FOR_DOWNLOADS)
        assert locked is not None
        await purge_all(store)
        assert (await left(store))[0] == [locked["no"]]

    await purge_all(store)
    assert await left(store) == ([], 0)


async def test_a_finished_file_cannot_be_discarded(store: Store) -> None:
    no = await ready(store)

    await rows.discard(store, no)

    assert await left(store) == ([no], 10)


async def test_a_batch_has_one_file_of_each_kind(store: Store) -> None:
    owner = await local_owner(store)
    async with store.transaction() as session:
        for kind in (0, 1):
            await rows.open_output(session, owner, 1, ids.new(0), kind, 10, 1, bytes(32), None)

    with pytest.raises(asyncpg.UniqueViolationError):
        async with store.transaction() as session:
            await rows.open_output(session, owner, 1, ids.new(0), 0, 10, 1, bytes(32), None)


PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "list_newest_first": ({"owner": 1, "created_at": None, "no": 0, "purpose": "batch", "most": 11}, "file_of_owner"),
    "list_oldest_first": ({"owner": 1, "created_at": None, "no": 0, "purpose": None, "most": 11}, "file_of_owner"),
    "list_chunks": ({"file": 1, "start": 90_000, "stop": 200_000, "most": 4}, "file_chunk_pkey"),
    "lock_purgeable": ({"kept": rows.KEPT_FOR_DOWNLOADS}, "file_to_purge"),
    "delete_expired": ({}, "file_expiring"),
    "delete_some_chunks": ({"file": 1, "most": 64}, "file_chunk_pkey"),
    "give_up_arriving": ({"untouched": rows.UNTOUCHED}, "file_unfinished"),
}


@pytest.mark.parametrize("name", PLANS)
async def test_statements_that_search_are_led_by_their_index(store: Store, name: str) -> None:
    given, index = PLANS[name]
    statement = load("file")[name]
    async with store.transaction() as session:
        connection = session.connection
        await connection.execute(
            "INSERT INTO file (id, owner, purpose, filename, state, sha256, expires_at, touched_at)"
            " SELECT gen_random_uuid(), 1, 'batch', 'f',"
            " CASE n % 50 WHEN 0 THEN 'deleted' WHEN 1 THEN 'arriving' ELSE 'ready' END, '\\x00',"
            " now() + n * interval '1 minute', now() - n * interval '1 minute' FROM generate_series(1, 20000) n"
        )
        await connection.execute(
            "INSERT INTO file_chunk SELECT (SELECT min(no) FROM file), n * 1000, 1000, '\\x00'"
            " FROM generate_series(0, 20000) n"
        )
        await connection.execute("ANALYZE file, file_chunk")
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        plan = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.arguments(given))

    text = "\n".join(row[0] for row in plan)
    assert index in text
    assert "Seq Scan" not in text
    assert "Sort " not in text
