"""The guards of the statements that move batches, and the indexes that the frequent ones walk."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from overnight.domain.states import FINAL, FOLLOWS, Status
from overnight.store import batches, blocks
from overnight.store.blocks import Packed
from overnight.store.life import Life
from overnight.store.pool import Session, Store
from overnight.store.statements import Statement, load

_SQL = load("batch") | load("intake")


class Rows:
    """Batches as bare rows, in whatever state."""

    def __init__(self, store: Store, worker: int) -> None:
        self.store = store
        self.worker = worker

    async def batch(self, status: str, *, ends_as: str | None = None, total: int = 1, done: int = 1) -> int:
        async with self.store.session() as session:
            no: int = await session.connection.fetchval(
                "INSERT INTO batch (no, id, owner, target, endpoint, source, status, ends_as, completion_window,"
                " retention, total, completed, ended_at, in_progress_at, validator, sealer, expires_at)"
                " SELECT next_batch_no(now()), gen_random_uuid(), no, 'chat', '/v1/chat/completions', 'file', $1, $2,"
                " '24h', '7 days', $3, $4, CASE WHEN $5 THEN now() END, now(), $6, $6, now() - interval '1 hour'"
                " FROM account WHERE name = 'local' RETURNING no",
                *(status, ends_as, total, done, status in FINAL, self.worker),
            )
        return no

    async def status(self, no: int) -> str:
        async with self.store.session() as session:
            found: str = await session.connection.fetchval("SELECT status FROM batch WHERE no = $1", no)
        return found


@pytest_asyncio.fixture
async def rows(store: Store) -> Rows:
    life = Life(store)
    await life.begin()
    return Rows(store, life.no)


Take = Callable[[Session, int, int], Any]


async def _held(session: Session, no: int) -> Any:
    return await session.connection.fetchrow("SELECT no, ends_as FROM batch WHERE no = $1", no)


async def _start(session: Session, no: int, worker: int) -> Any:
    return await batches.start_if_validated(session, no, worker, "m", 1)


async def _refuse(session: Session, no: int, worker: int) -> Any:
    return await batches.refuse_if_validating(session, no, worker, "empty_file", "Empty.", [])


async def _cancel(session: Session, no: int, worker: int) -> Any:
    return await batches.cancel_if_unfinished(session, 1, no)


async def _finalize(session: Session, no: int, worker: int) -> Any:
    return await session.row(_SQL["finalize_if_over"], worker=worker, only=[no], skipped=[])


async def _end(session: Session, no: int, worker: int) -> Any:
    return await batches.end_if_sealed(session, await _held(session, no), worker, None, None)


ARROWS: list[tuple[Take, Status, str | None]] = [
    (_start, Status.IN_PROGRESS, None),
    (_refuse, Status.FAILED, None),
    (_cancel, Status.CANCELLING, None),
    (_finalize, Status.FINALIZING, None),
    (_end, Status.COMPLETED, None),
    (_end, Status.EXPIRED, "expired"),
    (_end, Status.FAILED, "failed"),
    (_end, Status.CANCELLED, "cancelled"),
]
LEFT_BY = {"_start": {"validating"}, "_refuse": {"validating"}, "_end": {"finalizing"}}


@pytest.mark.parametrize(("take", "after", "ends_as"), ARROWS)
@pytest.mark.parametrize("before", Status)
async def test_an_arrow_leaves_only_the_states_of_the_table(
    rows: Rows, before: Status, take: Take, after: Status, ends_as: str | None
) -> None:
    no = await rows.batch(before, ends_as=ends_as, total=0 if take is _refuse else 1, done=0 if take is _refuse else 1)
    allowed = after in FOLLOWS[before] and before in LEFT_BY.get(take.__name__, set(Status))
    async with rows.store.session() as session:
        assert bool(await take(session, no, rows.worker)) is allowed
    assert await rows.status(no) == (after if allowed else before)


@pytest.mark.parametrize("take", [_start, _refuse, _end])
async def test_only_the_worker_that_holds_a_batch_moves_it_on(rows: Rows, take: Take) -> None:
    before = "finalizing" if take is _end else "validating"
    no = await rows.batch(before)
    async with rows.store.session() as session:
        assert not await take(session, no, rows.worker + 1)
    assert await rows.status(no) == before


@pytest.mark.parametrize("ends_as", [None, "expired", "failed"])
async def test_no_batch_ends_while_a_request_is_without_an_answer(rows: Rows, ends_as: str | None) -> None:
    no = await rows.batch("finalizing", ends_as=ends_as, total=2, done=1)
    async with rows.store.session() as session:
        assert not await _end(session, no, rows.worker)
    assert await rows.status(no) == "finalizing"


async def test_a_batch_of_another_owner_is_not_cancelled(rows: Rows) -> None:
    no = await rows.batch("in_progress")
    async with rows.store.session() as session:
        assert not await batches.cancel_if_unfinished(session, 2, no)
    assert await rows.status(no) == "in_progress"


async def test_a_batch_that_is_closing_is_not_cancelled(rows: Rows) -> None:
    no = await rows.batch("in_progress", ends_as="expired", total=2)
    async with rows.store.session() as session:
        assert not await batches.cancel_if_unfinished(session, 1, no)


@pytest.mark.parametrize("claim", [batches.claim_over, batches.claim_validating])
async def test_a_dead_worker_can_claim_nothing(rows: Rows, claim: Any) -> None:
    await rows.batch("in_progress")
    await rows.batch("finalizing")
    await rows.batch("validating")
    given = {"may_read": True} if claim is batches.claim_validating else {}
    async with rows.store.session() as session:
        await session.connection.execute("UPDATE worker SET dead_at = now()")
    assert await claim(rows.store, rows.worker, None, **given) is None
    async with rows.store.session() as session:
        await session.connection.execute("UPDATE worker SET dead_at = NULL")
    assert await claim(rows.store, rows.worker, None, **given) is not None


async def test_batches_of_a_newer_schema_are_left_to_newer_workers(rows: Rows) -> None:
    for status in ("in_progress", "finalizing", "validating"):
        await rows.batch(status)
    async with rows.store.session() as session:
        await session.connection.execute("UPDATE batch SET schema = 2")
    assert await batches.claim_over(rows.store, rows.worker, None) is None
    assert await batches.claim_validating(rows.store, rows.worker, None, may_read=True) is None


async def test_blocks_come_back_in_their_order(rows: Rows) -> None:
    no = await rows.batch("finalizing")
    packed = [Packed([i], [i], b"") for i in range(10)]
    async with rows.store.transaction() as session:
        await blocks.write(session, no, "m", 0, packed[:6])
        await blocks.write(session, no, "m", 6, packed[6:])
        found: list[int] = []
        while closed := await blocks.close_some(session, no):
            assert len(closed) <= blocks.CLOSED_AT_ONCE
            found += [block.seq for block in closed]
    assert found == list(range(10))


@pytest_asyncio.fixture
async def filled(rows: Rows) -> Rows:
    """Many batches that have ended, few that have not, and the blocks of some."""
    async with rows.store.session() as session:
        await session.connection.execute(
            "INSERT INTO account (name, role) SELECT 'a' || i, 'free' FROM generate_series(2, 50) AS i"
        )
        await session.connection.execute(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, status, completion_window, retention, total,"
            " ended_at, in_progress_at, expires_at)"
            " SELECT next_batch_no(now()), gen_random_uuid(), 1 + i % 49, 'chat', '/v1/chat/completions', 'file',"
            " CASE WHEN i % 100 = 0 THEN 'in_progress' ELSE 'completed' END, '24h', '7 days', 1,"
            " CASE WHEN i % 100 = 0 THEN NULL ELSE now() - interval '1 hour' END, now(), now() + interval '1 day'"
            " FROM generate_series(1, 5000) AS i"
        )
        await session.connection.execute(
            "INSERT INTO block (batch, seq, model, state, count, lines, ids, data)"
            " SELECT b.no, i, 'm', CASE WHEN i = 100 THEN 'ready' ELSE 'done' END, 1, '{1}', '{1}', ''"
            " FROM generate_series(1, 100) AS i,"
            " (SELECT no FROM batch WHERE status = 'in_progress' ORDER BY no LIMIT 50) AS b"
        )
        await session.connection.execute("ANALYZE")
    return rows


async def plan(session: Session, statement: Statement, **given: Any) -> list[dict[str, Any]]:
    """The nodes of a statement's plan."""
    text = await session.connection.fetchval("EXPLAIN (FORMAT JSON) " + statement.sql, *statement.arguments(given))
    return all_nodes(json.loads(text)[0]["Plan"])


