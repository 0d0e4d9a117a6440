"""The rows of uploads: who ends them, what is purged, plans."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from overnight.domain import ids
from overnight.store import files, uploads, zstd
from overnight.store.accounts import local_owner
from overnight.store.files import Chunk, Finding
from overnight.store.pool import Store
from overnight.store.statements import load
from overnight.store.uploads import UploadEnded

FINDING = Finding(3, 1, bytes(32), 1, 0, [])


async def pending(store: Store) -> tuple[int, UUID]:
    """An upload of three bytes: its number and its id."""
    upload_id = ids.new(0)
    await uploads.create(store, upload_id, await local_owner(store), "in.jsonl", 3, None)
    row = await uploads.find(store, await local_owner(store), upload_id)
    assert row is not None
    return row["no"], upload_id


async def status(store: Store, upload_id: UUID) -> str:
    row = await uploads.find(store, await local_owner(store), upload_id)
    assert row is not None
    found: str = row["status"]
    return found


async def coming(store: Store, upload: int) -> int:
    """A part whose bytes have come, but which is not finished."""
    no = await uploads.begin_part(store, ids.new(0), upload)
    await files.append(store, no, [Chunk(0, 3, zstd.compress(b"abc"))])
    return no


async def part(store: Store, upload: int) -> int:
    no = await coming(store, upload)
    await uploads.finish_part(store, upload, no, 3)
    return no


async def complete(store: Store, upload: int, file_id: UUID | None = None) -> None:
    file_id = file_id or ids.new(0)
    no = await files.begin(store, file_id, await local_owner(store), "in.jsonl")
    await uploads.complete(store, upload, no, file_id, FINDING, timedelta(days=1))


async def change(store: Store, statement: str, *given: Any) -> None:
    async with store.session() as session:
        await session.connection.execute(statement, *given)


async def states(store: Store) -> list[str]:
    async with store.session() as session:
        return [row["state"] for row in await session.connection.fetch("SELECT state FROM file ORDER BY no")]


async def test_an_upload_expires_by_itself_and_its_parts_go_with_the_next_round(store: Store) -> None:
    no, upload_id = await pending(store)
    kept, kept_id = await pending(store)
    for upload in (no, kept):
        await part(store, upload)
    await change(store, "UPDATE upload SET until = now() WHERE no = $1", no)

    assert await status(store, upload_id) == "expired"
    assert await states(store) == ["part", "part"]
    assert await uploads.purge_round(store)
    assert not await uploads.purge_round(store)
    assert await states(store) == ["deleted", "part"]
    assert (await status(store, upload_id), await status(store, kept_id)) == ("expired", "pending")
    while await files.purge_round(store):
        pass
    assert await states(store) == ["part"]


async def test_an_upload_is_open_for_an_hour_and_for_one_more_where_completing_it_began(store: Store) -> None:
    no, upload_id = await pending(store)
    await change(store, "UPDATE upload SET until = until - interval '59 minutes', expires_at = until")
    await uploads.hold(store, no)
    await uploads.hold(store, no)

    async with store.session() as session:
        left = await session.connection.fetchval("SELECT until - expires_at FROM upload WHERE id = $1", upload_id)
    assert left == timedelta(hours=1)


@pytest.mark.parametrize("end", ["UPDATE upload SET until = now()", "UPDATE upload SET state = 'cancelled'"])
async def test_an_upload_that_has_ended_takes_nothing_more(store: Store, end: str) -> None:
    no, _ = await pending(store)
    begun = await coming(store, no)
    await change(store, end)

    with pytest.raises(UploadEnded):
        await uploads.begin_part(store, ids.new(0), no)
    with pytest.raises(UploadEnded):
        await uploads.finish_part(store, no, begun, 3)
    with pytest.raises(UploadEnded):
        await uploads.hold(store, no)
    with pytest.raises(UploadEnded):
        await complete(store, no)
    assert not await uploads.cancel(store, no)


@pytest.mark.parametrize("first", ["complete", "cancel"])
async def test_of_completing_and_cancelling_at_once_one_happens_whole(store: Store, first: str) -> None:
    """The second waits for the first one's row, and then finds that there is nothing left to do."""
    no, upload_id = await pending(store)
    await part(store, no)

    async def second() -> bool:
        try:
            if first == "cancel":
                await complete(store, no)
                return True
            return await uploads.cancel(store, no)
        except UploadEnded:
            return False

    statement = load("upload")[f"{first}_if_pending"]
    async with store.transaction() as session:
        given = {"upload": no} | ({"file_id": ids.new(0)} if first == "complete" else {})
        assert await session.run(statement, **given) == 1
        waiting = asyncio.create_task(second())
        await until_blocked(session)

    assert await waiting is False
    assert await status(store, upload_id) == ("completed" if first == "complete" else "cancelled")


