"""Answers are stored once, counted in the same commit, and read back in the order of their commits."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import asyncpg
import pytest
import pytest_asyncio

from overnight.domain.limits import FRAME_LINES
from overnight.domain.outcome import Usage
from overnight.store import answers, zstd
from overnight.store.answers import ERROR, OUTPUT, Answer, Fenced, record
from overnight.store.life import Life, declare_dead
from overnight.store.pool import Store

UNLIMITED = 2**62


class Deployment:
    """Batches of 1,000 requests and workers, as bare rows."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def batch(self) -> int:
        async with self.store.session() as session:
            no: int = await session.connection.fetchval(
                "INSERT INTO batch"
                " (no, id, owner, target, endpoint, source, status, completion_window, retention, total)"
                " SELECT next_batch_no(now()), gen_random_uuid(), no, 'chat', '/v1/chat/completions', 'file',"
                " 'in_progress', '24h', '7 days', 1000 FROM account WHERE name = 'local' RETURNING no"
            )
        return no

    async def worker(self) -> int:
        life = Life(self.store)
        await life.begin()
        return life.no

    async def flush(self, worker: int, *flush: tuple[int, list[Answer]]) -> int:
        async with self.store.session() as session:
            return await record(session, worker, flush)

    async def stream(self, batch: int, kind: int, start: int = 0, stop: int = UNLIMITED) -> bytes:
        return b"".join([piece async for piece in answers.stream(self.store, batch, kind, start, stop)])

    async def row(self, batch: int) -> asyncpg.Record:
        async with self.store.session() as session:
            return await session.connection.fetchrow("SELECT * FROM batch WHERE no = $1", batch)

    async def count(self, table: str, batch: int) -> int:
        async with self.store.session() as session:
            found: int = await session.connection.fetchval(f"SELECT count(*) FROM {table} WHERE batch = $1", batch)
        return found

    async def die(self, worker: int) -> bool:
        """Declare a worker dead whose heartbeat is old."""
        async with self.store.session() as session:
            await session.connection.execute("UPDATE beat SET at = now() - interval '1 hour' WHERE worker = $1", worker)
        return await declare_dead(self.store, worker, timedelta(seconds=10))


@pytest_asyncio.fixture
async def deployment(store: Store) -> Deployment:
    return Deployment(store)


def answer(line: int, *, kind: int = OUTPUT, size: int = 20, usage: Usage | None = None, ran: bool = True) -> Answer:
    text = f"{line}:{'x' * size}\n".encode()
    return Answer(line, text, kind, tries=1, status=200, usage=usage or Usage(), ran=ran)


def text_of(*flushes: list[Answer]) -> bytes:
    return b"".join(a.text for flush in flushes for a in flush)


async def wait_for_lock(store: Store) -> None:
    """Return when some connection waits for a row that another one holds."""
    async with asyncio.timeout(60), store.session() as session:
        while not await session.connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted"
            " AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
        ):
            await asyncio.sleep(0)


