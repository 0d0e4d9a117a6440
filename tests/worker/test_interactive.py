"""Batches give way to interactive requests slot by slot, and take the slots back."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from overnight.catalog.load import Load
from overnight.catalog.route import Route
from overnight.catalog.tally import Tally
from overnight.domain.limits import Limits
from overnight.domain.targets import TARGETS
from overnight.interactive.asked import read_asked
from overnight.interactive.asking import Asking
from overnight.interactive.tell import Telling
from overnight.monotonic import monotonic
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.upstreams.http import Endpoint
from overnight.upstreams.streamed import StreamPool
from overnight.worker import grants
from tests.scripted_upstream import Asked, Say, Turnstile, Upstream, echo
from tests.worker.rig import CHAT, Rig, add_batch, names, request, results, rigged, values
from tests.worker.routes import Switch
from tests.worker.test_grants import capped, rounds, until


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look at each other's wishes every few milliseconds."""
    for name in ("LOOK_EVERY", "HUNGRY_EVERY", "TELL_EVERY"):
        monkeypatch.setattr(grants, name, 0.02)


class Watched(Tally):
    """Notes what is in flight when a request of a batch starts."""

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._route = route
        self._interactive = 0
        self.started: list[int] = []

    def begin(self, now: float, count: int = 1) -> None:
        super().begin(now, count)
        if self._route.interactive == self._interactive:
            self.started += [self.running] * count
        self._interactive = self._route.interactive

    def end(self, now: float, began: float = float("inf")) -> None:
        super().end(now, began)
        self._interactive = self._route.interactive


class Engine(Switch):
    """A route that is up, with connections for interactive requests and a tally that notes."""

    def __init__(self, url: str, slots: int) -> None:
        super().__init__(url, slots)
        self.up()
        self._streams = StreamPool(Endpoint(url))
        self.tally = self.watched = Watched(self)

    @property
    def streams(self) -> StreamPool:
        return self._streams

    async def close(self) -> None:
        await self._streams.close()
        await super().close()


def asking(rig: Rig, limits: Limits, name: str) -> Asking:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": name}]}).encode()
    return Asking(rig.store, rig.routes, limits, read_asked(TARGETS[CHAT], body))


async def ask(rig: Rig, limits: Limits, name: str) -> None:
    """One interactive request, from beginning to end."""
    mine = asking(rig, limits, name)
    try:
        await mine.begin()
        while await mine.next():
            pass
    finally:
        mine.cancel()


@asynccontextmanager
async def interactive(rig: Rig, limits: Limits, count: int) -> AsyncIterator[Callable[[int], None]]:
    """So many interactive requests in flight; some are given up by calling what it yields."""
    before = rig.upstream.in_flight
    all_of_them = [asking(rig, limits, f"i{n}") for n in range(count)]
    begun = [asyncio.create_task(one.begin()) for one in all_of_them]
    await rig.upstream.until_in_flight(before + count)

    def give_up(number: int) -> None:
        for one in [all_of_them.pop() for _ in range(number)]:
            one.cancel()

    try:
        yield give_up
    finally:
        give_up(len(all_of_them))
        await asyncio.wait(begun)


@pytest.mark.parametrize("is_capped", [True, False], ids=["of a cap", "of a server"])
async def test_each_interactive_request_takes_the_next_slot_that_becomes_free(
    store: Store, upstream: Upstream, is_capped: bool
) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    limits = capped(6 if is_capped else None)
    await add_batch(store, [request(f"r{i}") for i in range(100)])
    async with rigged(store, upstream, limits=limits, route=Engine(upstream.url, 32 if is_capped else 6)) as rig:
        await until(lambda: upstream.in_flight == 6, rig)
        async with interactive(rig, limits, 2) as give_up:
            assert upstream.in_flight == 8
            for left in (5, 4):
                turnstile.let_pass(1)
                await until(lambda left=left: rig.worker.running == left, rig)  # type: ignore[misc]
                await rounds(rig, count=2)
                assert (rig.worker.running, len(upstream.asked)) == (left, 8)
            turnstile.let_pass(1)
            await until(lambda: len(upstream.asked) == 9, rig)
            assert rig.worker.running == 4
            give_up(1)
            await until(lambda: rig.worker.running == 5, rig)
            await rounds(rig, count=2)
            assert rig.worker.running == 5
        await until(lambda: rig.worker.running == 6, rig)


