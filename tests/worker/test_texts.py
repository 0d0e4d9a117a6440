"""Requests that wait take no room from others, however large they are, and are read again when they are due."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from overnight.store.pool import Store
from overnight.worker import held, lease, texts
from overnight.worker.held import Held
from tests.scripted_upstream import Asked, Gate, Say, Upstream, echo, failure
from tests.worker.rig import add_batch, add_owner, names, request, results, rigged
from tests.worker.routes import Switch
from tests.worker.test_grants import rounds

LARGE = 8_000


def large(name: str) -> bytes:
    return request(name, user="x" * LARGE)


def engine(upstream: Upstream, slots: int) -> Switch:
    """A route that goes on however often it fails."""
    route = Switch(upstream.url, slots)
    route.up()
    return route


def assert_nothing_is_left(of: Held) -> None:
    assert of.bytes == 0
    assert all((flow.waiting.bytes, flow.waiting.read_bytes) == (0, 0) for flow in of.flows.values())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held is bounded as for some ten large requests, and for two of those that wait."""
    monkeypatch.setattr(lease, "MOST_BYTES", 10 * LARGE)
    monkeypatch.setattr(lease, "MIX_BYTES", 5 * LARGE)
    monkeypatch.setattr(held, "WAITING_BYTES", int(2.5 * LARGE))
    monkeypatch.setattr(texts, "READ_BYTES", 3 * LARGE)


class Watched:
    """A script that fails so many tries of each request and notes the most bytes held; what it was sent is kept."""

    def __init__(self, of: Held, failures: dict[str, int]) -> None:
        self.of = of
        self.failures = failures
        self.most = 0
        self.bodies: dict[str, list[dict[str, Any]]] = defaultdict(list)

    async def __call__(self, asked: Asked) -> Say:
        self.most = max(self.most, self.of.bytes)
        self.bodies[asked.name].append(asked.body)
        fails = asked.time <= self.failures.get(asked.name, 0)
        return Say(500, failure("broken")) if fails else await echo(asked)


@pytest.mark.usefixtures("small")
async def test_large_requests_that_wait_leave_room_for_others(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, route=engine(upstream, 2)) as rig:
        script = upstream.script = Watched(rig.worker._held, dict.fromkeys(names(20), 1_000))
        await add_batch(store, [large(f"r{i}") for i in range(20)], of_each=1)
        await rig.until(lambda: len(upstream.arrivals) == 20)
        others = await add_batch(
            store, [large(f"s{i}") for i in range(5)], of_each=1, owner=await add_owner(store, "b")
        )
        rig.worker.wake()
        await rig.until(lambda: len(upstream.arrivals) == 25 and rig.worker.unstored == 0)
        assert (await results(store, others)).keys() == {f"s{i}" for i in range(5)}
        assert script.most <= 11 * LARGE


@pytest.mark.usefixtures("small", "short_waits")
async def test_what_gave_its_text_back_is_sent_again_as_it_was(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, route=engine(upstream, 4)) as rig:
        script = upstream.script = Watched(rig.worker._held, dict.fromkeys(names(20), 3))
        batch = await add_batch(store, [large(f"r{i}") for i in range(20)], of_each=3)
        await rig.finish()
        assert_nothing_is_left(rig.worker._held)
    found = await results(store, batch)
    assert found.keys() == names(20)
    assert all(line["error"] is None for line in found.values())
    for name in names(20):
        first = script.bodies[name][0]
        assert first["user"] == "x" * LARGE
        assert script.bodies[name] == [first] * 4


@pytest.mark.usefixtures("small")
async def test_what_waits_to_run_alone_gives_its_text_back_too(store: Store, upstream: Upstream) -> None:
    async with store.session() as session:
        batch = await add_batch(store, [large(f"r{i}") for i in range(9)])
        await session.connection.execute("UPDATE block SET leases = 3")
        await session.connection.execute(
            "INSERT INTO attempt (batch, worker, no, blocks, lines)"
            " SELECT $1::bigint, n, 1, '{0}'::int[], '{0,1,2,3,4,5,6,7,8}' FROM generate_series(1, 3) n",
            batch,
        )
    upstream.script = gate = Gate()
    async with rigged(store, upstream, route=engine(upstream, 4)) as rig:
        await rig.until(lambda: upstream.in_flight == 1)
        assert rig.worker._held.bytes <= 4 * LARGE
        gate.open()
        await rig.finish()
        assert_nothing_is_left(rig.worker._held)
    assert (await results(store, batch)).keys() == names(9)
    assert set(upstream.beside.values()) == {0}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ends", ["UPDATE batch SET paused = '{}'", "DELETE FROM block"])
async def test_what_waits_without_its_text_is_let_go_with_its_batch(
    store: Store, upstream: Upstream, ends: str
) -> None:
    async with rigged(store, upstream, route=engine(upstream, 4)) as rig:
        of = rig.worker._held
        upstream.script = Watched(of, dict.fromkeys(names(20), 1_000))
        await add_batch(store, [large(f"r{i}") for i in range(20)])
        await rig.until(lambda: len(upstream.arrivals) == 20 and rig.worker.running == 0)
        await rounds(rig)
        async with store.session() as session:
            await session.connection.execute(ends)
        of.take_up_due(float("inf"))
        await rig.until(lambda: rig.worker.running == 0 and not any(f.waiting.unread for f in of.flows.values()))
        await rounds(rig)
        upstream.script = echo
        of.take_up_due(float("inf"))
        await rig.until(lambda: rig.worker.is_idle)
        assert_nothing_is_left(of)
