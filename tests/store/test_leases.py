"""The statements by which workers lease blocks and tell what they are about to do."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from overnight.domain import ids
from overnight.store import leases, zstd
from overnight.store.answers import OUTPUT, Answer, Fenced, record
from overnight.store.leases import FailedCall, LeasedBlock, Wanted
from overnight.store.life import Life, declare_dead
from overnight.store.pool import Session, Store
from overnight.store.statements import load


async def add(store: Store, blocks: int = 3, *, lines: int = 2, model: str = "m", **columns: Any) -> int:
    """A batch that may run, with so many blocks of so many lines."""
    given: dict[str, Any] = {"status": "in_progress", "owner": 1, **columns}
    names = ", ".join(given)
    marks = ", ".join(f"${i + 3}" for i in range(len(given)))
    async with store.session() as session:
        connection = session.connection
        no: int = await connection.fetchval(
            "INSERT INTO batch (no, id, target, endpoint, source, completion_window, retention, total,"
            f" {names}) VALUES (next_batch_no(now()), $1, 'chat', '/v1/chat/completions', 'file', '24h',"
            f" '7 days', $2, {marks}) RETURNING no",
            ids.new(1), blocks * lines, *given.values(),
        )  # fmt: skip
        data = zstd.compress(b"\n".join([b"{}"] * lines))
        await connection.executemany(
            "INSERT INTO block (batch, seq, model, state, count, lines, ids, data)"
            " VALUES ($1, $2, $3, 'ready', $4, $5, $5, $6)",
            [(no, seq, model, lines, list(range(seq * lines, seq * lines + lines)), data) for seq in range(blocks)],
        )
    return no


def wanted(**given: Any) -> Wanted:
    return Wanted(**{"models": None, "other_models": (), "most": 100, "of_owner": 100, "of_each": 100, **given})


async def lease(store: Store, life: Life, **given: Any) -> list[LeasedBlock]:
    async with store.session() as session:
        return (await leases.lease(session, life.no, wanted(**given)))[0]


def places(blocks: list[LeasedBlock]) -> list[tuple[int, int]]:
    return [(block.batch.no, block.seq) for block in blocks]


@pytest.fixture
async def life(store: Store) -> Life:
    life = Life(store)
    await life.begin()
    return life


async def test_a_leased_block_brings_its_requests_and_its_batch(store: Store, life: Life) -> None:
    no = await add(store, 1, defaults={"top_p": 0.5})
    (block,) = await lease(store, life)
    assert (block.batch.no, block.batch.owner, block.batch.defaults) == (no, 1, {"top_p": 0.5})
    assert (block.seq, block.lines, block.requests) == (0, [0, 1], [b"{}", b"{}"])
    assert not block.was_leased_before
    assert await lease(store, life) == []


NOT_LIVE: list[dict[str, Any]] = [
    {"status": "validating"},
    {"status": "cancelling", "ends_as": "cancelled"},
    {"status": "in_progress", "ends_as": "failed"},
    {"status": "finalizing"},
    {"paused": {"reason": "quota"}},
    {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)},
    {"schema": leases.SCHEMA + 1},
]


@pytest.mark.parametrize("columns", NOT_LIVE, ids=str)
async def test_only_batches_that_may_start_requests_are_leased(
    store: Store, life: Life, columns: dict[str, Any]
) -> None:
    await add(store, **columns)
    live = await add(store, 1)
    assert places(await lease(store, life)) == [(live, 0)]


async def add_owner(store: Store, name: str) -> int:
    async with store.session() as session:
        no: int = await session.connection.fetchval(
            "INSERT INTO account (name, role) VALUES ($1, 'free') RETURNING no", name
        )
    return no


async def test_owners_take_turns(store: Store, life: Life) -> None:
    b, c = await add_owner(store, "b"), await add_owner(store, "c")
    first, second, third = await add(store, 5), await add(store, 5, owner=b), await add(store, 5, owner=c)
    assert places(await lease(store, life, most=4, of_owner=2)) == [(first, 0), (first, 1), (second, 0), (second, 1)]
    assert places(await lease(store, life, most=2, of_owner=1, after=b)) == [(first, 2), (third, 0)]
    assert places(await lease(store, life, of_owner=1, fed=[1, c])) == [(second, 2)]


async def test_thousands_of_batches_give_their_owner_no_more_than_one_does(store: Store, life: Life) -> None:
    other = await add_owner(store, "other")
    many = {await add(store, 1) for _ in range(5)}
    one = await add(store, 5, owner=other)
    leased = places(await lease(store, life, most=6, of_owner=3, of_each=3))
    assert [batch for batch, _ in leased if batch not in many] == [one] * 3
    assert len(leased) == 6


async def test_of_an_owner_the_batch_that_is_due_first_is_leased_first(store: Store, life: Life) -> None:
    now = datetime.now(UTC)
    without_window = await add(store, 1)
    late = await add(store, 1, expires_at=now + timedelta(hours=5))
    soon = await add(store, 1, expires_at=now + timedelta(hours=1))
    order = [places(await lease(store, life, most=1)) for _ in range(3)]
    assert order == [[(soon, 0)], [(late, 0)], [(without_window, 0)]]


async def test_a_look_begins_where_it_is_told_to(store: Store, life: Life) -> None:
    other = await add_owner(store, "other")
    now = datetime.now(UTC)
    times = [now + timedelta(hours=i + 1) for i in range(3)]
    batches = [await add(store, 1, expires_at=at) for at in times]
    of_other = await add(store, 1, owner=other, expires_at=times[0])
    leased = places(await lease(store, life, places={1: (times[1], batches[1])}))
    assert leased == [(batches[1], 0), (batches[2], 0), (of_other, 0)]
    assert places(await lease(store, life)) == [(batches[0], 0)]


async def test_only_what_is_wanted_is_leased(store: Store, life: Life) -> None:
    a = await add(store, 1)
    b = await add(store, 1, model="n")
    c = await add(store, 1, model="o")
    assert places(await lease(store, life, models=["n"])) == [(b, 0)]
    assert places(await lease(store, life, other_models=["o"], skipped=[b])) == [(a, 0)]
    assert await lease(store, life, only=[a]) == []
    assert places(await lease(store, life, only=[c, 0])) == [(c, 0)]


async def test_two_workers_never_get_the_same_block(store: Store, life: Life) -> None:
    await add(store, 40)
    other = Life(store)
    await other.begin()
    mine: list[tuple[int, int]] = []
    theirs: list[tuple[int, int]] = []

    async def take(who: Life, into: list[tuple[int, int]]) -> None:
        while blocks := await lease(store, who, most=3):
            into += places(blocks)

    await asyncio.gather(take(life, mine), take(other, theirs), take(life, mine), take(other, theirs))
    assert len(set(mine) | set(theirs)) == len(mine) + len(theirs) == 40


async def test_a_block_that_another_is_leasing_is_passed_over(store: Store, life: Life) -> None:
    no = await add(store, 2)
    async with store.transaction() as session:
        await session.connection.execute("SELECT FROM block WHERE seq = 0 FOR UPDATE")
        assert places(await lease(store, life)) == [(no, 1)]


async def dead(store: Store, life: Life) -> None:
    assert await declare_dead(store, life.no, timedelta(0))


async def _lease(session: Session, worker: int, batch: int) -> object:
    return await leases.lease(session, worker, wanted())


async def _write_down(session: Session, worker: int, batch: int) -> object:
    return await leases.write_down(session, worker, 1, {batch: ([0], [0])})


async def _take_back(session: Session, worker: int, batch: int) -> None:
    await leases.take_back(session, worker, [(batch, 1, 0)])


async def _note(session: Session, worker: int, batch: int) -> None:
    await leases.note_calls(session, worker, [FailedCall(batch, 0, 1, 5, 500, "upstream_error", "no", None)])


async def _end(session: Session, worker: int, batch: int) -> None:
    await leases.end_leases(session, worker, [(batch, 0, True)])


@pytest.mark.parametrize("write", [_lease, _write_down, _take_back, _note, _end])
async def test_a_worker_declared_dead_can_write_nothing(store: Store, life: Life, write: Any) -> None:
    no = await add(store)
    async with store.session() as session:
        await _lease(session, life.no, no)
        await _write_down(session, life.no, no)
    await dead(store, life)
    other = Life(store)
    await other.begin()
    await lease(store, other)
    before = await _everything(store)
    async with store.session() as session:
        with pytest.raises(Fenced):
            await write(session, life.no, no)
    assert await _everything(store) == before


async def _everything(store: Store) -> list[Any]:
    async with store.session() as session:
        return [
            await session.connection.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")
            for table in ("block", "attempt", "call")
        ]


async def test_declaring_dead_waits_for_a_write_under_way(store: Store, life: Life) -> None:
    """The other order: the write is first, holds the row shared, and its effect is there when the death is."""
    no = await add(store)
    written = asyncio.Event()

    async def write() -> None:
        async with store.transaction() as session:
            await _write_down(session, life.no, no)
            written.set()
            # Until the one who declares it dead waits for this transaction.
            while not await store.row(_WAITING):
                await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    await written.wait()
    await dead(store, life)
    assert writing.done()
    await writing
    assert (await _everything(store))[1] != []


class _Waiting:
    sql = "SELECT 1 FROM pg_locks WHERE NOT granted AND database IS NOT NULL OR NOT granted LIMIT 1"

    @staticmethod
    def arguments(_: dict[str, Any]) -> list[Any]:
        return []


_WAITING: Any = _Waiting()


async def test_only_batches_that_may_start_requests_are_written_down(store: Store, life: Life) -> None:
    live = await add(store)
    ended = [await add(store, **columns) for columns in NOT_LIVE[:-1]]
    groups = {no: ([0, 1], [0]) for no in (*ended, live)}
    async with store.session() as session:
        assert await leases.write_down(session, life.no, 7, groups) == {live}
        rows = await session.connection.fetch("SELECT batch, worker, no, blocks, lines FROM attempt")
    assert [tuple(row) for row in rows] == [(live, life.no, 7, [0], [0, 1])]


async def test_groups_of_several_batches_are_kept_apart(store: Store, life: Life) -> None:
    a, b = await add(store), await add(store)
    async with store.session() as session:
        await leases.write_down(session, life.no, 1, {a: ([0, 1, 2], [0, 1]), b: ([5], [2])})
        rows = await session.connection.fetch("SELECT batch, blocks, lines FROM attempt ORDER BY batch")
    assert [tuple(row) for row in rows] == [(a, [0, 1], [0, 1, 2]), (b, [2], [5])]


async def test_what_was_not_sent_is_no_attempt(store: Store, life: Life) -> None:
    no = await add(store)
    async with store.session() as session:
        await leases.write_down(session, life.no, 1, {no: ([0, 1], [0])})
        await leases.write_down(session, life.no, 2, {no: ([0, 1], [0])})
        await leases.take_back(session, life.no, [(no, 2, 0)])
        past = await leases.past(session, no, 0, [0, 1])
    assert {line: known.sent for line, known in past.items()} == {0: 1, 1: 2}


async def test_the_past_of_a_line_tells_tries_from_what_was_none(store: Store, life: Life) -> None:
    no = await add(store)
    at = datetime.now(UTC) + timedelta(minutes=5)
    calls = [
        FailedCall(no, 0, 1, 5, 500, "upstream_error", "no", None),
        FailedCall(no, 0, 2, 5, None, "upstream_error", "died", None, counted=False, lost=True),
        FailedCall(no, 0, 3, 5, 503, "service_unavailable", "queued", at, counted=False),
    ]
    async with store.session() as session:
        for group in range(4):
            await leases.write_down(session, life.no, group, {no: ([0], [0])})
        await leases.note_calls(session, life.no, calls)
        await leases.note_calls(session, life.no, calls)
        assert await session.connection.fetchval("SELECT count(*) FROM call") == 3
        past = await leases.past(session, no, 0, [0, 1])
    # Four attempts: one failed, one was lost with its engine, one found the model queued, one was lost with the worker.
    assert past.keys() == {0}
    assert (past[0].sent, past[0].uncounted, past[0].losses, past[0].again_at) == (4, 2, 2, at)


async def test_a_message_that_no_text_column_takes_is_stored_all_the_same(store: Store, life: Life) -> None:
    no = await add(store)
    async with store.session() as session:
        odd = "nul \0 surrogate \ud800 " + "long " * 500
        await leases.note_calls(session, life.no, [FailedCall(no, 0, 1, 5, 500, "upstream_error", odd, None)])
        stored = await session.connection.fetchval("SELECT message FROM call")
    assert stored.startswith("nul ")
    assert len(stored) <= 500


async def test_ended_blocks_are_done_or_go_back(store: Store, life: Life) -> None:
    no = await add(store)
    await lease(store, life)
    async with store.session() as session:
        await leases.end_leases(session, life.no, [(no, 0, True), (no, 1, False)])
        rows = await session.connection.fetch("SELECT state, worker FROM block ORDER BY seq")
        assert await leases.list_leases(session, life.no) == [(no, 2)]
    assert [tuple(row) for row in rows] == [("done", None), ("ready", None), ("leased", life.no)]


async def test_nobody_ends_a_lease_of_somebody_else(store: Store, life: Life) -> None:
    no = await add(store, 1)
    await lease(store, life)
    other = Life(store)
    await other.begin()
    async with store.session() as session:
        await leases.end_leases(session, other.no, [(no, 0, True)])
        assert await leases.list_leases(session, life.no) == [(no, 0)]


async def test_states_tell_who_may_go_on(store: Store, life: Life) -> None:
    live = await add(store)
    cancelled = await add(store, status="cancelling", ends_as="cancelled")
    async with store.session() as session:
        found, now = await leases.states(session, [live, cancelled, 1])
    assert {no: state.is_live for no, state in found.items()} == {live: True, cancelled: False}
    assert now is not None


async def test_answered_lines_are_told(store: Store, life: Life) -> None:
    no = await add(store)
    async with store.session() as session:
        await record(session, life.no, [(no, [Answer(3, b"{}\n", OUTPUT, 1)])])
        assert await leases.answered(session, no, [0, 1, 2, 3]) == {3}


async def explain(store: Store, life: Life, **given: Any) -> list[tuple[str, str, int]]:
    """Lease, and return what was read of batches and blocks: (kind of scan, table or index, rows) each."""
    asked = {
        "worker": life.no, "after": 0, "schema": 1, "only": None, "skipped": [], "models": ["m"], "other_models": [],
        "of_owner": 4, "of_each": 4, "most": 4, "fed": [], "owners": [], "dues": [], "nos": [],
        "held": [], **given,
    }  # fmt: skip
    statement = load("lease")["lease_blocks_if_alive"]
    async with store.session() as session:
        await session.connection.execute("ANALYZE")
        found = await session.connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", *statement.arguments(asked)
        )
    return list(_scans(json.loads(found)[0]["Plan"]))


def _scans(node: dict[str, Any]) -> Any:
    name = node.get("Relation Name", node.get("Index Name", ""))
    if name.startswith(("batch", "block")) and node["Actual Loops"]:
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        yield node["Node Type"], name, rows
    for child in node.get("Plans", ()):
        yield from _scans(child)


async def test_the_claim_walks_through_no_block_that_it_may_not_have(store: Store, life: Life) -> None:
    """Cancelled batches leave their blocks ready; with thousands of those in front, a lease touches none of them."""
    for _ in range(4):
        await add(store, 1_000, lines=1, status="cancelling", ends_as="cancelled")
    live = await add(store, 1_000, lines=1)
    scans = await explain(store, life)
    assert places(await lease(store, life, most=1)) == [(live, 4)]
    assert all(rows <= 10 for _, name, rows in scans if name.startswith("block")), scans
    assert not any(kind == "Seq Scan" and name.startswith("block_") for kind, name, _ in scans)


async def test_of_a_batch_that_is_held_a_block_that_went_back_is_found_among_thousands(
    store: Store, life: Life
) -> None:
    live = await add(store, 3_000, lines=1)
    async with store.session() as session:
        await session.connection.execute("UPDATE block SET leases = 1 WHERE batch = $1 AND seq = 2500", live)
    scans = await explain(store, life, skipped=[live], held=[live])
    async with store.session() as session:
        assert await leases.list_leases(session, life.no) == [(live, 2500)]
    assert all(rows <= 10 for _, name, rows in scans if name.startswith("block")), scans


async def add_many(store: Store, batches: int) -> None:
    """Batches of the first owner, each with one ready block."""
    async with store.transaction() as session:
        await session.connection.execute(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, completion_window, retention, total, status,"
            " expires_at) SELECT next_batch_no(now()), gen_random_uuid(), 1, 'chat', '/v1/chat/completions', 'file',"
            " '24h', '7 days', 1, 'in_progress', now() + n * interval '1 second' FROM generate_series(1, $1) AS n",
            batches,
        )
        await session.connection.execute(
            "INSERT INTO block (batch, seq, model, state, count, lines, ids, data)"
            " SELECT no, 0, 'm', 'ready', 1, '{0}', '{0}', $1 FROM batch",
            zstd.compress(b"{}"),
        )


async def test_one_batch_behind_thousands_of_another_owner_is_found_without_walking_them(
    store: Store, life: Life
) -> None:
    await add_many(store, 5_000)
    alone = await add(store, 1, owner=await add_owner(store, "other"))
    scans = await explain(store, life, most=8)
    async with store.session() as session:
        assert (alone, 0) in await leases.list_leases(session, life.no)
    assert sum(rows for _, _, rows in scans) < 60, scans
    assert not any(kind == "Seq Scan" and rows for kind, _, rows in scans), scans
