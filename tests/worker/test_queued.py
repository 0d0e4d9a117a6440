"""A model that waits for a machine is left alone by every process."""

from __future__ import annotations

from datetime import timedelta

import pytest

from overnight.store import grants
from overnight.store.answers import Fenced
from overnight.store.life import declare_dead, forget_dead
from overnight.store.pool import Store
from tests.scripted_upstream import Asked, Say, Upstream, echo, failure, serving
from tests.worker.rig import add_batch, names, request, results, rigged, value, values
from tests.worker.test_grants import rounds
from tests.worker.test_takeover import AT_ONCE


async def queued(asked: Asked) -> Say:
    return Say(503, failure("model_queued"), {"Retry-After": "120"})


async def test_what_one_process_was_told_holds_in_all(store: Store, upstream: Upstream) -> None:
    upstream.script = queued
    await add_batch(store, [request("r0")])
    async with serving() as elsewhere, rigged(store, upstream) as told, rigged(store, elsewhere) as other:
        await told.until(lambda: len(upstream.asked) == 1 and told.worker.running == 0)
        await rounds(told)
        batch = await add_batch(store, [request(f"r{i}") for i in range(3)])
        await rounds(other)
        assert elsewhere.asked == []
        wait = await value(store, "SELECT held_until - now() FROM model_state WHERE model = 'm'")
        assert timedelta(seconds=90) < wait <= timedelta(seconds=120)
        # The machine is there, as far as anybody knows.
        await value(store, "UPDATE model_state SET held_until = now() RETURNING 1")
        for flow in other.worker._held.flows.values():
            flow.held_until = 0.0
        await other.until(lambda: len(elsewhere.asked) == 3)
        await other.finish()
    assert (await results(store, batch)).keys() == names(3)


async def test_what_is_told_later_is_heard_by_those_who_run_already(store: Store, upstream: Upstream) -> None:
    upstream.script = echo
    await add_batch(store, [request(f"r{i}") for i in range(300)])
    async with rigged(store, upstream, slots=1) as rig, rigged(store, upstream) as other:
        await rig.until(lambda: len(upstream.asked) >= 2)
        async with store.session() as session:
            await grants.hold(session, other.life.no, {"m": timedelta(hours=1), "n": timedelta(hours=1)})
        await rounds(rig)
        before = len(upstream.asked)
        await rounds(rig)
        assert len(upstream.asked) == before < 300


async def test_the_longest_hold_stands_and_a_dead_worker_holds_nothing(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream) as rig, store.session() as session:
        await grants.hold(session, rig.life.no, {"m": timedelta(hours=2)})
        await grants.hold(session, rig.life.no, {"m": timedelta(hours=1)})
        held = await grants.held(session, ["m", "n"])
        assert held.keys() == {"m"}
        assert held["m"] > timedelta(hours=1, minutes=50)
        assert await declare_dead(store, rig.life.no, AT_ONCE)
        with pytest.raises(Fenced):
            await grants.hold(session, rig.life.no, {"n": timedelta(hours=2)})


async def test_models_that_nobody_uses_are_forgotten(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream) as rig, store.session() as session:
        await grants.share(session, rig.life.no, [grants.Ask("used", 1, 1, 1, 1, 1, 5)])
        await grants.hold(session, rig.life.no, {"held": timedelta(hours=2), "old": AT_ONCE, "young": AT_ONCE})
        await session.connection.execute("UPDATE model_state SET asked_at = now() - interval '2 days'")
        await session.connection.execute("UPDATE model_state SET asked_at = now() WHERE model = 'young'")
        assert await forget_dead(store)
        left = [row["model"] for row in await values(store, "SELECT model FROM model_state ORDER BY model")]
        assert left == ["held", "used", "young"]
        assert not await forget_dead(store)