async def test_a_part_that_ends_while_its_upload_is_cancelled_is_given_up(store: Store) -> None:
    no, _ = await pending(store)
    begun = await coming(store, no)

    async def finish() -> None:
        await uploads.finish_part(store, no, begun, 3)

    async with store.transaction() as session:
        await session.run(load("upload")["cancel_if_pending"], upload=no)
        waiting = asyncio.create_task(finish())
        await until_blocked(session)

    with pytest.raises(UploadEnded):
        await waiting


async def test_cancelling_waits_for_a_part_that_ends_and_gives_it_up(store: Store) -> None:
    no, _ = await pending(store)
    begun = await coming(store, no)

    async with store.transaction() as session:
        await session.row(load("upload")["finish_part_if_pending"], upload=no, part=begun, bytes=3)
        waiting = asyncio.create_task(uploads.cancel(store, no))
        await until_blocked(session)

    assert await waiting
    assert await states(store) == ["deleted"]


async def until_blocked(session: Any) -> None:
    """Return when another connection waits for what this one has locked.

    Asks `pg_locks`: what `pg_stat_activity` shows stays the same for a whole transaction.
    """
    blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    async with asyncio.timeout(60):
        while not await session.connection.fetchval(blocked):
            await asyncio.sleep(0)


async def test_uploads_that_ended_long_ago_are_forgotten_and_no_others(store: Store) -> None:
    long_ago, with_a_part, lately, never_ended = [(await pending(store))[0] for _ in range(4)]
    await part(store, with_a_part)
    await change(store, "UPDATE upload SET state = 'cancelled' WHERE no <> $1", never_ended)
    await change(store, "UPDATE upload SET until = now() - interval '8 days' WHERE no = ANY ($1)", [1, 2])
    await change(store, "UPDATE upload SET until = now() - interval '6 days' WHERE no = $1", lately)

    assert await uploads.purge_round(store)
    assert not await uploads.purge_round(store)
    async with store.session() as session:
        left = [row["no"] for row in await session.connection.fetch("SELECT no FROM upload ORDER BY no")]
    assert left == [with_a_part, lately, never_ended]
    assert long_ago not in left


async def test_a_file_and_its_upload_become_visible_together_or_not_at_all(store: Store) -> None:
    no, upload_id = await pending(store)
    await part(store, no)
    file_id = ids.new(0)
    arriving = await files.begin(store, file_id, await local_owner(store), "in.jsonl")
    await files.discard(store, arriving)

    with pytest.raises(files.FileGone):
        await uploads.complete(store, no, arriving, file_id, FINDING, None)

    assert await status(store, upload_id) == "pending"
    assert await states(store) == ["part"]


PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "count_parts": ({"upload": 5}, "file_of_upload"),
    "find_parts": ({"upload": 5, "ids": [UUID(int=0)] * 50}, "file_"),
    "give_up_parts": ({"upload": 5}, "file_of_upload"),
    "expire_one": ({}, "upload_pending"),
    "forget_ended": ({"kept": uploads.KEPT}, "upload_ended"),
}


@pytest.mark.parametrize("name", PLANS)
async def test_statements_that_search_are_led_by_their_index(store: Store, name: str) -> None:
    given, index = PLANS[name]
    statement = load("upload")[name]
    async with store.transaction() as session:
        connection = session.connection
        await connection.execute(
            "INSERT INTO upload (id, owner, filename, bytes, state, expires_at, until)"
            " SELECT gen_random_uuid(), 1, 'f', 3, CASE n % 2 WHEN 0 THEN 'pending' ELSE 'expired' END,"
            " now(), now() + n * interval '1 minute' FROM generate_series(1, 20000) n"
        )
        await connection.execute(
            "INSERT INTO file (id, owner, purpose, filename, state, sha256, upload)"
            " SELECT gen_random_uuid(), 1, 'batch', 'f', CASE WHEN n % 2 = 0 THEN 'part' ELSE 'ready' END, '\\x00',"
            " CASE WHEN n % 2 = 0 THEN n / 100 + 1 END FROM generate_series(1, 20000) n"
        )
        await connection.execute("ANALYZE upload, file")
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        plan = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.arguments(given))

    text = "\n".join(row[0] for row in plan)
    assert index in text
    assert "Seq Scan" not in text