def all_nodes(root: dict[str, Any]) -> list[dict[str, Any]]:
    todo, found = [root], []
    while todo:
        node = todo.pop()
        found.append(node)
        todo += node.get("Plans", [])
    return found


WALKS: list[tuple[str, dict[str, Any], str]] = [
    ("claim_validating", {"worker": 1, "only": None, "skipped": [], "may_read": True}, "batch_unfinished"),
    ("claim_finalizing", {"worker": 1, "only": None, "skipped": []}, "batch_unfinished"),
    ("finalize_if_over", {"worker": 1, "only": None, "skipped": []}, "batch_unfinished"),
    ("close_if_window_ended", {"only": None}, "batch_unfinished"),
    ("measure_work", {"fresh": timedelta(seconds=5)}, "batch_unfinished"),
    ("measure_owner", {"owner": 1}, "batch_unfinished"),
    ("measure_pool", {"fresh": timedelta(seconds=5)}, "batch_unfinished"),
    ("measure_progress", {"batches": [1, 2]}, "batch_unfinished"),
    ("list_running", {"after": 0, "most": 500}, "batch_unfinished"),
    ("find_unfinished_of_file", {"input_file": 1}, "batch_unfinished_of_file"),
    ("find_batch", {"owner": 1, "id": UUID(int=1)}, "batch_id_key"),
    (
        "list_batches",
        {
            "owner": 1, "before": 2**62, "statuses": list(Status), "endpoint": None, "model": None, "since": None,
            "until": None, "text": None, "low": None, "high": None, "most": 21,
        },
        "batch_of_owner_by_status",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "index"), WALKS, ids=[walk[0] for walk in WALKS])
