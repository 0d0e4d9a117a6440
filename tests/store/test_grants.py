"""Slots of a model with a cap, as several workers take them at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from overnight.domain.grants import Share, settle
from overnight.store import grants
from overnight.store.answers import Fenced
from overnight.store.grants import Ask, Given
from overnight.store.life import Life, declare_dead, end_sessions, free_lingering
from overnight.store.pool import Session, Store

AT_ONCE = timedelta(0)
HOUR = timedelta(hours=1)


def ask(
    target: int,
    *,
    cap: int = 10,
    holds: int = 0,
    running: int = 0,
    allowed: int = 0,
    interactive: int = 0,
    model: str = "m",
) -> Ask:
    return Ask(model, running, max(holds, running), max(target, running), target, allowed, cap, interactive)


async def worker(store: Store, *, joined: bool = True, slots: int = 100) -> Life:
    """A worker that takes part from the start, where there is a cap."""
    life = Life(store, slots)
    await life.begin()
    if joined:
        async with store.session() as session:
            assert await grants.share(session, life.no, []) == []
    return life


async def share(store: Store, life: Life, *asks: Ask) -> list[Given]:
    async with store.session() as session:
        return await grants.share(session, life.no, asks)


async def one(store: Store, life: Life, target: int, **given: Any) -> Given:
    return (await share(store, life, ask(target, **given)))[0]


async def granted(store: Store) -> dict[int, int]:
    """What each worker has of the model `m`."""
    async with store.session() as session:
        rows = await session.connection.fetch("SELECT worker, granted FROM model_grant WHERE model = 'm'")
    return {row["worker"]: row["granted"] for row in rows}


async def waits(store: Store) -> None:
    """Return when somebody waits for a lock."""
    async with asyncio.timeout(60), store.session() as session:
        while not await session.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0)


async def gone(store: Store, life: Life) -> None:
    """Return when the database knows that the worker's own session has ended, which takes it a moment."""
    async with asyncio.timeout(60), store.session() as session:
        while await session.connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", life.session_name
        ):
            await asyncio.sleep(0)


@asynccontextmanager
async def connected(store: Store, life: Life) -> AsyncIterator[Session]:
    """The worker's own session, until it is ended."""
    session = await store.connect(life.session_name)
    try:
        yield session
    finally:
        session.connection.terminate()


async def test_who_comes_first_takes_what_it_wants_and_others_what_is_left(store: Store) -> None:
    first, second = await worker(store), await worker(store)
    assert (await one(store, first, 7)).allowed == 7
    given = await one(store, second, 7)
    assert (given.allowed, given.granted) == (3, 3)
    assert given.others == (Share(first.no, 7, 7),)
    assert (await one(store, first, 5, allowed=7)).granted == 5
    assert (await one(store, second, 5, allowed=3)).granted == 5


async def test_what_runs_keeps_its_grant_when_the_cap_is_lowered(store: Store) -> None:
    first, second = await worker(store), await worker(store)
    await one(store, first, 6)
    await one(store, second, 4)
    given = await one(store, first, 2, cap=4, running=6)
    assert (given.allowed, given.granted) == (0, 6)
    given = await one(store, second, 2, cap=4, running=1)
    assert (given.allowed, given.granted) == (0, 1)
    given = await one(store, first, 2, cap=4, running=2)
    assert (given.allowed, given.granted) == (2, 2)


async def test_a_cap_of_nothing_gives_nothing(store: Store) -> None:
    life = await worker(store)
    assert (await one(store, life, 0, cap=0)).allowed == 0
    assert (await one(store, life, 5, cap=0)).allowed == 0


@pytest.mark.parametrize("first", [0, 1])
async def test_two_that_ask_at_once_never_get_more_than_there_is(store: Store, first: int) -> None:
    lives = [await worker(store), await worker(store)]
    lives = [lives[first], lives[1 - first]]
    await one(store, lives[0], 0)
    await one(store, lives[1], 0)
    async with store.transaction() as session:
        mine = (await grants.share(session, lives[0].no, [ask(8)]))[0]
        other = asyncio.create_task(one(store, lives[1], 8))
        await waits(store)
        # It began before this commits, and yet it has to see what this took.
    assert (mine.allowed, (await other).allowed) == (8, 2)


