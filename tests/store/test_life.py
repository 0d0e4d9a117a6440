"""A worker's life: registered, beating, declared dead, begun anew, ended."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from overnight.store import life as of_life
from overnight.store.life import DEAD_AFTER, Life, declare_dead, find_stale, session_name
from overnight.store.outage import DatabaseLost
from overnight.store.pool import Store

AT_ONCE = timedelta(0)


class Hands:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def one(store: Store, sql: str, *given: object) -> Any:
    async with store.session() as session:
        return await session.connection.fetchval(sql, *given)


@pytest.fixture
async def life(store: Store) -> Life:
    life = Life(store, slots=7)
    await life.begin()
    return life


async def test_a_worker_registers_with_its_first_heartbeat(store: Store, life: Life) -> None:
    async with store.session() as session:
        row = await session.connection.fetchrow("SELECT * FROM worker JOIN beat ON worker = no")
    assert (row["no"], row["slots"], row["dead_at"]) == (life.no, 7, None)
    assert await find_stale(store, DEAD_AFTER) == []


async def test_a_heartbeat_tells_how_much_runs(store: Store, life: Life) -> None:
    before = await one(store, "SELECT at FROM beat")
    life.running = lambda: 3
    assert not await life.beat()
    assert await one(store, "SELECT running FROM beat") == 3
    assert await one(store, "SELECT at FROM beat") > before


@pytest.mark.parametrize("stands_still", [False, True])
async def test_a_heartbeat_that_finds_no_database_is_no_failed_round_and_comes_again_soon(
    life: Life, monkeypatch: pytest.MonkeyPatch, stands_still: bool
) -> None:
    async def find_none() -> bool:
        if stands_still:
            await asyncio.Event().wait()
        raise DatabaseLost("away")

    monkeypatch.setattr(of_life, "BEAT_WITHIN", 0.01)
    monkeypatch.setattr(life, "beat", find_none)
    async with asyncio.timeout(60):
        assert not await life.try_to_beat()


async def test_a_heartbeat_tells_which_slots_are_idle_and_hears_of_those_of_living_others(
    store: Store, life: Life
) -> None:
    others = [Life(store), Life(store), Life(store)]
    for other, idle in zip(others, ({"m": 2}, {"m": 3, "n": 1}, {"m": 100}), strict=True):
        await other.begin()
        other.idle = idle.copy
        await other.beat()
    await declare_dead(store, others[2].no, None)
    life.idle = {"own": 1}.copy
    await life.beat()
    assert life.idle_elsewhere == {"m": 5, "n": 1}
    await one(store, "UPDATE beat SET at = at - interval '1 minute' WHERE worker = $1 RETURNING 1", others[1].no)
    await life.beat()
    assert life.idle_elsewhere == {"m": 2}


async def test_each_life_has_its_own_number_and_session(store: Store, life: Life) -> None:
    other = Life(store)
    await other.begin()
    assert other.no != life.no
    assert life.session_name == session_name(life.no) != other.session_name


async def test_requests_may_start_while_the_last_heartbeat_is_young(store: Store) -> None:
    hands = Hands()
    life = Life(store, clock=hands)
    assert not life.may_start()
    await life.begin()
    assert life.may_start()
    hands.now += DEAD_AFTER.total_seconds() / 2 - 0.1
    assert life.may_start()
    hands.now += 0.2
    assert not life.may_start()
    await life.beat()
    assert life.may_start()


async def test_a_heartbeat_counts_from_when_it_was_sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    life = Life(store, clock=hands)
    await life.begin()
    row = store.row

    async def slow(*given: Any, **named: Any) -> Any:
        hands.now += 6.0
        return await row(*given, **named)

    monkeypatch.setattr(store, "row", slow)
    await life.beat()
    assert not life.may_start()


async def test_a_worker_declared_dead_learns_of_it_and_begins_anew(store: Store, life: Life) -> None:
    old = life.no
    heard: list[int] = []
    life.on_new_life.append(heard.append)
    assert await declare_dead(store, old, AT_ONCE)
    await life.beat()
    assert life.no != old
    assert heard == [old]
    assert life.may_start()
    assert await one(store, "SELECT count(*) FROM worker WHERE dead_at IS NULL") == 1


async def test_one_death_begins_one_new_life_however_many_notice(store: Store, life: Life) -> None:
    old = life.no
    heard: list[int] = []
    life.on_new_life.append(heard.append)
    await declare_dead(store, old, AT_ONCE)
    await asyncio.gather(life.beat(), life.reborn(old), life.beat(), life.reborn(old))
    assert heard == [old]
    assert await one(store, "SELECT count(*) FROM worker") == 2


async def test_a_dead_worker_cannot_beat_itself_back_to_life(store: Store, life: Life) -> None:
    old = life.no
    await declare_dead(store, old, AT_ONCE)
    at = await one(store, "SELECT at FROM beat WHERE worker = $1", old)
    await life.beat()
    assert await one(store, "SELECT at FROM beat WHERE worker = $1", old) == at


async def test_a_living_worker_is_not_declared_dead(store: Store, life: Life) -> None:
    assert not await declare_dead(store, life.no, DEAD_AFTER)
    assert await one(store, "SELECT dead_at FROM worker") is None


async def test_a_worker_that_ends_gives_back_its_blocks(store: Store, life: Life) -> None:
    async with store.session() as session:
        await session.connection.execute(
            "INSERT INTO block (batch, seq, model, state, worker, count, lines, ids, data)"
            " SELECT next_batch_no(now()), 0, 'm', 'leased', $1, 0, '{}', '{}', ''",
            life.no,
        )
    await life.end()
    assert await one(store, "SELECT state FROM block") == "ready"
    assert await one(store, "SELECT dead_at IS NOT NULL FROM worker")
    await life.end()
