"""The cap of a model holds over all workers, whoever joins, leaves, freezes, dies or comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from overnight.domain import events
from overnight.domain.limits import Limits
from overnight.monotonic import monotonic
from overnight.store.life import declare_dead
from overnight.store.pool import Store
from overnight.worker import grants
from tests.scripted_upstream import Gate, Turnstile, Upstream
from tests.worker.rig import Rig, add_batch, names, request, results, rigged, value, values
from tests.worker.routes import Switch
from tests.worker.test_takeover import AT_ONCE, kill


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look at each other's wishes every few milliseconds."""
    monkeypatch.setattr(grants, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(grants, "HUNGRY_EVERY", 0.02)


def capped(cap: int | None) -> Limits:
    return Limits(per_model=cap, request_seconds=60.0)


def set_cap(limits: Limits, cap: int | None) -> None:
    """What a change of the setting does in every process."""
    object.__setattr__(limits, "per_model", cap)


async def until(is_so: Callable[[], bool], *rigs: Rig) -> None:
    """Let workers work side by side until something is so."""
    async with asyncio.timeout(60):
        while not is_so():
            for rig in rigs:
                await rig.worker.round()
            await asyncio.sleep(0.002)


async def rounds(*rigs: Rig, count: int = 6) -> None:
    """Let workers look at everything a few times."""
    for _ in range(count):
        await asyncio.sleep(0.025)
        for rig in rigs:
            rig.worker.wake()
            await rig.worker.round()


async def both_run(a: Rig, b: Rig, turnstile: Turnstile, each: int) -> None:
    """The first took all slots; as its requests end, each comes to have its half."""
    await until(lambda: a.worker.running == 2 * each, a)
    await rounds(b, a, count=2)
    turnstile.let_pass(each)
    await until(lambda: (a.worker.running, b.worker.running) == (each, each), a, b)


async def test_two_workers_fill_the_cap_together_and_never_exceed_it(store: Store, upstream: Upstream) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    batch = await add_batch(store, [request(f"r{i}") for i in range(200)], of_each=20)
    async with rigged(store, upstream, limits=capped(6)) as a, rigged(store, upstream, limits=capped(6)) as b:
        await both_run(a, b, turnstile, 3)
        turnstile.let_pass(200)
        await until(lambda: len(upstream.asked) == 200 and a.worker.is_idle and b.worker.is_idle, a, b)
    assert upstream.most_in_flight == 6
    assert (await results(store, batch)).keys() == names(200)


async def test_the_first_request_of_a_model_starts_in_the_round_that_leased_it(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = Gate()
    await add_batch(store, [request("a")])
    async with rigged(store, upstream, limits=capped(5)) as rig:
        await rig.worker.round()
        assert rig.worker.running == 1


async def test_a_worker_that_joins_gets_its_share_as_requests_end(store: Store, upstream: Upstream) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    await add_batch(store, [request(f"r{i}") for i in range(100)], of_each=10)
    async with rigged(store, upstream, limits=capped(6)) as first, rigged(store, upstream, limits=capped(6)) as second:
        await until(lambda: first.worker.running == 6, first)
        await rounds(second, first)
        assert (first.worker.running, second.worker.running) == (6, 0)
        turnstile.let_pass(3)
        await until(lambda: second.worker.running == 3, first, second)
        assert first.worker.running == 3
        assert upstream.most_in_flight == 6
        turnstile.let_pass(100)
        await until(lambda: first.worker.is_idle and second.worker.is_idle, first, second)


async def test_a_worker_without_work_leaves_its_slots_to_others(store: Store, upstream: Upstream) -> None:
    await add_batch(store, [request(f"r{i}") for i in range(10)])
    async with rigged(store, upstream, limits=capped(4)) as first:
        await first.finish()
        await rounds(first)
        assert await values(store, "SELECT * FROM model_grant") == []


async def test_a_lowered_cap_kills_nothing_and_starts_nothing_until_below(store: Store, upstream: Upstream) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    limits = capped(6)
    await add_batch(store, [request(f"r{i}") for i in range(60)], of_each=10)
    async with rigged(store, upstream, limits=limits) as a, rigged(store, upstream, limits=limits) as b:
        await both_run(a, b, turnstile, 3)
        set_cap(limits, 2)
        await rounds(a, b)
        assert upstream.in_flight == 6
        for left in (5, 4, 3, 2):
            turnstile.let_pass(1)
            await until(lambda left=left: a.worker.running + b.worker.running == left, a, b)  # type: ignore[misc]
            await rounds(a, b, count=2)
            assert upstream.in_flight == left
            assert len(upstream.asked) == 9
        turnstile.let_pass(1)
        await until(lambda: len(upstream.asked) == 10, a, b)
        await rounds(a, b)
        assert upstream.in_flight == 2


async def test_a_cap_that_is_set_while_more_runs_holds_from_then_on(store: Store, upstream: Upstream) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    limits = capped(None)
    await add_batch(store, [request(f"r{i}") for i in range(60)], of_each=10)
    async with (
        rigged(store, upstream, limits=limits, slots=4) as a,
        rigged(store, upstream, limits=limits, slots=4) as b,
    ):
        await until(lambda: (a.worker.running, b.worker.running) == (4, 4), b, a)
        assert await values(store, "SELECT * FROM model_state") == []
        set_cap(limits, 5)
        await rounds(a)
        turnstile.let_pass(2)
        await rounds(a, b)
        assert upstream.in_flight == 6
        assert len(upstream.asked) == 8
        turnstile.let_pass(3)
        await until(lambda: len(upstream.asked) == 10, a, b)
        await rounds(a, b)
        assert upstream.in_flight == 5
        set_cap(limits, None)
        await until(lambda: upstream.in_flight == 8, a, b)
        await rounds(a, b)
        assert await values(store, "SELECT * FROM model_grant") == []


async def test_a_cap_of_nothing_pauses_and_another_one_goes_on(store: Store, upstream: Upstream) -> None:
    limits = capped(0)
    batch = await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with rigged(store, upstream, limits=limits) as rig:
        await rounds(rig)
        assert upstream.asked == []
        set_cap(limits, 3)
        await rig.finish()
        assert upstream.most_in_flight <= 3
    assert (await results(store, batch)).keys() == names(20)


async def test_one_slot_goes_round_among_workers(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "TURN_SECONDS", 1)
    turnstile = Turnstile()
    upstream.script = turnstile
    batch = await add_batch(store, [request(f"r{i}") for i in range(60)], of_each=20)
    async with rigged(store, upstream, limits=capped(1)) as a, rigged(store, upstream, limits=capped(1)) as b:
        await until(lambda: a.worker.running == 1, a)
        await rounds(b, count=1)
        for had_it, waits in ((a, b), (b, a)):
            assert had_it.worker.running == 1
            turnstile.let_pass(1)
            while not waits.worker.running:
                await until(lambda: bool(a.worker.running + b.worker.running), a, b)
                if had_it.worker.running:
                    turnstile.let_pass(1)
                    await rounds(a, b, count=1)
        turnstile.let_pass(100)
        await until(lambda: len(upstream.asked) == 60 and a.worker.is_idle and b.worker.is_idle, a, b)
    assert upstream.most_in_flight == 1
    assert (await results(store, batch)).keys() == names(60)


async def test_the_slots_of_a_killed_worker_are_used_by_the_others(store: Store, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(40)], of_each=10)
    async with rigged(store, upstream, limits=capped(4)) as second:
        async with rigged(store, upstream, limits=capped(4)) as first:
            await until(lambda: first.worker.running == 4, first)
            await rounds(second)
            assert second.worker.running == 0
            await kill(first)
        await until(lambda: second.worker.running == 4, second)
        gate.open()
        await second.finish()
    assert (await results(store, batch)).keys() == names(40)


async def test_what_a_frozen_worker_runs_counts_until_it_has_given_it_up(store: Store, upstream: Upstream) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    batch = await add_batch(store, [request(f"r{i}") for i in range(60)], of_each=10)
    async with rigged(store, upstream, limits=capped(6)) as frozen, rigged(store, upstream, limits=capped(6)) as other:
        await both_run(frozen, other, turnstile, 3)
        old = frozen.life.no
        assert await declare_dead(store, old, AT_ONCE)
        await rounds(other)
        assert (upstream.in_flight, other.worker.running) == (6, 3)
        # It wakes up, hears that it is dead and gives up what it runs; only then its slots are free.
        await until(lambda: frozen.life.no != old, frozen)
        assert frozen.worker.running == 0
        await until(lambda: frozen.worker.running + other.worker.running == 6, frozen, other)
        turnstile.let_pass(100)
        await until(lambda: frozen.worker.is_idle and other.worker.is_idle, frozen, other)
        await frozen.finish()
    assert (await results(store, batch)).keys() == names(60)


async def test_a_worker_that_is_cut_off_gives_up_what_runs_before_others_run_it(
    store: Store, upstream: Upstream
) -> None:
    frozen_for = 0.0

    def clock() -> float:
        return monotonic() + frozen_for

    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with rigged(store, upstream, limits=capped(4), clock=clock) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        frozen_for = 8.0
        await rig.worker.give_up_if_cut_off()
        assert rig.worker.running == 4
        frozen_for = 9.5
        await rig.worker.give_up_if_cut_off()
        await until(lambda: rig.worker.running == 0)
        await rounds(rig, count=2)
        assert rig.worker.running == 0
        gate.open()
        await rig.life.try_to_beat()
        await rig.finish()
    assert (await results(store, batch)).keys() == names(20)
    assert await value(store, "SELECT max(tries) FROM answer") == 1


async def test_what_was_answered_while_a_worker_stood_still_does_not_run_again(
    store: Store, upstream: Upstream
) -> None:
    frozen_for = 0.0
    upstream.script = gate = Gate()
    batch = await add_batch(store, [request(f"r{i}") for i in range(4)])
    async with rigged(store, upstream, limits=capped(4), clock=lambda: monotonic() + frozen_for) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        gate.open()
        while upstream.in_flight:
            # Turn by turn: the replies are on their way, and the worker has not read them.
            await asyncio.sleep(0)
        assert rig.worker.running == 4
        frozen_for = 9.5
        await rig.worker.give_up_if_cut_off()
        await rig.life.try_to_beat()
        await rig.finish()
    assert (await results(store, batch)).keys() == names(4)
    assert upstream.arrivals.total() == 4


async def test_being_cut_off_is_told_once_each_time(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a request cannot be given up, since its engine is down and nobody knows yet what became of it."""
    told: list[str] = []
    monkeypatch.setattr(events, "tell", lambda event, *_, **__: told.append(event))
    frozen_for = 0.0

    def clock() -> float:
        return monotonic() + frozen_for

    upstream.script = gate = Gate()
    engine = Switch(upstream.url)
    engine.up()
    await add_batch(store, [request("a")])
    async with rigged(store, upstream, limits=capped(4), route=engine, clock=clock) as rig:
        await rig.until(lambda: upstream.in_flight == 1)
        engine.down()
        for times in (1, 2):
            frozen_for += 60.0
            for _ in range(3):
                await rig.worker.give_up_if_cut_off()
            assert (rig.worker.running, told.count("worker_cut_off")) == (1, times)
            await rig.life.try_to_beat()
            await rig.worker.give_up_if_cut_off()
        gate.open()


async def test_without_a_cap_what_runs_is_not_given_up(store: Store, upstream: Upstream) -> None:
    """Its answers can be stored where it was the database that was away."""
    frozen_for = 0.0
    gate = Gate()
    upstream.script = gate
    await add_batch(store, [request(f"r{i}") for i in range(4)])
    async with rigged(store, upstream, clock=lambda: monotonic() + frozen_for) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        frozen_for = 60.0
        await rig.worker.give_up_if_cut_off()
        await rounds(rig, count=1)
        assert rig.worker.running == 4
        gate.open()


async def test_a_stopping_worker_lets_others_have_its_slots_as_its_requests_end(
    store: Store, upstream: Upstream
) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    await add_batch(store, [request(f"r{i}") for i in range(40)], of_each=10)
    async with rigged(store, upstream, limits=capped(4)) as first, rigged(store, upstream, limits=capped(4)) as second:
        await until(lambda: first.worker.running == 4, first)
        stopping = asyncio.create_task(first.worker.stop(30))
        turnstile.let_pass(1)
        await until(lambda: second.worker.running == 1, second)
        turnstile.let_pass(100)
        await stopping
        await second.finish()
    assert upstream.most_in_flight == 4