async def test_two_that_are_the_first_to_ask_for_a_model_share_it(store: Store) -> None:
    lives = [await worker(store), await worker(store)]
    async with store.transaction() as session:
        mine = (await grants.share(session, lives[0].no, [ask(8)]))[0]
        other = asyncio.create_task(one(store, lives[1], 8))
        await waits(store)
    assert (mine.allowed, (await other).allowed) == (8, 2)


@pytest.mark.parametrize("first", ["b", "a"])
async def test_models_are_locked_in_one_order_whoever_asks_for_which_first(store: Store, first: str) -> None:
    lives = [await worker(store), await worker(store)]
    second = "a" if first == "b" else "b"
    await share(store, lives[0], ask(1, model="a"), ask(1, model="b"))
    async with store.transaction() as session:
        await grants.share(session, lives[0].no, [ask(1, model=first), ask(1, model=second)])
        other = asyncio.create_task(share(store, lives[1], ask(1, model=second), ask(1, model=first)))
        await waits(store)
    assert {given.model for given in await other} == {"a", "b"}


async def test_the_statement_applies_the_rule(store: Store) -> None:
    chance = random.Random(4)
    lives = [await worker(store) for _ in range(3)]
    for _ in range(60):
        life = chance.choice(lives)
        before = await granted(store)
        allowed = chance.randint(0, before.get(life.no, 0))
        holds = max(allowed, chance.randint(0, before.get(life.no, 0)))
        target, cap = chance.randint(0, 12), chance.randint(0, 12)
        taken = sum(number for no, number in before.items() if no != life.no)
        given = await one(store, life, target, cap=cap, holds=holds, allowed=allowed)
        assert (given.allowed, given.granted) == settle(holds, target, cap - taken)
        assert (await granted(store))[life.no] == given.granted


async def test_interactive_requests_take_their_slots_wherever_they_run(store: Store) -> None:
    first, second = await worker(store), await worker(store)
    await one(store, first, 1, interactive=6)
    assert (await one(store, second, 1, interactive=2)).allowed == 1
    given = await one(store, first, 10, allowed=1, interactive=1)
    assert given.allowed == 10 - 2 - 1 - 1
    assert given.others[0].interactive == 2
    assert (await one(store, first, 10, allowed=6)).allowed == 7


async def test_a_new_cap_gives_nothing_before_everybody_has_heard_of_it(store: Store) -> None:
    """Who has not may be running requests that are in no row yet."""
    first, late = await worker(store), await worker(store, joined=False)
    given = await one(store, first, 10, running=3)
    assert (given.allowed, given.granted) == (0, 3)
    late_given = await one(store, late, 10, running=8)
    assert (late_given.allowed, late_given.granted) == (7, 8)
    given = await one(store, first, 10, running=3)
    assert (given.allowed, given.granted) == (2, 3)


async def test_who_runs_nothing_or_never_speaks_up_holds_up_nobody_for_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await worker(store)
    await worker(store, joined=False, slots=0)
    assert (await one(store, first, 10)).allowed == 10
    await worker(store, joined=False)
    assert (await one(store, first, 10, model="n")).allowed == 0
    monkeypatch.setattr(grants, "SETTLED_AFTER", AT_ONCE)
    assert (await one(store, first, 10, model="n")).allowed == 10


async def test_a_worker_that_leaves_gives_its_slots_back(store: Store) -> None:
    first, second = await worker(store), await worker(store)
    await one(store, first, 10)
    await first.end()
    assert await granted(store) == {}
    assert (await one(store, second, 10)).allowed == 10


async def test_what_is_given_back_is_free_at_once(store: Store) -> None:
    first, second = await worker(store), await worker(store)
    await share(store, first, ask(10), ask(5, model="n"))
    async with store.session() as session:
        await grants.give_back(session, first.no, ["m"])
    assert (await one(store, second, 10)).allowed == 10
    assert (await one(store, second, 10, model="n")).allowed == 5


async def test_a_worker_whose_models_lose_their_cap_has_nothing_and_takes_no_part(store: Store) -> None:
    life = await worker(store)
    await one(store, life, 10)
    async with store.session() as session:
        await grants.leave(session, life.no)
        assert not await session.connection.fetchval("SELECT capped FROM beat")
    assert await granted(store) == {}


