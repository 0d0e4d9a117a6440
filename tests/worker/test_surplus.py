"""What a worker cannot start soon goes to one that has free slots and nothing to lease, and to nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from overnight.domain import backoff, events
from overnight.domain.limits import Limits
from overnight.store.pool import Store
from overnight.worker import room, surplus
from overnight.worker.flow import Flow
from overnight.worker.room import lines_to_give, lines_to_keep
from tests.scripted_upstream import Asked, Gate, Say, Upstream, failure, serving
from tests.worker.rig import Rig, add_batch, names, request, results, rigged, value, values
from tests.worker.routes import OnTrial, Switch

SLOTS = 32


def patient(store: Store, upstream: Upstream, **given: Any) -> AbstractAsyncContextManager[Rig]:
    """A worker whose requests may hang for as long as a test takes, and whose heartbeat is always fresh."""
    given["limits"] = given.get("limits") or Limits(request_seconds=120.0)
    return rigged(store, upstream, clock=lambda: 0.0, **given)


def lines(count: int) -> list[bytes]:
    return [request(f"r{i}") for i in range(count)]


def flow_of(rig: Rig) -> Flow:
    return next(iter(rig.worker._held.flows.values()))


def untaken(rig: Rig) -> int:
    return sum(flow.untaken for flow in rig.worker._held.flows.values())


async def ready(store: Store) -> int:
    """Blocks that anybody may lease."""
    count: int = await value(store, "SELECT count(*) FROM block WHERE state = 'ready'")
    return count


async def rounds(*rigs: Rig) -> None:
    """Let workers do all that there is to do now, each after having heard that there may be work."""
    for rig in rigs:
        rig.worker.wake()
        while await rig.worker.round():
            pass


async def hear(*rigs: Rig) -> None:
    """Each worker tells which slots are free there, and hears it of the others."""
    for rig in (*rigs, *rigs):
        await rig.life.try_to_beat()


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round looks for what others could start."""
    monkeypatch.setattr(surplus, "LOOK_EVERY", 0.0)


@asynccontextmanager
async def shrunk(
    store: Store, upstream: Upstream, *, of_each: int, to: int = 2, count: int = 160, limits: Limits | None = None
) -> AsyncIterator[tuple[Rig, Switch, int]]:
    """A worker that has leased what its server was to run, a batch of `count`, and whose server then takes few."""
    route = Switch(upstream.url, SLOTS)
    route.up()
    batch = await add_batch(store, lines(count), of_each=of_each)
    async with patient(store, upstream, route=route, limits=limits) as rig:
        await rig.until(lambda: upstream.in_flight == SLOTS and not flow_of(rig).untaken > count - SLOTS)
        await rounds(rig)
        route._slots = to
        flow_of(rig).rate.value = 0.0
        yield rig, route, batch


@asynccontextmanager
async def free(store: Store, upstream: Upstream, *, only: int | None = None) -> AsyncIterator[Rig]:
    """A worker with free slots that has found nothing to lease."""
    route = Switch(upstream.url, SLOTS)
    route.up()
    async with patient(store, upstream, route=route, only=only) as rig:
        await rounds(rig)
        yield rig