async def test_a_slot_that_an_interactive_request_leaves_is_filled_without_a_round(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = Turnstile()
    limits = Limits(request_seconds=60.0)
    await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with (
        rigged(store, upstream, limits=limits, route=Engine(upstream.url, 4)) as rig,
        interactive(rig, limits, 3) as give_up,
    ):
        await until(lambda: rig.worker.running == 1, rig)
        await rounds(rig)
        give_up(1)
        async with asyncio.timeout(60):
            while rig.worker.running < 2:
                await upstream.settled()


async def test_a_batch_that_had_given_all_slots_away_has_a_round_when_one_is_left(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = Turnstile()
    limits = Limits(request_seconds=60.0)
    await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with (
        rigged(store, upstream, limits=limits, route=Engine(upstream.url, 2)) as rig,
        interactive(rig, limits, 2) as give_up,
    ):
        await rounds(rig)
        assert rig.worker.running == 0
        # What rang so far was about something else.
        await rig.worker.bell.wait(0.01)
        give_up(1)
        async with asyncio.timeout(60):
            await rig.worker.bell.wait(1_000)
        await rig.worker.round()
        assert rig.worker.running == 1


async def test_no_request_of_a_batch_starts_beside_as_many_as_the_cap(store: Store, upstream: Upstream) -> None:
    chance = random.Random(7)

    async def script(asked: Asked) -> Say:
        await asyncio.sleep(chance.random() / 500)
        return await echo(asked)

    upstream.script = script
    limits = capped(5)
    batch = await add_batch(store, [request(f"r{i}") for i in range(300)], of_each=50)
    route = Engine(upstream.url, 32)
    async with rigged(store, upstream, limits=limits, route=route) as rig:
        working = asyncio.create_task(rig.finish())
        async with asyncio.TaskGroup() as group:
            for number in range(60):
                group.create_task(ask(rig, limits, f"i{number}"))
                await asyncio.sleep(chance.random() / 200)
        await working
    assert len(route.watched.started) == 300
    assert max(route.watched.started) == 5
    assert (await results(store, batch)).keys() == names(300)


async def test_the_reserve_is_left_free_and_without_yielding_nothing_is(store: Store, upstream: Upstream) -> None:
    upstream.script = Turnstile()
    limits = Limits(request_seconds=60.0, interactive_reserve=1)
    await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with rigged(store, upstream, limits=limits, route=Engine(upstream.url, 4)) as rig:
        await until(lambda: rig.worker.running == 3, rig)
        await rounds(rig, count=2)
        assert rig.worker.running == 3
        async with interactive(rig, limits, 2):
            limits.yields_to_interactive = False
            await until(lambda: rig.worker.running == 4, rig)


@pytest.mark.parametrize("shares", [True, False])
async def test_a_batch_gives_way_to_the_interactive_requests_of_another_process(
    store: Store, upstream: Upstream, shares: bool
) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    limits = capped(6)
    limits.shares_interactive_load = shares
    await add_batch(store, [request(f"r{i}") for i in range(100)], of_each=20)
    async with (
        rigged(store, upstream, limits=limits) as runs,
        rigged(store, upstream, limits=limits, only=0, route=Engine(upstream.url, 1)) as asks,
    ):
        await until(lambda: runs.worker.running == 6, runs)
        async with interactive(asks, limits, 2):
            await rounds(asks, runs)
            turnstile.let_pass(2)
            await until(lambda: len(upstream.asked) + runs.worker.running == (12 if shares else 16), runs, asks)
            await rounds(runs, asks, count=3)
            assert runs.worker.running == (4 if shares else 6)
        await until(lambda: runs.worker.running == 6, runs, asks)
        assert asks.worker.running == 0
        await rounds(asks, count=2)
        assert len(await values(store, "SELECT * FROM model_grant")) == 1


async def test_a_process_that_only_answers_calls_tells_of_its_interactive_requests(
    store: Store, upstream: Upstream
) -> None:
    turnstile = Turnstile()
    upstream.script = turnstile
    limits = capped(4)
    await add_batch(store, [request(f"r{i}") for i in range(40)])
    life, load, route = Life(store), Load(), Switch("unused")
    await life.begin()
    telling = Telling(store, life, limits, load)
    async with rigged(store, upstream, limits=limits) as rig:
        await until(lambda: rig.worker.running == 4, rig)
        for _ in range(3):
            load.begin(route, "m")
        await telling.round()
        await rounds(rig)
        turnstile.let_pass(3)
        await until(lambda: rig.worker.running == 1, rig)
        await rounds(rig, count=2)
        assert rig.worker.running == 1
        for _ in range(3):
            load.end(route, "m")
        await telling.round()
        await until(lambda: rig.worker.running == 4, rig)
    assert len(await values(store, "SELECT * FROM model_grant WHERE interactive > 0")) == 0


async def test_interactive_requests_are_in_flight_for_the_rule_that_finds_the_number(upstream: Upstream) -> None:
    """Otherwise a number that they fill would not be seen to be in use, and never grow."""
    load, route = Load(), Switch("unused")
    load.begin(route, "m")
    assert (route.tally.running, route.interactive, load.of("m"), load.models) == (1, 1, 1, ("m",))
    assert route.tally.take(monotonic(), None).peak == 1
    load.end(route, "m")
    assert (route.tally.running, route.interactive, load.of("m"), load.models) == (0, 0, 0, ())
