"""A worker that is told to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from overnight.store import answers
from overnight.store.pool import Store
from overnight.worker import worker
from tests.scripted_upstream import Gate, Upstream, echo
from tests.worker.rig import add_batch, names, request, results, rigged, value


async def test_what_ends_within_the_grace_is_stored_and_the_rest_goes_back(store: Store, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(50)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        stopping = asyncio.create_task(rig.worker.stop(30.0))
        await rig.until(lambda: rig.worker.is_stopping)
        gate.open()
        await stopping
        assert await value(store, "SELECT count(*) FROM block WHERE state = 'leased'") == 0
    assert len(upstream.asked) == 4
    assert (await results(store, batch)).keys() == {asked.name for asked in upstream.asked}
    assert await value(store, "SELECT sum(cardinality(lines)) FROM attempt") == 4


async def test_after_the_grace_what_runs_goes_back_and_that_was_no_try(store: Store, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(50)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        await rig.worker.stop(0.0)
        assert rig.worker.running == 0
        assert await value(store, "SELECT count(*) FROM block WHERE state = 'leased'") == 0
    upstream.script = echo
    async with rigged(store, upstream) as rig:
        await rig.finish()
    assert (await results(store, batch)).keys() == names(50)
    assert await value(store, "SELECT max(tries) FROM answer") == 1


async def test_a_stop_that_is_hurried_does_not_wait_for_the_end_of_its_grace(store: Store, upstream: Upstream) -> None:
    upstream.script = Gate()
    await add_batch(store, [request(f"r{i}") for i in range(50)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        stopping = asyncio.create_task(rig.worker.stop(3_600.0))
        await rig.until(lambda: rig.worker.is_stopping)
        rig.worker.hurry()
        await stopping
        assert rig.worker.running == 0
        assert await value(store, "SELECT count(*) FROM block WHERE state = 'leased'") == 0


async def test_stopping_ends_even_without_the_database(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STORE_WITHIN", 0.2)
    gate = Gate()
    upstream.script = gate
    await add_batch(store, [request(f"r{i}") for i in range(50)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)

        async def gone(_: str) -> None:
            raise ConnectionRefusedError("the database is gone")

        monkeypatch.setattr(store, "connect", gone)
        await rig.worker.close()
        await rig.worker.stop(0.0)
        assert rig.worker.running == 0


async def test_the_whole_of_a_worker_runs_until_it_is_cancelled(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(300)])
    async with rigged(store, upstream) as rig:
        running = asyncio.create_task(rig.worker.run())
        async with asyncio.timeout(60):
            while await value(store, "SELECT completed FROM batch") < 300:
                await upstream.settled()
        await rig.worker.stop(1.0)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
    assert (await results(store, batch)).keys() == names(300)


async def test_a_full_disk_does_not_keep_what_ended_from_being_stored_while_there_is_time(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    upstream.script = gate
    await add_batch(store, [request(f"r{i}") for i in range(4)])
    record = answers.record
    full = [True, True]

    async def record_if_there_is_space(*given: Any) -> None:
        if full and full.pop():
            raise asyncpg.DiskFullError("No space left on device")
        await record(*given)

    monkeypatch.setattr(answers, "record", record_if_there_is_space)
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        gate.open()
        await rig.worker.stop(30.0)
    assert not full
    assert await value(store, "SELECT count(*) FROM answer") == 4


async def test_stopping_ends_though_the_database_stands_still(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STORE_WITHIN", 0.2)
    upstream.script = Gate()
    await add_batch(store, [request(f"r{i}") for i in range(50)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)

        async def silent(_: str) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(store, "connect", silent)
        await rig.worker.close()
        async with asyncio.timeout(60):
            await rig.worker.stop(0.0)
        assert rig.worker.running == 0