async def test_what_is_counted_can_be_read(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    good = [answer(i, usage=Usage(10, 4, 6, 2)) for i in range(3)]
    bad = [answer(3, kind=ERROR), answer(4, kind=ERROR, ran=False), answer(5, kind=ERROR, ran=False)]

    assert await deployment.flush(worker, (batch, [good[0], bad[0], good[1], bad[1], good[2], bad[2]])) == 6

    row = await deployment.row(batch)
    assert (row["completed"], row["failed"], row["cancelled"]) == (3, 1, 2)
    assert (row["input_tokens"], row["cached_tokens"]) == (30, 12)
    assert (row["output_tokens"], row["reasoning_tokens"]) == (18, 6)
    assert (row["output_lines"], row["error_lines"]) == (3, 3)
    assert await deployment.stream(batch, OUTPUT) == text_of(good)
    assert await deployment.stream(batch, ERROR) == text_of(bad)
    assert (row["output_bytes"], row["error_bytes"]) == (len(text_of(good)), len(text_of(bad)))


async def test_segments_follow_each_other_in_the_order_of_their_commits(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    flushes = [[answer(9), answer(2)], [answer(7, size=500)], [answer(1), answer(0), answer(5)]]
    for flush in flushes:
        await deployment.flush(worker, (batch, flush))

    assert await deployment.stream(batch, OUTPUT) == text_of(*flushes)
    async with deployment.store.session() as session:
        rows = await session.connection.fetch(
            "SELECT starts, lines_before, bytes, lines FROM segment WHERE batch = $1 ORDER BY starts", batch
        )
    at = before = 0
    for row, flush in zip(rows, flushes, strict=True):
        assert tuple(row) == (at, before, len(text_of(flush)), len(flush))
        at, before = at + row["bytes"], before + row["lines"]


async def test_each_answer_is_found_in_its_frame(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    flush = [answer(i, size=i * 3, kind=ERROR if i % 3 == 0 else OUTPUT) for i in range(4 * FRAME_LINES + 3)]
    await deployment.flush(worker, (batch, flush[:5]))
    await deployment.flush(worker, (batch, flush[5:]))

    async with deployment.store.session() as session:
        rows = await session.connection.fetch(
            "SELECT a.line, a.frame_index, substring(s.data FROM a.frame_at + 1 FOR a.frame_bytes) AS frame"
            " FROM answer a JOIN segment s ON (s.batch, s.kind, s.starts) = (a.batch, a.kind, a.segment)"
            " WHERE a.batch = $1 ORDER BY a.line",
            batch,
        )
    found = [zstd.decompress(row["frame"]).splitlines(keepends=True)[row["frame_index"]] for row in rows]
    assert found == [a.text for a in flush]


async def test_any_part_of_a_stream_can_be_read(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    chance = random.Random(1)
    flushes = [[answer(10 * i + j, size=chance.randrange(300)) for j in range(1 + i % 4)] for i in range(12)]
    for flush in flushes:
        await deployment.flush(worker, (batch, flush))
    whole = text_of(*flushes)

    for _ in range(60):
        start, stop = sorted(chance.randrange(len(whole) + 20) for _ in range(2))
        assert await deployment.stream(batch, OUTPUT, start, stop) == whole[start:stop]
    assert await deployment.stream(batch, OUTPUT, len(whole)) == b""
    assert await deployment.stream(batch, ERROR) == b""


async def test_a_worker_declared_dead_can_write_nothing(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    await deployment.flush(worker, (batch, [answer(0)]))
    assert await deployment.die(worker)

    with pytest.raises(Fenced):
        await deployment.flush(worker, (batch, [answer(1)]))

    assert (await deployment.row(batch))["completed"] == 1
    assert await deployment.stream(batch, OUTPUT) == answer(0).text


async def test_a_flush_under_way_is_waited_for_before_its_worker_is_declared_dead(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    async with deployment.store.transaction() as session:
        await record(session, worker, [(batch, [answer(0)])])
        dying = asyncio.create_task(deployment.die(worker))
        await wait_for_lock(deployment.store)
        assert not dying.done()
    assert await dying
    assert (await deployment.row(batch))["completed"] == 1


async def test_a_second_answer_to_a_request_undoes_its_whole_flush(deployment: Deployment) -> None:
    batch, other, worker = await deployment.batch(), await deployment.batch(), await deployment.worker()
    await deployment.flush(worker, (batch, [answer(0), answer(1)]))

    with pytest.raises(asyncpg.UniqueViolationError):
        await deployment.flush(worker, (other, [answer(0)]), (batch, [answer(2), answer(1)]))

    assert (await deployment.row(batch))["completed"] == 2
    assert (await deployment.row(other))["completed"] == 0
    assert await deployment.stream(batch, OUTPUT) == text_of([answer(0), answer(1)])
    assert await deployment.count("segment", other) == await deployment.count("answer", other) == 0


async def test_more_answers_than_requests_are_refused(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    with pytest.raises(asyncpg.CheckViolationError):
        await deployment.flush(worker, (batch, [answer(i) for i in range(1_001)]))
    assert await deployment.count("answer", batch) == 0


async def test_answers_of_a_deleted_batch_are_dropped_and_the_others_kept(deployment: Deployment) -> None:
    gone, batch, worker = await deployment.batch(), await deployment.batch(), await deployment.worker()
    async with deployment.store.session() as session:
        await session.connection.execute("DELETE FROM batch WHERE no = $1", gone)

    assert await deployment.flush(worker, (gone, [answer(0), answer(1)]), (batch, [answer(0)])) == 1

    assert await deployment.count("segment", gone) == await deployment.count("answer", gone) == 0
    assert await deployment.stream(batch, OUTPUT) == answer(0).text


async def test_answers_of_many_batches_are_stored_together(deployment: Deployment) -> None:
    worker = await deployment.worker()
    batches = [await deployment.batch() for _ in range(5)]
    flush = [(batch, [answer(i, size=i), answer(i + 1, kind=ERROR)]) for i, batch in enumerate(reversed(batches))]

    assert await deployment.flush(worker, *flush) == 10

    for batch, found in flush:
        assert await deployment.stream(batch, OUTPUT) == found[0].text
        assert await deployment.stream(batch, ERROR) == found[1].text
        assert (await deployment.row(batch))["completed"] == 1


@pytest.mark.parametrize("undone", [False, True])
async def test_two_workers_on_one_batch_take_their_places_one_after_the_other(
    deployment: Deployment, undone: bool
) -> None:
    """The second flush waits for the first and goes behind it; or takes its place, where the first is undone."""
    batch, first, second = await deployment.batch(), await deployment.worker(), await deployment.worker()
    early, late = [answer(0, size=100), answer(1, kind=ERROR)], [answer(2), answer(3)]
    one = await deployment.store.connect("first")
    transaction = one.connection.transaction()
    await transaction.start()
    await record(one, first, [(batch, early)])

    waiting = asyncio.create_task(deployment.flush(second, (batch, late)))
    await wait_for_lock(deployment.store)
    await (transaction.rollback() if undone else transaction.commit())
    assert await waiting == 2
    await one.connection.close()

    kept = [] if undone else [early[0]]
    assert await deployment.stream(batch, OUTPUT) == text_of(kept, late)
    row = await deployment.row(batch)
    assert row["output_bytes"] == len(text_of(kept, late))
    assert (row["completed"], row["failed"]) == ((2, 0) if undone else (3, 1))


@pytest.mark.parametrize("turned", [False, True])
async def test_flushes_of_the_same_batches_never_wait_for_each_other_in_a_circle(
    deployment: Deployment, turned: bool
) -> None:
    """Whatever the order in a flush, batches are locked by number: so the second holds nothing that the first needs."""
    low, high = await deployment.batch(), await deployment.batch()
    async with deployment.store.session() as session:
        # Its row now lies behind the other one, where a scan of the table comes by last.
        await session.connection.execute("UPDATE batch SET model = 'm' WHERE no = $1", low)
    first, second = await deployment.worker(), await deployment.worker()
    given = [(low, [answer(2)]), (high, [answer(2)])]
    if turned:
        given.reverse()
    one = await deployment.store.connect("first")
    transaction = one.connection.transaction()
    await transaction.start()
    await record(one, first, [(low, [answer(0)])])

    waiting = asyncio.create_task(deployment.flush(second, *given))
    await wait_for_lock(deployment.store)
    await record(one, first, [(high, [answer(1)])])
    assert not waiting.done()
    await transaction.commit()
    assert await waiting == 2
    await one.connection.close()

    assert await deployment.stream(low, OUTPUT) == text_of([answer(0), answer(2)])
    assert await deployment.stream(high, OUTPUT) == text_of([answer(1), answer(2)])


async def test_many_workers_at_once_lose_nothing(deployment: Deployment) -> None:
    batches = [await deployment.batch() for _ in range(3)]
    workers = [await deployment.worker() for _ in range(4)]

    async def work(index: int, worker: int) -> None:
        chance = random.Random(index)
        for i in range(12):
            mine = [index * 100 + i * 2, index * 100 + i * 2 + 1]
            flush = [(batch, [answer(line, size=chance.randrange(50)) for line in mine]) for batch in batches]
            chance.shuffle(flush)
            await deployment.flush(worker, *flush)

    await asyncio.gather(*(work(index, worker) for index, worker in enumerate(workers)))

    for batch in batches:
        found = (await deployment.stream(batch, OUTPUT)).splitlines()
        lines = [int(line.split(b":")[0]) for line in found]
        assert sorted(lines) == sorted(index * 100 + i for index in range(4) for i in range(24))
        row = await deployment.row(batch)
        assert row["completed"] == row["output_lines"] == 96
        assert row["output_bytes"] == sum(len(line) + 1 for line in found)


async def test_the_last_error_of_a_line_is_that_of_its_last_counted_try(deployment: Deployment) -> None:
    batch, worker = await deployment.batch(), await deployment.worker()
    async with deployment.store.session() as session:
        for line, attempt, code, counted in (
            (1, 1, "rate_limited", True),
            (1, 2, "upstream_error", True),
            (1, 3, "service_unavailable", False),
            (2, 1, "service_unavailable", False),
            (3, 1, "timeout", True),
        ):
            await session.connection.execute(
                "INSERT INTO call (batch, line, worker, try, took_ms, status, code, message, counted)"
                " VALUES ($1, $2, $3, $4, 1, 503, $5, 'No.', $6)",
                *(batch, line, worker, attempt, code, counted),
            )
        found = await answers.last_errors(session, batch, [1, 2])
    assert [(row["line"], row["code"]) for row in found] == [(1, "upstream_error")]
