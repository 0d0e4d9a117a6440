"""While nothing may start in a process, what runs finishes, and it goes on by itself afterwards."""

from __future__ import annotations

import pytest

from overnight.current_limits import CurrentLimits
from overnight.domain.limits import Limits
from overnight.store import settings
from overnight.store.pool import Store
from overnight.worker import held
from tests.scripted_upstream import Asked, Gate, Say, Upstream
from tests.worker.rig import add_batch, names, request, results, rigged, value


@pytest.mark.parametrize("why", ["off", "disk"])
async def test_nothing_starts_while_batches_are_off_or_the_disk_is_full(
    store: Store, upstream: Upstream, why: str
) -> None:
    full = False
    limits = Limits(slots=4, request_seconds=10)
    current = CurrentLimits(store, limits, lambda: full)
    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(12)])
    async with rigged(store, upstream, limits=limits) as rig:
        await rig.until(lambda: len(upstream.asked) == 4)
        full = why == "disk"
        await settings.change(store, {"BATCH_ENABLED": why != "off"})
        await current.round()
        gate.open()
        await rig.until(lambda: rig.worker.running == 0 and not rig.worker.unstored)
        for _ in range(3):
            await rig.worker.round()
        assert len(upstream.asked) == 4
        assert await value(store, "SELECT completed FROM batch WHERE no = $1", batch) == 4
        full = False
        await settings.change(store, {"BATCH_ENABLED": True})
        await current.round()
        await rig.finish()
    assert (await results(store, batch)).keys() == names(12)
    assert len(upstream.asked) == 12


async def test_what_waits_in_a_process_where_nothing_may_start_is_left_to_others(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "STUCK_FOR", 0.0)
    leased = "SELECT count(*) FROM block WHERE state = 'leased'"
    upstream.script = gate = Gate()
    limits = Limits(slots=4, request_seconds=60)
    batch = await add_batch(store, [request(f"r{i}") for i in range(12)], of_each=2)
    async with rigged(store, upstream, limits=limits) as rig:
        await rig.until(lambda: len(upstream.asked) == 4)
        limits.slots = 0
        for _ in range(5):
            rig.worker.wake()
            await rig.worker.round()
        # Those of which requests run stay.
        assert await value(store, leased) == 2
        gate.open()
        await rig.until(lambda: rig.worker.is_idle)
        assert await value(store, leased) == 0
        limits.slots = 4
        await rig.finish()
    assert (await results(store, batch)).keys() == names(12)
    assert set(upstream.arrivals.values()) == {1}


async def test_a_request_that_is_to_run_alone_waits_too(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request("poison")])
    for number in range(3):
        await value(
            store,
            "INSERT INTO attempt (batch, worker, no, blocks, lines) VALUES ($1, 1, $2, '{0}', '{0}')",
            *(batch, number),
        )
    await value(store, "UPDATE block SET leases = 3 WHERE batch = $1", batch)
    limits = Limits(slots=0, request_seconds=10)
    async with rigged(store, upstream, limits=limits) as rig:
        for _ in range(5):
            await rig.worker.round()
        assert upstream.asked == []
        limits.slots = 4
        await rig.finish()
    assert len(upstream.asked) == 1


async def test_a_cap_lowered_below_what_runs_ends_nothing_and_lets_nothing_start(
    store: Store, upstream: Upstream
) -> None:
    limits = Limits(per_model=4, request_seconds=10)
    first, second = Gate(), Gate()
    running = most_later = 0

    async def script(asked: Asked) -> Say:
        nonlocal running, most_later
        running += 1
        early = len(upstream.asked) <= 4
        if not early:
            most_later = max(most_later, running)
        try:
            return await (first if early else second)(asked)
        finally:
            running -= 1

    upstream.script = script
    batch = await add_batch(store, [request(f"r{i}") for i in range(9)])
    async with rigged(store, upstream, limits=limits) as rig:
        await rig.until(lambda: running == 4)
        limits.per_model = 2
        for _ in range(3):
            await rig.worker.round()
        assert running == 4
        first.open()
        await rig.until(lambda: len(upstream.asked) == 6)
        second.open()
        await rig.finish()
    assert most_later == 2
    assert all(one["error"] is None for one in (await results(store, batch)).values())
