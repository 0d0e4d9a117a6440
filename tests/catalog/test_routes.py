"""Routes to servers, and what the deployment is told about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import generate_latest

from overnight.catalog import measure
from overnight.catalog.circuit import FAILURES, FIRST_PAUSE
from overnight.catalog.engine_route import MOST_AHEAD, EngineRoute
from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.engine.llama_server import http_threads
from overnight.engine.supervise import EngineState, Phase
from overnight.store.life import Life, declare_dead
from overnight.store.pool import Store
from overnight.store.served import list_served
from overnight.upstreams.http import Reply
from overnight.upstreams.streamed import Exchange, Head
from tests.catalog.engines import engine_of, pretend
from tests.scripted_upstream import Gate, Say, Upstream, serving

MOST = 1_000_000


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with serving() as upstream:
        yield upstream


@pytest.fixture
async def route(upstream: Upstream) -> AsyncIterator[UpstreamRoute]:
    route = UpstreamRoute(upstream.url, slots=5, most_reply_bytes=lambda: MOST)
    yield route
    await route.close()


@pytest.fixture
async def life(store: Store) -> Life:
    life = Life(store)
    await life.begin()
    return life


async def test_a_local_engine_caches_prompts_by_slot_and_an_upstream_in_one_tree(route: UpstreamRoute) -> None:
    assert EngineRoute(engine_of(), most_reply_bytes=lambda: MOST).slot_caches == 4
    assert EngineRoute(engine_of(embedding=True), most_reply_bytes=lambda: MOST).slot_caches is None
    tree = engine_of()
    tree.launch = replace(tree.launch, slots_share_cache=True)
    assert EngineRoute(tree, most_reply_bytes=lambda: MOST).slot_caches is None
    assert route.slot_caches is None


async def test_an_upstream_offers_what_it_lists(route: UpstreamRoute, upstream: Upstream) -> None:
    upstream.models = Say(body=b'{"data":[{"id":"a","max_model_len":99},{"id":"b"}]}')
    assert await route.tend()
    assert route.models == ("a", "b")
    assert not route.takes_any_model
    assert route.offers[0].context_length == 99
    assert set(route.offers[0].targets) == {"chat", "completions", "embeddings"}


@pytest.mark.parametrize("status", [404, 405, 501, 401, 500])
async def test_an_upstream_that_lists_nothing_takes_any_model(
    route: UpstreamRoute, upstream: Upstream, status: int
) -> None:
    upstream.models = Say(status, b'{"error":"no"}')
    assert await route.tend()
    assert route.takes_any_model
    assert route.models == ()


async def test_an_upstream_that_cannot_be_reached_takes_any_model_until_it_can(
    route: UpstreamRoute, upstream: Upstream
) -> None:
    await upstream.stop()
    assert await route.tend()
    assert route.takes_any_model
    await upstream.start()
    assert await route.tend()
    assert route.models == ("m",)


async def test_what_was_listed_stays_while_the_server_cannot_be_asked(
    route: UpstreamRoute, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overnight.catalog.upstream_route.LIST_EVERY", 0.0)
    await route.tend()
    await upstream.stop()
    assert not await route.tend()
    assert route.models == ("m",)
    await upstream.start()


async def test_a_listing_is_asked_for_once_a_minute(route: UpstreamRoute, upstream: Upstream) -> None:
    assert await route.tend()
    upstream.models = Say(body=b'{"data":[{"id":"other"}]}')
    assert not await route.tend()
    assert route.models == ("m",)


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1/v1"),
        ("http://127.0.0.1:1/", "http://127.0.0.1:1/v1"),
        ("http://127.0.0.1:1/v1/", "http://127.0.0.1:1/v1"),
        ("http://127.0.0.1:1/api/openai", "http://127.0.0.1:1/api/openai"),
    ],
)
async def test_a_url_without_a_path_gets_the_usual_one(given: str, base: str) -> None:
    route = UpstreamRoute(given, slots=1, most_reply_bytes=lambda: MOST)
    assert route.name == base
    await route.close()


async def test_a_url_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ValueError, match="http"):
        UpstreamRoute("ftp://host", slots=1, most_reply_bytes=lambda: MOST)


async def test_a_failing_upstream_is_left_alone_and_comes_back(route: UpstreamRoute) -> None:
    heard: list[bool] = []
    route.on_change.append(lambda: heard.append(True))
    for _ in range(FAILURES):
        route.note_failure(0.0, 0.0)
    assert not route.is_up(1.0)
    assert route.most_running(FIRST_PAUSE) == 1
    route.note_answer()
    assert route.most_running(1.0) == 5
    assert heard == [True]


async def test_a_local_engine_is_up_while_it_is_ready() -> None:
    engine = engine_of()
    route = EngineRoute(engine, most_reply_bytes=lambda: MOST)
    heard: list[bool] = []
    route.on_change.append(lambda: heard.append(True))
    assert not route.is_up(0.0)
    assert [offer.model for offer in route.offers] == ["tiny"]
    async with serving() as upstream:
        pretend(engine, Phase.READY, upstream.url.removesuffix("/v1"))
        assert route.most_running(0.0) == 4
        assert heard == [True]
        pool = route.pool
        assert pool is not None
        came = await pool.ask("GET", "/models")
        assert isinstance(came, Reply)
        pretend(engine, Phase.DOWN, None)
        assert route.pool is None
        await route.tend()
        await route.close()


async def test_a_local_engine_has_threads_left_for_its_health_however_many_people_call(upstream: Upstream) -> None:
    engine = engine_of()
    route = EngineRoute(engine, most_reply_bytes=lambda: MOST)
    pretend(engine, Phase.READY, upstream.url.removesuffix("/v1"))
    assert route.streams is not None
    upstream.script = gate = Gate()
    body = b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}'
    calls = [Exchange(route.streams, "/chat/completions", body, 60, lambda _: None) for _ in range(100)]
    async with asyncio.timeout(60):
        while upstream.in_flight < len(calls):
            before = upstream.in_flight
            await upstream.settled()
            if upstream.in_flight == before > 0:
                break
        others = engine.launch.slots + MOST_AHEAD + measure.MOST_AT_ONCE
        assert upstream.in_flight + others < http_threads(engine.launch.slots)
        gate.open()
        assert all([isinstance(await call.begin(), Head) for call in calls])
    await route.close()


@pytest.mark.parametrize(("embedding", "targets"), [(True, {"embeddings"}), (False, {"chat", "completions"})])
async def test_a_local_engine_serves_what_its_model_can(embedding: bool, targets: set[str]) -> None:
    (offer,) = EngineRoute(engine_of(embedding), most_reply_bytes=lambda: MOST).offers
    assert set(offer.targets) == targets
    assert (offer.model, offer.aliases, offer.context_length) == ("tiny", ("tiny.gguf",), 256)


async def test_the_deployment_is_told_what_is_served(
    store: Store, life: Life, route: UpstreamRoute, upstream: Upstream
) -> None:
    routes = Routes([route, EngineRoute(engine_of(), most_reply_bytes=lambda: MOST)])
    await routes.round(store, life)
    served = await list_served(store)
    assert [(s.model, s.worker, s.any_model) for s in served] == [("m", life.no, False), ("tiny", life.no, False)]
    assert served[1].aliases == ("tiny.gguf",)
    assert served[1].context_length == 256


async def test_the_deployment_is_told_what_keeps_a_model_from_running(
    store: Store, life: Life, route: UpstreamRoute, upstream: Upstream
) -> None:
    engine = engine_of()
    routes = Routes([route, EngineRoute(engine, most_reply_bytes=lambda: MOST)])

    async def blocked() -> dict[str, str | None]:
        await routes.round(store, life)
        return {s.model: s.blocked for s in await list_served(store)}

    engine.state = EngineState(Phase.LOADING)
    assert await blocked() == {"m": None, "tiny": "server_loading"}
    engine.state = EngineState(Phase.DOWN)
    for _ in range(FAILURES):
        route.note_failure(0.0, 0.0)
    assert await blocked() == {"m": "server_unreachable", "tiny": "server_down"}
    route.note_answer()
    assert (await blocked())["m"] is None
    routes.all_blocked = lambda: "disk_full"
    assert set((await blocked()).values()) == {"disk_full"}


async def test_what_the_operator_says_that_an_upstream_lacks_is_told_of_each_of_its_models(
    store: Store, life: Life, route: UpstreamRoute, upstream: Upstream
) -> None:
    poor = UpstreamRoute(upstream.url, lacks={"tools", "logprobs"}, most_reply_bytes=lambda: MOST)
    await Routes([route, poor]).round(store, life)
    assert [s.lacks for s in await list_served(store)] == [("logprobs", "tools")]
    await poor.close()


async def test_an_upstream_that_never_answered_is_told_to_be_unreachable(store: Store, life: Life) -> None:
    dead = UpstreamRoute("http://127.0.0.1:9", most_reply_bytes=lambda: MOST)
    await Routes([dead]).round(store, life)
    assert [s.blocked for s in await list_served(store)] == ["server_unreachable"]
    await dead.close()


async def test_a_changed_listing_replaces_the_one_before(
    store: Store, life: Life, route: UpstreamRoute, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overnight.catalog.upstream_route.LIST_EVERY", 0.0)
    routes = Routes([route])
    heard: list[bool] = []
    routes.on_change.append(lambda: heard.append(True))
    await routes.round(store, life)
    upstream.models = Say(body=b'{"data":[{"id":"other"}]}')
    await routes.round(store, life)
    assert [s.model for s in await list_served(store)] == ["other"]
    assert heard == [True, True]


async def test_a_new_life_is_told_anew_and_the_dead_serve_nothing(
    store: Store, life: Life, route: UpstreamRoute
) -> None:
    routes = Routes([route])
    await routes.round(store, life)
    old = life.no
    await declare_dead(store, old, timedelta(0))
    assert await list_served(store) == []
    await routes.round(store, life)
    assert await list_served(store) == []
    await life.beat()
    await routes.round(store, life)
    assert [s.worker for s in await list_served(store)] == [life.no]
    assert life.no != old


async def test_a_route_that_takes_any_model_leaves_those_alone_that_others_list(
    store: Store, life: Life, route: UpstreamRoute, upstream: Upstream
) -> None:
    other = Life(store)
    await other.begin()
    await Routes([route]).round(store, other)
    async with serving() as silent:
        silent.models = Say(404)
        takes_any = UpstreamRoute(silent.url, slots=5, most_reply_bytes=lambda: MOST)
        routes = Routes([takes_any, EngineRoute(engine_of(), most_reply_bytes=lambda: MOST)])
        await routes.round(store, life)
        assert routes.models_of_others(takes_any) == ("m", "tiny")
        await takes_any.close()


async def test_an_upstream_of_unknown_size_begins_with_few_requests_and_may_have_many(upstream: Upstream) -> None:
    route = UpstreamRoute(upstream.url, most_reply_bytes=lambda: MOST)
    assert route.most_running(0.0) == 8
    assert (route.slots, route.soon) == (1_024, 16)
    await route.close()


async def test_a_ramp_goes_on_while_the_number_is_in_use() -> None:
    route = UpstreamRoute("http://127.0.0.1:1", slots=1_000, most_reply_bytes=lambda: MOST)
    for moment in range(20):
        for _ in range(route.most_running(float(moment)) - route.tally.running):
            route.tally.begin(float(moment))
    assert route.tally.running == 1_000
    await route.close()


async def test_what_was_refused_is_taken_off_at_once(upstream: Upstream) -> None:
    route = UpstreamRoute(upstream.url, most_reply_bytes=lambda: MOST)
    assert route.most_running(0.0) == 8
    route.tally.refuse(0.0)
    route.tally.refuse(0.0)
    assert route.most_running(0.1) == 6
    await route.close()


async def test_a_server_is_asked_how_busy_it_is_while_requests_run_there(upstream: Upstream) -> None:
    upstream.pages["/metrics"] = Say(body=b"vllm:num_requests_running 8\nvllm:num_requests_waiting 56\n")
    route = UpstreamRoute(upstream.url, slots=64, most_reply_bytes=lambda: MOST)
    routes = Routes([route])
    await routes.watch()
    assert upstream.got == []
    for moment in range(60):
        for _ in range(route.most_running(float(moment)) - route.tally.running):
            route.tally.begin(float(moment))
        if moment > 10:
            await routes.watch()
    assert route.most_running(60.0) <= 10
    await route.close()


async def test_the_number_and_its_reason_are_shown() -> None:
    route = UpstreamRoute("http://shown.test:1", slots=5, most_reply_bytes=lambda: MOST)
    for moment in range(3):
        route.most_running(float(moment))
    text = generate_latest().decode()
    assert 'overnight_route_allowed{route="http://shown.test:1/v1"} 5.0' in text
    assert 'overnight_route_in_flight{route="http://shown.test:1/v1"} 0.0' in text
    assert 'overnight_route_why{route="http://shown.test:1/v1",why="work"} 1.0' in text
    await route.close()
