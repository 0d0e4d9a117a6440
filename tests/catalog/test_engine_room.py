"""How many requests a local engine is given at once where all of them share one cache."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from overnight.catalog.engine_route import EngineRoute
from overnight.domain.concurrency.state import Bounds
from overnight.engine.supervise import LocalEngine, Phase
from tests.catalog.engines import engine_of, pretend
from tests.scripted_upstream import Say, Upstream, serving


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with serving() as upstream:
        yield upstream


def vllm_says(running: int, waiting: int, cache: float) -> Say:
    page = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
    return Say(body=f"{page}vllm:kv_cache_usage_perc {cache}\n".encode())


@pytest.fixture
def engine() -> LocalEngine:
    return engine_of(slots=1_024, slots_share_cache=True, room=Bounds.of(None))


@pytest.fixture
async def route(engine: LocalEngine, upstream: Upstream) -> AsyncIterator[EngineRoute]:
    """To an engine that has just started."""
    route = EngineRoute(engine, most_reply_bytes=lambda: 1_000_000)
    pretend(engine, Phase.READY, upstream.url.removesuffix("/v1"))
    yield route
    await route.close()


async def fill(route: EngineRoute, moments: range) -> int:
    """Give it all it takes, a second apart, asking it each time how busy it is; returns how many run then."""
    for moment in moments:
        for _ in range(route.most_running(float(moment)) - route.tally.running):
            route.tally.begin(float(moment))
        await route.watch()
    return route.tally.running


async def test_it_is_given_more_while_it_has_room(route: EngineRoute, upstream: Upstream) -> None:
    upstream.pages["/metrics"] = vllm_says(1_024, 0, 0.3)
    assert (route.most_running(0.0), route.soon, route.slots) == (8, 16, 1_024)
    assert await fill(route, range(20)) == 1_024


async def test_one_whose_cache_is_full_is_given_no_more(route: EngineRoute, upstream: Upstream) -> None:
    upstream.pages["/metrics"] = vllm_says(200, 0, 0.3)
    before = await fill(route, range(5))
    upstream.pages["/metrics"] = vllm_says(200, 0, 0.95)
    assert 64 <= before < 1_024
    assert await fill(route, range(5, 30)) <= 2 * before


async def test_one_in_which_requests_wait_is_given_fewer(route: EngineRoute, upstream: Upstream) -> None:
    upstream.pages["/metrics"] = vllm_says(1_024, 0, 0.3)
    await fill(route, range(20))
    upstream.pages["/metrics"] = vllm_says(256, 768, 0.3)
    await fill(route, range(20, 40))
    assert 256 <= route.most_running(40.0) <= 280
    assert upstream.keys["/metrics"] == "Bearer secret"


async def test_one_that_was_started_again_begins_anew(
    engine: LocalEngine, route: EngineRoute, upstream: Upstream
) -> None:
    upstream.pages["/metrics"] = vllm_says(1_024, 0, 0.3)
    running = await fill(route, range(20))
    pretend(engine, Phase.DOWN, None)
    assert route.most_running(21.0) == 0
    for _ in range(running):
        route.tally.end(21.0)
        route.tally.refuse(0.0)
    pretend(engine, Phase.READY, upstream.url.removesuffix("/v1"))
    assert (route.most_running(22.0), route.blocked) == (8, None)
    assert await fill(route, range(22, 24)) == 16
