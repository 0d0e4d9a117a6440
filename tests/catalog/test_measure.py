"""A prompt that may be too long is counted before it is sent, and only such a one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from overnight.catalog.engine_route import EngineRoute
from overnight.engine.count import count_vllm
from overnight.engine.supervise import LocalEngine, Phase
from overnight.upstreams.http import Broken, BrokenKind, Call, Reply
from tests.catalog.engines import engine_of, pretend
from tests.scripted_upstream import Asked, Say, Upstream, completion, serving

CONTEXT = 2_000
LONG = "x" * CONTEXT
"""It may be too long, by its bytes."""


class Tokens:
    """A script for a server: a prompt has `count` tokens, where it is asked for them."""

    def __init__(self, count: int | None = None, say: Say | None = None) -> None:
        self.say = say or Say(body=json.dumps({"count": count}).encode())
        self.may_tell = asyncio.Event()
        self.may_tell.set()

    async def __call__(self, asked: Asked) -> Say:
        if asked.path != "/tokenize":
            return Say(body=completion("good"))
        await self.may_tell.wait()
        return self.say


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with serving() as upstream:
        yield upstream


@pytest.fixture
async def engine(upstream: Upstream) -> LocalEngine:
    engine = engine_of(context=CONTEXT, count=count_vllm)
    pretend(engine, Phase.READY, upstream.url.removesuffix("/v1"))
    return engine


@pytest.fixture
async def route(engine: LocalEngine) -> AsyncIterator[EngineRoute]:
    route = EngineRoute(engine, most_reply_bytes=lambda: 1_000_000)
    yield route
    await route.close()


class Sent:
    """A request of a worker, and what became of it."""

    def __init__(self, text: str, **more: Any) -> None:
        body = {"messages": [{"role": "user", "content": text}], **more}
        self.ended: asyncio.Future[Reply | Broken] = asyncio.get_running_loop().create_future()
        self.call = Call("/chat/completions", json.dumps(body).encode(), 30.0, None, self._end)

    def _end(self, _: Call, came: Reply | Broken) -> None:
        self.ended.set_result(came)

    async def by(self, route: EngineRoute, most: int | None = None) -> Reply | Broken:
        """What it came to on a route, in a batch with such a limit."""
        route.send(self.call, most)
        return await self.came()

    async def came(self) -> Reply | Broken:
        async with asyncio.timeout(60):
            return await self.ended


def paths(upstream: Upstream) -> list[str]:
    return [asked.path.removeprefix("/v1") for asked in upstream.asked]


async def test_a_short_request_is_sent_at_once_and_as_it_was_written(route: EngineRoute, upstream: Upstream) -> None:
    sent = Sent("hello", max_tokens=20)
    written = json.loads(bytes(sent.call.body))
    assert isinstance(await sent.by(route), Reply)
    assert (paths(upstream), upstream.asked[-1].body) == (["/chat/completions"], written)
    assert route.most_running(0.0) == 4


async def test_one_that_may_be_too_long_is_counted_and_its_answer_ends_with_the_context(
    route: EngineRoute, upstream: Upstream
) -> None:
    upstream.script = Tokens(CONTEXT - 30)
    assert isinstance(await Sent(LONG, max_tokens=20).by(route), Reply)
    assert isinstance(await Sent(LONG, max_tokens=50).by(route), Reply)
    assert paths(upstream) == ["/tokenize", "/chat/completions"] * 2
    assert [asked.body.get("max_tokens") for asked in upstream.asked] == [None, 20, None, 30]


async def test_one_that_is_too_long_never_runs_and_is_told_both_numbers(route: EngineRoute, upstream: Upstream) -> None:
    upstream.script = Tokens(3_456)
    came = await Sent(LONG, max_tokens=20).by(route)
    assert isinstance(came, Broken)
    assert (came.kind, came.message) == (BrokenKind.TOO_LONG, "Prompt length 3456 exceeds model context 2000")
    assert paths(upstream) == ["/tokenize"]


async def test_two_batches_at_once_have_each_their_own_limit(route: EngineRoute, upstream: Upstream) -> None:
    upstream.script = Tokens(41)
    small, large = await asyncio.gather(Sent("x").by(route, 40), Sent("x").by(route, 400))
    assert isinstance(small, Broken)
    assert small.message == "Prompt length 41 exceeds the batch's max_context_length 40"
    assert isinstance(large, Reply)
    assert upstream.asked[-1].body["max_tokens"] == 359


async def test_an_engine_that_refuses_exactly_by_itself_is_asked_for_limits_below_its_own_only(
    upstream: Upstream,
) -> None:
    engine = engine_of(context=300, count=count_vllm, refuses_exactly=True)
    pretend(engine, Phase.READY, upstream.url.removesuffix("/v1"), context_length=300)
    route = EngineRoute(engine, most_reply_bytes=lambda: 1_000_000)
    upstream.script = Tokens(100)
    await Sent(LONG).by(route)
    assert paths(upstream) == ["/chat/completions"]
    # It was asked for a context of 300 and made one of 512.
    pretend(engine, Phase.READY, upstream.url.removesuffix("/v1"), context_length=512)
    await Sent(LONG).by(route)
    assert paths(upstream)[1:] == ["/tokenize", "/chat/completions"]
    assert upstream.asked[-1].body["max_tokens"] == 200
    assert route.offers[0].context_length == 300
    await route.close()


@pytest.mark.parametrize(
    "say", [Say(404), Say(500), Say(body=b"{}"), Say(body=b"<html>"), Say(raw=b"no HTTP at all\r\n\r\n")]
)
async def test_where_it_cannot_be_counted_the_engine_has_the_last_word(
    route: EngineRoute, upstream: Upstream, say: Say
) -> None:
    upstream.script = Tokens(say=say)
    sent = Sent(LONG, max_tokens=50)
    written = json.loads(bytes(sent.call.body))
    assert isinstance(await sent.by(route), Reply)
    assert (paths(upstream), upstream.asked[-1].body) == (["/tokenize", "/chat/completions"], written)


async def test_an_engine_that_dies_of_counting_was_lost_under_the_request(
    route: EngineRoute, upstream: Upstream
) -> None:
    upstream.script = Tokens(say=Say(raw=b""))
    came = await Sent(LONG).by(route)
    assert isinstance(came, Broken)
    assert (came.kind, came.sent) == (BrokenKind.CLOSED, True)


async def test_an_engine_that_was_gone_before_never_saw_the_request(route: EngineRoute, upstream: Upstream) -> None:
    await upstream.stop()
    came = await Sent(LONG).by(route)
    assert isinstance(came, Broken)
    assert not came.sent
    await upstream.start()


async def test_a_request_that_is_given_up_while_it_is_counted_ends_unsent(
    route: EngineRoute, upstream: Upstream
) -> None:
    upstream.script = tokens = Tokens(100)
    tokens.may_tell.clear()
    at_once, later = Sent(LONG), Sent(LONG)
    route.send(at_once.call, None)
    route.cancel(at_once.call)
    route.send(later.call, None)
    await upstream.until_in_flight(1)
    route.cancel(later.call)
    for sent in (at_once, later):
        came = await sent.came()
        assert isinstance(came, Broken)
        assert (came.kind, came.sent, sent.call.ended) == (BrokenKind.CANCELLED, False, True)
    tokens.may_tell.set()
    assert "/chat/completions" not in paths(upstream)


async def test_what_is_counted_when_the_engine_goes_ends_with_it(
    route: EngineRoute, engine: LocalEngine, upstream: Upstream
) -> None:
    upstream.script = tokens = Tokens(100)
    tokens.may_tell.clear()
    sent = Sent(LONG)
    route.send(sent.call, None)
    await upstream.until_in_flight(1)
    pretend(engine, Phase.DOWN, None)
    await route.tend()
    came = await sent.came()
    assert isinstance(came, Broken)
    assert not came.sent
    tokens.may_tell.set()


async def test_one_that_was_counted_can_still_be_given_up(route: EngineRoute, upstream: Upstream) -> None:
    runs = asyncio.Event()

    async def script(asked: Asked) -> Say:
        if asked.path == "/tokenize":
            return Say(body=b'{"count":100}')
        await runs.wait()
        return Say(body=completion("late"))

    upstream.script = script
    sent = Sent(LONG)
    route.send(sent.call, None)
    await upstream.until_in_flight(1)
    while paths(upstream)[-1] != "/chat/completions":
        await upstream.settled()
    route.cancel(sent.call)
    came = await sent.came()
    assert isinstance(came, Broken)
    assert came.kind is BrokenKind.CANCELLED
    runs.set()


async def test_while_prompts_are_counted_the_engine_has_more_than_its_slots_hold(
    route: EngineRoute, upstream: Upstream
) -> None:
    upstream.script = Tokens(100)
    assert route.most_running(0.0) == 4
    await Sent(LONG).by(route)
    assert route.most_running(0.0) == 6
    await Sent("short", max_tokens=1).by(route)
    assert route.most_running(0.0) == 4