async def test_what_would_wait_for_slots_starts_in_those_that_another_worker_has_free(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = gate = Gate()
    async with serving() as elsewhere, shrunk(store, upstream, of_each=16, count=64) as (rig, _, batch):
        assert untaken(rig) > 8
        async with free(store, elsewhere) as other:
            await hear(rig, other)
            await rounds(rig, other)
            # What runs is not touched, and whatever else it held was run by the other one.
            await other.until(lambda: len(elsewhere.asked) >= 16)
            assert upstream.in_flight == SLOTS
            await other.finish()
            gate.open()
            await rig.finish()
    assert (await results(store, batch)).keys() == names(64)
    assert set((upstream.arrivals + elsewhere.arrivals).values()) == {1}
    # What had been written down before it went back is no try.
    assert await value(store, "SELECT sum(cardinality(lines)) FROM attempt") == 64
    assert await value(store, "SELECT max(tries) FROM answer") == 1


async def test_what_was_written_down_for_more_slots_than_there_are_goes_as_well(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.script = gate = Gate()
    monkeypatch.setattr(room, "MOST_FLOOR", SLOTS)
    async with (
        serving() as elsewhere,
        shrunk(store, upstream, of_each=16, count=48) as (rig, _, _),
        free(store, elsewhere) as other,
    ):
        assert len(flow_of(rig).reserve) == 16
        monkeypatch.setattr(room, "MOST_FLOOR", 4)
        await hear(rig, other)
        await rounds(rig, other)
        await other.until(lambda: len(elsewhere.asked) == 16)
        await other.finish()
        gate.open()
        await rig.finish()
    assert set((upstream.arrivals + elsewhere.arrivals).values()) == {1}
    assert await value(store, "SELECT sum(cardinality(lines)) FROM attempt") == 48


async def test_nothing_goes_back_while_nobody_has_free_slots(store: Store, upstream: Upstream) -> None:
    upstream.script = gate = Gate()
    async with serving() as elsewhere, shrunk(store, upstream, of_each=16) as (rig, _, _):
        elsewhere.script = gate
        async with free(store, elsewhere) as other:
            # The other one leases all that is ready, and its slots are full.
            await other.until(lambda: elsewhere.in_flight == SLOTS)
            held = untaken(rig)
            await hear(rig, other)
            await rounds(rig)
            assert untaken(rig) == held
            assert rig.life.idle_elsewhere == {}
        gate.open()


async def test_what_others_said_before_there_was_work_lets_nothing_go_back(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "REST", 3600.0)
    told: list[str] = []
    monkeypatch.setattr(events, "tell", lambda event, *_, **__: told.append(event))
    upstream.script = gate = Gate()
    async with serving() as elsewhere, free(store, elsewhere) as other, free(store, upstream) as rig:
        await hear(rig, other)
        await add_batch(store, lines(160), of_each=16)
        rig.worker.wake()
        await rig.until(lambda: upstream.in_flight == SLOTS)
        await rounds(rig)
        assert "surplus_given_back" not in told
        # The rest is over.
        rig.worker._surplus._give_at.clear()
        await rounds(rig)
        assert "surplus_given_back" in told
        gate.open()
        await rig.finish()


async def test_what_runs_of_a_large_block_ends_where_it_began_and_the_rest_starts_elsewhere(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = gate = Gate()
    async with (
        serving() as elsewhere,
        shrunk(store, upstream, of_each=256) as (rig, _, batch),
        free(store, elsewhere) as other,
    ):
        await hear(rig, other)
        await rounds(rig, other)
        assert await ready(store) == 0
        began = set(upstream.arrivals)
        gate.open()
        await rig.until(lambda: not rig.worker.holds(batch))
        assert set(upstream.arrivals) == began
        assert await ready(store) == 1, "it is left to those that have free slots"
        await other.finish()
        assert set(elsewhere.arrivals) == names(160) - began
    assert (await results(store, batch)).keys() == names(160)
    assert await value(store, "SELECT max(tries) FROM answer") == 1


async def test_a_block_that_goes_back_does_not_wait_for_the_next_try_of_what_failed_of_it(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", timedelta(hours=1))
    gate = Gate()

    async def script(asked: Asked) -> Say:
        await gate(asked)
        return Say(500, failure("once"))

    upstream.script = script
    async with (
        serving() as elsewhere,
        shrunk(store, upstream, of_each=256) as (rig, _, batch),
        free(store, elsewhere) as other,
    ):
        await hear(rig, other)
        await rounds(rig)
        began = set(upstream.arrivals)
        gate.open()
        await rig.until(lambda: not rig.worker.holds(batch))
        assert await value(store, "SELECT count(*) FROM call WHERE again_at > now() + interval '1 minute'") == SLOTS
        await value(store, "UPDATE call SET again_at = now() - interval '1 minute' RETURNING 1")
        await rounds(other)
        await other.finish()
    tries = {row["line"]: row["tries"] for row in await values(store, "SELECT line, tries FROM answer")}
    assert tries == {line: 2 if f"r{line}" in began else 1 for line in range(160)}


async def test_a_small_rest_of_a_block_stays_where_the_others_of_it_run(store: Store, upstream: Upstream) -> None:
    upstream.script = gate = Gate()
    async with shrunk(store, upstream, of_each=256, to=SLOTS, count=SLOTS + 20) as (rig, _, batch):
        rig.life.idle_elsewhere = {"m": SLOTS}
        await rounds(rig)
        assert rig.worker._held.batches[batch].blocks
        assert all(block.whole for block in rig.worker._held.batches[batch].blocks)
        gate.open()
        await rig.finish()


async def test_what_went_back_is_not_leased_again_at_once_by_the_one_that_gave_it(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "LEAVE_FOR", 3600.0)
    monkeypatch.setattr(surplus, "REST", 3600.0)
    upstream.script = gate = Gate()
    async with shrunk(store, upstream, of_each=16) as (rig, route, _):
        rig.life.idle_elsewhere = {"m": SLOTS}
        await rounds(rig)
        went = await ready(store)
        assert went
        # It has room for more again, and takes what it finds, but for these.
        route._slots = SLOTS + 8
        await rounds(rig)
        assert await ready(store) == went
        monkeypatch.setattr(surplus, "LEAVE_FOR", 0.0)
        route._slots = 10 * SLOTS
        await rounds(rig)
        assert await ready(store) < went
        gate.open()
        await rig.until(lambda: rig.worker.unstored == 0 and rig.worker.running == 0)


async def test_a_worker_that_has_enough_to_do_leaves_what_it_gave_back_to_others_for_longer(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "LEAVE_FOR", 0.0)
    monkeypatch.setattr(surplus, "LEAVE_LONGER", 3600.0)
    upstream.script = gate = Gate()
    monkeypatch.setattr(room, "LEAST_AHEAD", 100)
    async with shrunk(store, upstream, of_each=16) as (rig, route, batch):
        monkeypatch.setattr(room, "LEAST_AHEAD", 16)
        never_leased = await ready(store)
        last = max(rig.worker._held.batches[batch].blocks, key=lambda block: block.seq)
        rig.worker._surplus._give(route, [last])
        await rounds(rig)
        assert await ready(store) == never_leased + 1
        monkeypatch.setattr(surplus, "LEAVE_LONGER", 0.0)
        await rounds(rig)
        assert await ready(store) == never_leased
        gate.open()


@pytest.mark.parametrize(("before", "after"), [(surplus.REST, 2 * surplus.REST), (50.0, surplus.LONGEST_REST)])
async def test_what_nobody_wants_goes_back_ever_more_rarely(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, before: float, after: float
) -> None:
    monkeypatch.setattr(surplus, "LEAVE_FOR", 3600.0)
    upstream.script = gate = Gate()
    async with shrunk(store, upstream, of_each=16) as (rig, route, _):
        rig.life.idle_elsewhere = {"m": SLOTS}
        rig.worker._surplus._rests[route.name] = before
        await rounds(rig)
        assert await ready(store)
        assert rig.worker._surplus._rests[route.name] == before
        rig.life.idle_elsewhere = {}
        # It takes back all of it, since nobody else did.
        monkeypatch.setattr(surplus, "LEAVE_FOR", 0.0)
        route._slots = 10 * SLOTS
        await rounds(rig)
        assert not await ready(store)
        assert rig.worker._surplus._rests[route.name] == after
        gate.open()


async def test_what_others_took_some_of_goes_back_as_often_as_before(store: Store, upstream: Upstream) -> None:
    upstream.script = gate = Gate()
    async with serving() as elsewhere, shrunk(store, upstream, of_each=16) as (rig, route, _):
        elsewhere.script = gate
        async with free(store, elsewhere) as other:
            rig.worker._surplus._rests[route.name] = surplus.LONGEST_REST
            rig.life.idle_elsewhere = {"m": 1}
            for _ in range(2):
                rig.worker._surplus._give_at.clear()
                await rounds(rig, other)
            assert rig.worker._surplus._rests[route.name] == surplus.REST
        gate.open()


async def test_a_request_that_failed_keeps_its_tries_and_its_wait_where_it_goes(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", timedelta(hours=1))
    gate = Gate()

    async def script(asked: Asked) -> Say:
        return Say(500, failure("once")) if asked.name in names(16) else await gate(asked)

    upstream.script = script
    async with serving() as elsewhere, shrunk(store, upstream, of_each=16) as (rig, route, batch):
        await rig.until(lambda: len(flow_of(rig).waiting.again) == 16)
        async with free(store, elsewhere) as other:
            await value(store, "UPDATE call SET again_at = now() - interval '1 minute' RETURNING 1")
            failed = next(block for block in rig.worker._held.batches[batch].blocks if block.seq == 0)
            rig.worker._surplus._give(route, [failed])
            await rounds(rig, other)
            await other.until(lambda: elsewhere.arrivals.keys() >= names(16))
            await other.finish()
            gate.open()
            await rig.finish()
            await other.finish()
    assert (await results(store, batch)).keys() == names(160)
    tries = {row["line"]: row["tries"] for row in await values(store, "SELECT line, tries FROM answer")}
    assert tries == {line: 2 if line < 16 else 1 for line in range(160)}


async def test_a_cap_that_is_used_up_lets_nobody_else_start_so_nothing_goes_back(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = gate = Gate()
    limits = Limits(request_seconds=120.0, per_model=SLOTS)
    async with shrunk(store, upstream, of_each=16, limits=limits) as (rig, _, _):
        held = untaken(rig)
        rig.life.idle_elsewhere = {"m": SLOTS}
        await rounds(rig)
        assert untaken(rig) == held
        object.__setattr__(limits, "per_model", 2 * SLOTS)
        await rounds(rig)
        # It leased more after it had found nothing; the rest that follows is over.
        rig.worker._surplus._give_at.clear()
        for _ in range(2):
            await rounds(rig)
        assert untaken(rig) < held
        gate.open()


async def test_another_server_of_the_same_process_takes_what_one_cannot_start(store: Store, upstream: Upstream) -> None:
    upstream.script = gate = Gate()
    async with serving() as elsewhere, shrunk(store, upstream, of_each=16, count=64) as (rig, _, _):
        assert not await ready(store)
        other = Switch(elsewhere.url, SLOTS)
        other.name = "other"
        other.up()
        rig.routes._routes.append(other)
        await rig.until(lambda: len(elsewhere.asked) >= 16)
        gate.open()
        await rig.finish()
    assert set((upstream.arrivals + elsewhere.arrivals).values()) == {1}


async def test_a_server_on_trial_is_given_its_probe_by_a_worker_that_holds_all_there_is(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = gate = Gate()
    async with serving() as elsewhere, shrunk(store, upstream, of_each=16, count=64) as (rig, _, batch):
        route = OnTrial(elsewhere.url, slots=1)
        route.up()
        route.on_trial = True
        async with patient(store, elsewhere, route=route) as other:
            await rounds(other)
            await hear(rig, other)
            await rounds(rig, other)
            await other.until(lambda: bool(elsewhere.asked))
            route.on_trial = False
            gate.open()
            await rig.finish()
            await other.finish()
    assert (await results(store, batch)).keys() == names(64)
    assert set((upstream.arrivals + elsewhere.arrivals).values()) == {1}


async def test_what_peoples_requests_take_of_a_server_is_neither_leased_for_nor_kept_from_others(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = gate = Gate()
    route = Switch(upstream.url, SLOTS)
    route.up()
    await add_batch(store, lines(160), of_each=4)
    async with patient(store, upstream, route=route) as rig:
        for _ in range(SLOTS - 2):
            rig.routes.load.begin(route, "m")
        await rounds(rig)
        flow = flow_of(rig)
        assert flow.in_flight + flow.untaken < SLOTS
        # Of what was leased before they came, what does not fit beside them goes.
        for _ in range(SLOTS - 2):
            rig.routes.load.end(route, "m")
        await rounds(rig)
        held = flow.in_flight + flow.untaken
        for _ in range(SLOTS - 2):
            rig.routes.load.begin(route, "m")
        flow.rate.value = 0.0
        rig.life.idle_elsewhere = {"m": 1}
        await rounds(rig)
        assert SLOTS <= flow.in_flight + flow.untaken < held
        gate.open()


@pytest.mark.parametrize("caches", [None, 4])
async def test_groups_go_whole_and_what_stays_keeps_its_order(
    store: Store, upstream: Upstream, caches: int | None
) -> None:
    upstream.script = gate = Gate()
    prompt = ["one shared beginning " * 40 + f"of group {index}" for index in range(8)]
    sent = [request(f"{prompt[i // 16]} {i}") for i in range(128)]
    route = Switch(upstream.url, caches or 64, caches=caches)
    route.up()
    await add_batch(store, sent, of_each=16)
    async with patient(store, upstream, route=route) as rig:
        await rig.until(lambda: upstream.in_flight == route.slots)
        await rounds(rig)
        route._slots = 4
        flow = flow_of(rig)
        source = next(iter(flow.sources.values()))
        never_leased = await ready(store)
        before = [r.line for r in source.list_untaken()]
        flow.rate.value = 0.0
        rig.life.idle_elsewhere = {"m": 8}
        await rounds(rig)
        after = [r.line for r in source.list_untaken() if r not in source.again]
        assert 0 < len(after) < len(before)
        assert after == [line for line in before if line in set(after)]
        gone = {line // 16 for line in set(before) - set(after)} - {line // 16 for line in after}
        assert await ready(store) - never_leased == len(gone) > 0
        gate.open()


async def test_a_worker_with_free_slots_says_so_only_once_it_has_found_nothing_to_lease(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = gate = Gate()
    route = Switch(upstream.url, SLOTS)
    route.up()
    async with patient(store, upstream, route=route) as rig, patient(store, upstream) as hears:
        told = []
        for count, is_stopping in ((None, False), (0, False), (20, False), (0, True), (0, False), (40, False)):
            if count:
                await add_batch(store, lines(count))
            if count is not None:
                await rounds(rig)
            rig.worker._endings.stopping = is_stopping
            await hear(rig, hears)
            rig.worker._endings.stopping = False
            told.append(hears.life.idle_elsewhere)
        left = {"m": SLOTS - 20}
        assert told == [{}, {"m": SLOTS}, left, {}, left, {}]
        assert rig.life.idle_elsewhere == {}
        gate.open()


async def test_a_worker_that_runs_some_batches_only_asks_nobody_for_others(store: Store, upstream: Upstream) -> None:
    async with free(store, upstream, only=1) as rig, patient(store, upstream) as hears:
        await hear(rig, hears)
        assert hears.life.idle_elsewhere == {}


@pytest.mark.parametrize(
    ("cap", "running", "rate", "kept"),
    [(64, 0, 0.0, 68), (64, 64, 0.0, 4), (2, 64, 0.0, 1), (2, 2, 40.0, 11), (0, 64, 0.0, 1)],
)
def test_what_fills_the_slots_and_a_moment_of_work_stays(cap: int, running: int, rate: float, kept: int) -> None:
    assert lines_to_keep(cap, running, rate) == kept


def test_what_others_can_start_goes_and_half_of_what_waits() -> None:
    assert lines_to_give(100, 10) == 50
    assert lines_to_give(100, 80) == 80
    assert lines_to_give(100, 500) == 100
    assert lines_to_give(1, 1) == 1
