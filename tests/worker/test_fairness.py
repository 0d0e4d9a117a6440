"""Owners share a server by tokens, and the batches of one by slack, on a real database and a real server."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

import pytest

from overnight.domain.fairness import estimate
from overnight.domain.limits import Limits
from overnight.store.pool import Store
from overnight.worker import lease, room
from overnight.worker.flow import Flow
from tests.scripted_upstream import Asked, Gate, Say, Turnstile, Upstream, completion
from tests.worker.rig import Rig, add_batch, add_owner, request, rigged, value
from tests.worker.routes import Switch


@pytest.fixture
def small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few requests are written down ahead, however fast they end here: so the order of starts is that of choices."""
    monkeypatch.setattr(room, "COMMITS_AHEAD", 0)
    monkeypatch.setattr(room, "LEAST_APART", 0)


def requests(letter: str, count: int) -> list[bytes]:
    return [request(f"{letter}{i}") for i in range(count)]


def starts(upstream: Upstream) -> str:
    """The first letters of the requests in the order of their starts."""
    return "".join(asked.name[0] for asked in upstream.asked)


@pytest.mark.parametrize("caches", [None, 4])
@pytest.mark.parametrize("cap", [None, 4, 100])
async def test_one_request_behind_a_large_batch_of_another_owner_starts_within_a_round(
    store: Store, upstream: Upstream, cap: int | None, caches: int | None
) -> None:
    """Whatever is written down of the other: before each slot has become free once, it has one of them."""
    gate = Turnstile()
    upstream.script = gate
    await add_batch(store, requests("a", 600))
    route = None
    if caches:
        route = Switch(upstream.url, slots=4, caches=caches)
        route.up()
    limits = Limits(request_seconds=60.0, per_model=cap)
    async with rigged(store, upstream, slots=4, limits=limits, route=route) as rig:
        gate.let_pass(200)
        await rig.until(lambda: len(upstream.asked) == 204)
        other = await add_owner(store, "other")
        await add_batch(store, requests("b", 1), owner=other)
        rig.worker.wake()
        await rig.until(lambda: any(request.block.source.owner == other for request in flow_of(rig).reserve))
        # With one cache for all any slot will do.
        at_most = 4 if caches else 1
        gate.let_pass(at_most)
        await rig.until(lambda: len(upstream.asked) == 204 + at_most)
        assert "b" in starts(upstream)[204:]
        gate.let_pass(600)


async def test_of_an_owner_who_comes_with_many_requests_one_goes_before_what_is_written_down(
    store: Store, upstream: Upstream
) -> None:
    gate = Turnstile()
    upstream.script = gate
    await add_batch(store, requests("a", 600))
    async with rigged(store, upstream, slots=4, limits=Limits(request_seconds=60.0)) as rig:
        gate.let_pass(200)
        await rig.until(lambda: len(upstream.asked) == 204)
        other = await add_owner(store, "other")
        await add_batch(store, requests("b", 100), owner=other)
        rig.worker.wake()
        await rig.until(lambda: any(request.block.source.owner == other for request in flow_of(rig).reserve))
        first, *others = [request.block.source.owner for request in flow_of(rig).reserve]
        assert first == other
        assert 1 in others
        gate.let_pass(600)


@pytest.mark.usefixtures("small_reserve")
async def test_it_finds_its_way_past_any_number_of_batches_that_are_held(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MIX", 8)
    gate = Gate()
    upstream.script = gate
    for _ in range(20):
        await add_batch(store, requests("a", 2))
    async with rigged(store, upstream, slots=1) as rig:
        await rig.until(lambda: upstream.in_flight == 1)
        while await rig.worker.round():
            pass
        assert await value(store, "SELECT count(*) FROM block WHERE state = 'leased'") < 16
        small = await add_batch(store, requests("b", 1), owner=await add_owner(store, "other"))
        rig.worker.wake()
        await rig.worker.round()
        assert rig.worker.holds(small)
        gate.open()


@pytest.mark.usefixtures("small_reserve")
async def test_owners_are_served_the_same_tokens_however_long_their_requests_are(
    store: Store, upstream: Upstream
) -> None:
    async def script(asked: Asked) -> Say:
        said = json.loads(completion("hello"))
        said["usage"] = {"prompt_tokens": 10, "completion_tokens": 95 if asked.name[0] == "a" else 5}
        return Say(body=json.dumps(said).encode())

    upstream.script = script
    await add_batch(store, requests("a", 600), of_each=32)
    await add_batch(store, requests("b", 600), owner=await add_owner(store, "other"), of_each=32)
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: len(upstream.asked) >= 360)
    tally = Counter(starts(upstream)[30:360])
    # 200 weighted tokens against 20: ten for one.
    assert 8 < tally["b"] / tally["a"] < 13


@pytest.mark.usefixtures("small_reserve")
async def test_a_hundred_batches_give_their_owner_no_larger_share_than_one(store: Store, upstream: Upstream) -> None:
    for _ in range(100):
        await add_batch(store, requests("a", 3))
    await add_batch(store, requests("b", 300), owner=await add_owner(store, "other"))
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: len(upstream.asked) >= 200)
    assert abs(Counter(starts(upstream)[:200])["a"] - 100) < 20


@pytest.mark.usefixtures("small_reserve")
async def test_of_one_owner_what_must_end_first_starts_first_and_nothing_waits_for_it(
    store: Store, upstream: Upstream
) -> None:
    await add_batch(store, requests("a", 300), window=timedelta(hours=24))
    await add_batch(store, requests("b", 300), window=timedelta(hours=2))
    await add_batch(store, requests("c", 1), window=None)
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: len(upstream.asked) >= 200)
    tally = Counter(starts(upstream)[:200])
    assert tally["b"] > 150
    assert tally["a"] > 10
    assert tally["c"] == 1


@pytest.mark.usefixtures("small_reserve")
async def test_a_batch_that_is_slow_goes_before_one_whose_window_closes_sooner(
    store: Store, upstream: Upstream
) -> None:
    slow = await add_batch(store, requests("a", 200), window=timedelta(hours=3))
    await add_batch(store, requests("b", 200), window=timedelta(hours=2))
    async with store.session() as session:
        # Half of it took two hours, so that the other half needs two, of three that are left.
        await session.connection.execute(
            "UPDATE batch SET total = 400, completed = 200, in_progress_at = now() - interval '2 hours' WHERE no = $1",
            slow,
        )
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: len(upstream.asked) >= 110)
    assert Counter(starts(upstream)[10:110])["a"] > 70


def flow_of(rig: Rig) -> Flow:
    (flow,) = rig.worker._held.flows.values()
    return flow


@pytest.mark.usefixtures("small_reserve")
async def test_an_owner_is_charged_what_its_requests_cost_and_nothing_for_those_not_sent(
    store: Store, upstream: Upstream
) -> None:
    gate = Gate()
    upstream.script = gate
    text = request("a0")
    batch = await add_batch(store, requests("a", 9))
    async with rigged(store, upstream, slots=2) as rig:
        await rig.until(lambda: upstream.in_flight == 2)
        flow = flow_of(rig)
        assert flow.reserve
        assert flow.shares.account(1).served == estimate(len(text), 1) * (2 + len(flow.reserve))
        async with store.session() as session:
            await session.connection.execute("UPDATE batch SET status = 'cancelling' WHERE no = $1", batch)
        rig.worker.wake()
        await rig.worker.round()
        assert flow.shares.account(1).served == estimate(len(text), 1) * 2
        gate.open()
        await rig.until(lambda: rig.worker.running == 0)
        assert flow.shares.account(1).served == 2 * (7 + 2 * 3)