async def test_a_worker_declared_dead_can_take_no_slot(store: Store) -> None:
    life = await worker(store)
    assert await declare_dead(store, life.no, AT_ONCE)
    with pytest.raises(Fenced):
        await one(store, life, 1)
    assert await granted(store) == {}


async def test_slots_of_a_killed_worker_are_free_with_its_death(store: Store) -> None:
    dead, other = await worker(store), await worker(store)
    await one(store, dead, 10)
    assert await declare_dead(store, dead.no, AT_ONCE)
    assert (await one(store, other, 10)).allowed == 10


async def test_slots_of_a_frozen_worker_stay_taken_until_it_has_given_up_its_calls(store: Store) -> None:
    frozen, other = await worker(store), await worker(store)
    await one(store, frozen, 6)
    async with connected(store, frozen):
        assert await declare_dead(store, frozen.no, AT_ONCE)
        given = await one(store, other, 10)
        assert (given.allowed, given.others) == (4, (Share(frozen.no, 6, 0, lingers=True),))
        assert not await free_lingering(store)
        async with store.session() as session:
            await grants.give_back(session, frozen.no, ["m"])
        assert (await one(store, other, 10, allowed=4)).allowed == 4
        async with store.session() as session:
            await grants.release(session, frozen.no)
        assert (await one(store, other, 10, allowed=4)).allowed == 10


async def test_slots_of_a_frozen_worker_are_free_after_the_longest_request(store: Store) -> None:
    frozen, other = await worker(store), await worker(store)
    await one(store, frozen, 6)
    async with connected(store, frozen):
        assert await declare_dead(store, frozen.no, AT_ONCE, lingers=AT_ONCE)
        assert (await one(store, other, 10)).allowed == 10
        assert await free_lingering(store)
    assert (await granted(store)).keys() == {other.no}


async def test_slots_of_a_frozen_worker_are_free_when_it_is_killed(store: Store) -> None:
    frozen, other = await worker(store), await worker(store)
    await one(store, frozen, 6)
    session = await store.connect(frozen.session_name)
    assert await declare_dead(store, frozen.no, AT_ONCE)
    await session.connection.close()
    async with asyncio.timeout(60):
        while not await free_lingering(store):
            await asyncio.sleep(0)
    assert (await one(store, other, 10)).allowed == 10


async def test_a_frozen_worker_whose_session_had_to_be_ended_is_not_taken_for_gone(store: Store) -> None:
    frozen, other = await worker(store), await worker(store)
    await one(store, frozen, 6)
    async with connected(store, frozen):
        assert await end_sessions(store, frozen.no) == 1
    await gone(store, frozen)
    assert await declare_dead(store, frozen.no, AT_ONCE)
    assert not await free_lingering(store)
    assert (await one(store, other, 10)).allowed == 4


async def test_a_worker_whose_session_was_ended_and_that_lived_on_is_like_any_other(store: Store) -> None:
    life = await worker(store)
    await one(store, life, 6)
    async with connected(store, life):
        await end_sessions(store, life.no)
    await gone(store, life)
    await one(store, life, 6, allowed=6)
    assert await declare_dead(store, life.no, AT_ONCE)
    assert await granted(store) == {}


@pytest.mark.parametrize("dies_first", [True, False])
async def test_a_death_and_an_ask_take_their_locks_in_one_order(store: Store, dies_first: bool) -> None:
    life, other = await worker(store), await worker(store)
    await one(store, life, 6)
    if dies_first:
        async with store.transaction() as session:
            await session.connection.execute("UPDATE worker SET dead_at = now() WHERE no = $1", life.no)
            asking = asyncio.create_task(one(store, life, 10, allowed=6))
            await waits(store)
            await grants.settle_death(session, life.no, life.session_name, HOUR)
        with pytest.raises(Fenced):
            await asking
    else:
        async with store.transaction() as session:
            await grants.share(session, life.no, [ask(10, allowed=6)])
            dying = asyncio.create_task(declare_dead(store, life.no, AT_ONCE))
            await waits(store)
        assert await dying
    assert (await one(store, other, 10)).allowed == 10