async def test_frequent_statements_walk_their_index(filled: Rows, name: str, given: dict[str, Any], index: str) -> None:
    async with filled.store.session() as session:
        nodes = await plan(session, _SQL[name], **given)
    assert index in {node.get("Index Name") for node in nodes}
    whole = [n for n in nodes if n["Node Type"] == "Seq Scan" and n.get("Relation Name") == "batch"]
    assert not whole


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("statuses", [["in_progress"], ["failed", "expired"], list(Status)])
async def test_a_page_of_batches_looks_at_no_more_rows_than_a_page_of_each_state(
    filled: Rows, statuses: list[str], mode: str
) -> None:
    statement, given = _SQL["list_batches"], {**WALKS[-1][1], "statuses": "{" + ",".join(statuses) + "}"}
    values = ["NULL" if value is None else f"'{value}'" for value in statement.arguments(given)]
    async with filled.store.transaction() as session:
        connection = session.connection
        await connection.execute(f"SET LOCAL plan_cache_mode = '{mode}'")
        # One owner has all batches, most of them completed.
        await connection.execute("UPDATE batch SET owner = 1; ANALYZE batch")
        await connection.execute("PREPARE listing AS " + statement.sql)
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE listing ({', '.join(values)})")
        await connection.execute("DEALLOCATE listing")
    nodes = all_nodes(json.loads(text)[0]["Plan"])
    looked_at = [
        (n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"]
        for n in nodes
        if n.get("Relation Name") == "batch"
    ]
    assert looked_at
    assert sum(looked_at) <= 21 * len(statuses)


async def test_batches_that_ended_lately_are_found_by_their_end(filled: Rows) -> None:
    async with filled.store.session() as session:
        since = await session.connection.fetchval("SELECT now()") - timedelta(minutes=1)
        nodes = await plan(session, _SQL["list_ended"], since=since, after=0, most=500)
    assert "batch_ended" in {node.get("Index Name") for node in nodes}


async def test_ready_blocks_are_found_behind_those_that_are_done(filled: Rows) -> None:
    async with filled.store.session() as session:
        no = await session.connection.fetchval("SELECT min(batch) FROM block")
        nodes = await plan(session, load("block")["close_ready_blocks"], batch=no, most=4)
    assert any("_batch_seq_idx" in (node.get("Index Name") or "") for node in nodes)
