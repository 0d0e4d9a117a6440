"""How answers become durable, whatever happens to the database meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from overnight.domain.events import COUNTED
from overnight.monotonic import monotonic
from overnight.store import answers, leases
from overnight.store.answers import OUTPUT, Answer
from overnight.store.embedded import ensure
from overnight.store.leases import LeasedBatch, Pace
from overnight.store.migrate import migrate
from overnight.store.pool import Session, Store
from overnight.worker import record as recording
from overnight.worker.flow import Batch, Flow, Source
from overnight.worker.held import Held
from overnight.worker.record import ENOUGH, LONGEST_WAIT, MOST_BYTES, Recorder
from overnight.worker.request import Block
from tests.scripted_upstream import Gate, Upstream
from tests.worker.rig import Rig, add_batch, names, request, results, rigged, value
from tests.worker.routes import Switch

Write = Callable[..., Awaitable[Any]]
WRITES = ((answers, "record"), (leases, "write_down"), (leases, "lease"), (leases, "end_leases"))


def lost_after(write: Write) -> Write:
    """The first time, the statement commits and the connection breaks before that is heard of."""
    broken = False

    async def once(session: Session, *given: Any, **named: Any) -> Any:
        nonlocal broken
        came = await write(session, *given, **named)
        if not broken:
            broken = True
            session.connection.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return came

    return once


def lost_before(write: Write) -> Write:
    """The first time, the connection breaks before the statement arrives."""
    broken = False

    async def once(session: Session, *given: Any, **named: Any) -> Any:
        nonlocal broken
        if not broken:
            broken = True
            session.connection.terminate()
            raise ConnectionResetError
        return await write(session, *given, **named)

    return once


@pytest.mark.parametrize("lost", [lost_after, lost_before])
@pytest.mark.parametrize("write", [name for _, name in WRITES])
async def test_a_write_whose_end_was_not_heard_of_neither_loses_nor_doubles(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, lost: Callable[[Write], Write], write: str
) -> None:
    module = next(module for module, name in WRITES if name == write)
    monkeypatch.setattr(module, write, lost(getattr(module, write)))
    alarms = COUNTED.labels("answer_conflict")._value.get()
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(200)], of_each=30)
    await rig.finish()
    assert (await results(rig.store, batch)).keys() == names(200)
    assert COUNTED.labels("answer_conflict")._value.get() == alarms
    assert max(rig.upstream.arrivals.values()) == 1
    assert await value(rig.store, "SELECT count(*) FROM block WHERE state <> 'done'") == 0
    assert await value(rig.store, "SELECT sum(cardinality(lines)) FROM attempt") == 200


async def test_a_second_answer_raises_an_alarm_and_loses_no_other(store: Store, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(10)])
    alarms = COUNTED.labels("answer_conflict")._value.get()
    async with rigged(store, upstream) as rig:
        await rig.until(lambda: upstream.in_flight == 10)
        async with store.session() as session:
            first = Answer(3, b'{"custom_id":"r3","first":true}\n', OUTPUT, 1, status=200)
            await answers.record(session, rig.life.no, [(batch, [first])])
        gate.open()
        await rig.finish()
    found = await results(store, batch)
    assert found.keys() == names(10)
    assert found["r3"] == {"custom_id": "r3", "first": True}
    assert COUNTED.labels("answer_conflict")._value.get() == alarms + 1


async def test_nothing_starts_while_as_much_waits_to_be_stored_as_may(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MANY_BYTES", 0)
    monkeypatch.setattr(recording, "MOST_BYTES", 1)
    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        gate.open()
        # No round comes by, so nothing is stored.
        async with asyncio.timeout(60):
            while rig.worker.running:
                await asyncio.sleep(0)
        assert len(upstream.asked) == 4
        assert rig.worker.unstored
        await rig.finish()
    assert (await results(store, batch)).keys() == names(20)


async def test_answers_outlive_the_death_of_the_database(tmp_path: Path, upstream: Upstream) -> None:
    async with await ensure(tmp_path / "postgres") as database:
        connection = await asyncpg.connect(database.dsn)
        await migrate(connection)
        await connection.close()
        store = await Store(database.dsn, revive=database.revive).open()
        gate = Gate()
        upstream.script = gate
        batch = await add_batch(store, [request(f"r{i}") for i in range(100)])
        async with rigged(store, upstream, slots=40) as rig:
            await rig.until(lambda: upstream.in_flight == 40)
            postmaster = int((tmp_path / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
            os.kill(postmaster, signal.SIGKILL)
            gate.open()
            async with asyncio.timeout(60):
                await rig.until(lambda: not rig.worker.running and not rig.worker.unstored)
                # It may have taken so long that nothing starts before the next heartbeat.
                await rig.life.try_to_beat()
                await rig.finish()
            assert (await results(store, batch)).keys() == names(100)
            assert max(upstream.arrivals.values()) == 1
        await store.close()


class Bench:
    """A recorder with a batch of which answers come in, and no database."""

    def __init__(self) -> None:
        self.held = Held(1)
        self.rung = 0
        self.recorder = Recorder(self.held, self._ring, lambda _: None)
        self.stored: list[list[tuple[int, list[Answer]]]] = []

    def _ring(self) -> None:
        self.rung += 1

    def batch(self, no: int, pending: int) -> Block:
        """A block of a batch with so many requests that have no answer yet."""
        batch = Batch(
            LeasedBatch(no, UUID(int=no), 1, "/v1/chat/completions", {}, None, datetime.now(UTC), Pace(1, 0, 0.0)),
            None,
            0.0,
        )
        block = Block(Source(batch, Flow(Switch("r"), "m", 0.0)), 0)
        batch.unanswered = block.pending = pending
        batch.blocks.add(block)
        self.held.batches[no] = batch
        return block

    def answer(self, block: Block, count: int, at: float, size: int = 10) -> None:
        first = len(block.source.batch.answers)
        for line in range(first, first + count):
            self.recorder.add(block, Answer(line, b"x" * size, OUTPUT, 1), at)

    async def flush(self) -> list[tuple[int, int]]:
        """Batches and how many of their answers were stored."""
        before = len(self.stored)
        await self.recorder.flush(None)  # type: ignore[arg-type]
        return [(no, len(of_batch)) for flush in self.stored[before:] for no, of_batch in flush]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()

    async def store(_: Session, worker: int, flush: list[tuple[int, list[Answer]]]) -> int:
        bench.stored.append(list(flush))
        return 0

    monkeypatch.setattr(answers, "record", store)
    return bench


async def test_a_few_answers_wait_for_others_of_their_batch(bench: Bench) -> None:
    block = bench.batch(1, 100)
    bench.answer(block, ENOUGH - 1, monotonic())
    assert await bench.flush() == []
    bench.answer(block, 1, monotonic())
    assert await bench.flush() == [(1, ENOUGH)]


async def test_no_answer_waits_for_long(bench: Bench) -> None:
    bench.answer(bench.batch(1, 100), 1, monotonic() - LONGEST_WAIT)
    bench.answer(bench.batch(2, 100), 1, monotonic())
    assert await bench.flush() == [(1, 1)]


async def test_the_last_answer_of_a_batch_waits_for_nothing(bench: Bench) -> None:
    bench.answer(bench.batch(1, 2), 1, monotonic())
    assert bench.rung == 0
    bench.answer(bench.batch(2, 1), 1, monotonic())
    assert bench.rung == 1
    assert await bench.flush() == [(2, 1)]


async def test_a_batch_is_in_a_statement_once_however_much_it_has(bench: Bench) -> None:
    block = bench.batch(1, 100_000)
    bench.answer(block, 10_000, monotonic(), size=1_000)
    stored = []
    while bench.recorder.bytes:
        stored += await bench.flush()
    assert sum(count for _, count in stored) == 10_000
    assert all(len(flush) == 1 for flush in bench.stored)
    assert len(bench.stored) >= 3


async def test_an_answer_larger_than_a_statement_may_be_is_stored_by_itself(bench: Bench) -> None:
    bench.answer(bench.batch(1, 2), 2, monotonic(), size=6 * 1024 * 1024)
    assert await bench.flush() == [(1, 1)]
    assert await bench.flush() == [(1, 1)]


async def test_the_more_waits_to_be_stored_the_fewer_requests_run(bench: Bench) -> None:
    assert bench.recorder.most_running(1_000) == 1_000
    block = bench.batch(1, 100)
    bench.answer(block, 1, monotonic(), size=MOST_BYTES // 2)
    assert 0 < bench.recorder.most_running(1_000) < 1_000
    bench.answer(block, 1, monotonic(), size=MOST_BYTES // 2)
    assert bench.recorder.most_running(1_000) == 0
