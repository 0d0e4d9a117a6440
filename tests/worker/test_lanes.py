"""Which requests start beside and after each other, as the model server sees it."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain.limits import Limits
from overnight.domain.plan import Planner
from overnight.domain.prefix import group_of, read_shape
from overnight.loops import Bell
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.worker import room
from overnight.worker.worker import Worker
from tests.scripted_upstream import Asked, Say, Upstream, echo, failure, serving
from tests.worker.rig import Rig, add_batch, add_owner, names, request, results, rigged
from tests.worker.routes import Switch

SLOTS = 4


class SlotCaches:
    """Puts requests on slots as llama.cpp does, counts how often it computes a prompt, and answers when it is told."""

    def __init__(self) -> None:
        self.prompts: list[object] = [None] * SLOTS
        self.used = [0] * SLOTS
        self.running: dict[int, asyncio.Event] = {}
        self.computed = 0
        self._time = 0

    async def __call__(self, asked: Asked) -> Say:
        prompt = asked.body["messages"][0]["content"]
        free = [slot for slot in range(SLOTS) if slot not in self.running]
        slot = next((s for s in free if self.prompts[s] == prompt), min(free, key=lambda s: self.used[s]))
        self.computed += self.prompts[slot] != prompt
        self.prompts[slot] = prompt
        self._time += 1
        self.used[slot] = self._time
        may_end = self.running[slot] = asyncio.Event()
        await may_end.wait()
        return await echo(asked)

    async def run(self, rig: Rig, count: int) -> None:
        """Answer so many requests one by one, a random one of those that run, and let the worker see to each."""
        chance = random.Random(1)
        for left in range(count, 0, -1):
            await rig.until(lambda left=left: len(self.running) == min(left, SLOTS))  # type: ignore[misc]
            while await rig.worker.round():
                pass
            self.running.pop(chance.choice(sorted(self.running))).set()
        await rig.finish()


async def slow(asked: Asked) -> Say:
    """Answer in a while, so that there is work for both of two servers."""
    await asyncio.sleep(0.002)
    return await echo(asked)


def sharing(number: int, prompts: int, first: int = 0) -> bytes:
    """A request whose system prompt is one of so many."""
    system = {"role": "system", "content": f"prompt {number % prompts + first}"}
    return request(f"r{number}", messages=[system, {"role": "user", "content": f"r{number}"}])


def shuffled(requests: list[bytes]) -> list[bytes]:
    random.Random(2).shuffle(requests)
    return requests


def planned(requests: list[bytes]) -> list[bytes]:
    """In the order in which the planner stores them."""
    planner = Planner()
    blocks = [b for n, line in enumerate(requests) for b in planner.add(n, line, f"{n}", group_of(read_shape(line)))]
    return [line for block in (*blocks, *planner.finish()) for line in block.requests]


@pytest.mark.parametrize("of_each", [256, 16], ids=["a large block", "blocks of one group"])
async def test_prompts_are_computed_less_often_where_caches_are_by_slot(
    store: Store, upstream: Upstream, of_each: int
) -> None:
    computed = []
    for caches in (SLOTS, None):
        upstream.script = server = SlotCaches()
        engine = Switch(upstream.url, SLOTS, caches=caches)
        async with rigged(store, upstream, route=engine) as rig:
            requests = planned(shuffled([sharing(n, 10) for n in range(160)]))
            batch = await add_batch(store, requests, of_each=of_each)
            engine.up()
            await server.run(rig, 160)
            assert (await results(store, batch)).keys() == names(160)
        computed.append(server.computed)
    # Lanes that have nothing else left share the last groups, and any group where the database is slow.
    assert 10 <= computed[0] < computed[1] / 1.5


@pytest.mark.parametrize("is_local", [False, True], ids=["upstream", "local engine"])
@pytest.mark.parametrize("of_each", [256, 16], ids=["a large block", "blocks of one group"])
async def test_requests_that_share_a_prompt_go_together_where_one_cache_is_shared(
    store: Store, upstream: Upstream, is_local: bool, of_each: int
) -> None:
    engine = Switch(upstream.url, SLOTS) if is_local else None
    async with rigged(store, upstream, slots=SLOTS, route=engine) as rig:
        await add_batch(store, planned(shuffled([sharing(n, 10) for n in range(160)])), of_each=of_each)
        if engine is not None:
            engine.up()
        await rig.finish()
    places = defaultdict(list)
    for place, asked in enumerate(upstream.asked):
        places[asked.body["messages"][0]["content"]].append(place)
    assert [len(of_group) for of_group in places.values()] == [16] * 10
    # What runs beside each other may arrive in any order.
    assert max(of_group[-1] - of_group[0] for of_group in places.values()) < 16 + 2 * SLOTS


async def test_an_owner_who_comes_later_does_not_wait_for_the_groups_of_another(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = server = SlotCaches()
    other = await add_owner(store, "other")
    engine = Switch(upstream.url, SLOTS, caches=SLOTS)
    async with rigged(store, upstream, route=engine) as rig:
        await add_batch(store, [sharing(n, 2) for n in range(60)])
        late = await add_batch(store, [sharing(n, 1, first=2) for n in range(6)], owner=other)
        engine.up()
        await server.run(rig, 66)
        assert (await results(store, late)).keys() == names(6)
    of_other = [n for n, asked in enumerate(upstream.asked) if asked.body["messages"][0]["content"] == "prompt 2"]
    # One of four lanes is theirs, so their six are among the first twenty-four, a commit more or less.
    assert of_other[-1] < 33


async def test_what_is_tried_again_finds_a_lane_and_nothing_is_lost(
    store: Store, upstream: Upstream, short_waits: None
) -> None:
    async def script(asked: Asked) -> Say:
        return Say(status=503, body=failure("busy")) if asked.time == 1 else await echo(asked)

    upstream.script = script
    engine = Switch(upstream.url, SLOTS, caches=SLOTS)
    async with rigged(store, upstream, route=engine) as rig:
        requests = [sharing(n, 3) for n in range(20)] + [request(f"r{n}") for n in range(20, 30)]
        batch = await add_batch(store, requests)
        engine.up()
        await rig.finish()
        found = await results(store, batch)
    assert found.keys() == names(30)
    assert all(line["error"] is None for line in found.values())


@pytest.mark.parametrize("caches", [None, 2])
async def test_the_longest_of_the_last_requests_start_first(
    store: Store, upstream: Upstream, caches: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow database makes it write down more of them ahead, of which the order is not changed any more.
    monkeypatch.setattr(room, "COMMITS_AHEAD", 0)
    monkeypatch.setattr(room, "LEAST_APART", 0)
    upstream.script = server = SlotCaches()
    engine = Switch(upstream.url, SLOTS, caches=caches)
    async with rigged(store, upstream, route=engine) as rig:
        await add_batch(store, [request(f"r{n}", max_tokens=n) for n in range(1, 25)])
        engine.up()
        await server.run(rig, 24)
    order = [int(asked.name[1:]) for asked in upstream.asked]
    assert set(order[:4]) == {1, 2, 3, 4}
    assert order[-3:] == sorted(order[-3:], reverse=True)


async def test_requests_that_share_a_prompt_stay_on_one_of_two_servers(store: Store, upstream: Upstream) -> None:
    """Blocks keep them together, and a block is leased for one route."""
    limits = Limits(request_seconds=10.0)
    lines = planned(shuffled([sharing(n, 16) for n in range(512)]))
    async with serving() as second:
        servers = (upstream, second)
        for server in servers:
            server.script = slow
        routes = Routes(
            [UpstreamRoute(s.url, slots=SLOTS, most_reply_bytes=lambda: limits.result_bytes) for s in servers]
        )
        life = Life(store, 2 * SLOTS, lambda: 0.0)
        await life.begin()
        await routes.round(store, life)
        worker = Worker(store, life, limits, routes, bell=Bell())
        rig = Rig(store, life, worker, upstream, routes)
        await add_batch(store, lines)
        await rig.finish()
        await worker.close()
        await routes.close()
        seen = defaultdict(set)
        for server in servers:
            for asked in server.asked:
                seen[asked.body["messages"][0]["content"]].add(server.port)
        assert all(len(ports) == 1 for ports in seen.values())
        assert {port for ports in seen.values() for port in ports} == {s.port for s in servers}
