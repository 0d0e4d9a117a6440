"""Requests on a local engine: they wait while it is down, and its death is no try of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from overnight.store.pool import Store
from overnight.worker import ending
from tests.scripted_upstream import Asked, Gate, Say, Upstream, echo
from tests.worker.rig import Rig, add_batch, names, request, results, rigged, value, values
from tests.worker.routes import Switch

DIES = Say(raw=b"")


@pytest.fixture
async def engine(upstream: Upstream) -> Switch:
    return Switch(upstream.url)


@pytest.fixture
async def rig(store: Store, upstream: Upstream, engine: Switch) -> AsyncIterator[Rig]:
    async with rigged(store, upstream, route=engine) as rig:
        yield rig


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "LOST_WAIT", 0.02)


async def test_requests_wait_for_the_engine_and_start_when_it_is_up(rig: Rig, engine: Switch) -> None:
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(20)])
    await rig.worker.round()
    assert rig.worker.running == 0
    engine.up()
    await rig.finish()
    assert (await results(rig.store, batch)).keys() == names(20)


async def test_what_runs_when_the_engine_dies_runs_again_and_uses_no_try(rig: Rig, engine: Switch) -> None:
    gate = Gate()
    rig.upstream.script = gate
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(20)])
    engine.up()
    await rig.until(lambda: rig.upstream.in_flight == 4)
    engine.down()
    await rig.upstream.stop()
    await rig.until(lambda: rig.worker.running == 0)
    await rig.worker.round()
    assert rig.worker.running == 0
    rig.upstream.script = echo
    await rig.upstream.start()
    engine.up()
    await rig.finish()
    assert (await results(rig.store, batch)).keys() == names(20)
    assert await value(rig.store, "SELECT max(tries) FROM answer") == 1
    calls = await values(rig.store, "SELECT counted, lost FROM call")
    assert [(row["counted"], row["lost"]) for row in calls] == [(False, True)] * 4


async def test_a_request_that_never_reached_the_engine_is_taken_back(rig: Rig, engine: Switch) -> None:
    batch = await add_batch(rig.store, [request("a")])
    await rig.upstream.stop()
    engine.up()
    await rig.until(lambda: rig.worker.holds(batch) and rig.worker.running == 1)
    await rig.until(lambda: rig.worker.running == 0)
    engine.down()
    await rig.until(lambda: rig.worker.running == 0)
    await rig.worker.round()
    # The one attempt that may be left is written down for the next start.
    assert await value(rig.store, "SELECT sum(cardinality(lines)) FROM attempt") <= 1
    await rig.upstream.start()
    engine.up()
    await rig.finish()
    assert (await results(rig.store, batch)).keys() == {"a"}
    assert await value(rig.store, "SELECT count(*) FROM call") == 0
    assert await value(rig.store, "SELECT sum(cardinality(lines)) FROM attempt") == 1


async def test_a_request_that_engines_die_of_ends_alone(rig: Rig, engine: Switch) -> None:
    beside: list[int] = []

    async def script(asked: Asked) -> Say:
        if asked.name == "poison":
            if asked.time < 4:
                await rig.upstream.until_in_flight(2)
            beside.append(rig.upstream.in_flight - 1)
            return DIES
        await asyncio.sleep(0.01)
        return await echo(asked)

    rig.upstream.script = script
    batch = await add_batch(rig.store, [request("poison"), *(request(f"r{i}") for i in range(300))])
    engine.up()
    await rig.finish()
    found = await results(rig.store, batch)
    assert found["poison"]["error"]["code"] == "upstream_error"
    assert all(found[name]["error"] is None for name in names(300))
    assert len(beside) == 4
    assert beside[3] == 0
    # Others were still to be run when it ended.
    assert rig.upstream.asked[-1].name != "poison"


async def test_a_request_that_survives_alone_is_answered(rig: Rig, engine: Switch) -> None:
    async def script(asked: Asked) -> Say:
        return DIES if asked.name == "heavy" and asked.time < 4 else await echo(asked)

    rig.upstream.script = script
    batch = await add_batch(rig.store, [request("heavy"), *(request(f"r{i}") for i in range(20))])
    engine.up()
    await rig.finish()
    found = await results(rig.store, batch)
    assert all(line["error"] is None for line in found.values())
    assert len(found) == 21
