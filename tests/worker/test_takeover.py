"""Workers that die, freeze or are thought dead: what they may still do, and how others go on."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from overnight.monotonic import monotonic
from overnight.store.life import declare_dead, end_sessions
from overnight.store.pool import Store
from overnight.worker import held
from tests.scripted_upstream import Asked, Gate, Say, Upstream, echo, failure
from tests.worker.rig import Rig, add_batch, names, request, results, rigged, value, values
from tests.worker.routes import Switch

AT_ONCE = timedelta(0)


async def kill(rig: Rig) -> None:
    """What the others see of a worker that was killed."""
    await rig.worker.close()
    assert await declare_dead(rig.store, rig.life.no, AT_ONCE)


async def half_done(rig: Rig, batch: int) -> Gate:
    """The first half of 100 requests is answered and stored, some of the others are in flight until the gate opens."""
    gate = Gate()

    async def script(asked: Asked) -> Say:
        return await echo(asked) if int(asked.name[1:]) < 50 else await gate(asked)

    rig.upstream.script = script
    await rig.until(lambda: rig.upstream.in_flight == 8 and len(rig.upstream.asked) == 58)
    await rig.until(lambda: rig.worker.unstored == 0)
    assert len(await results(rig.store, batch)) == 50
    return gate


async def test_a_worker_that_dies_leaves_its_requests_to_the_next(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(100)], of_each=40)
    async with rigged(store, upstream, slots=8) as first:
        gate = await half_done(first, batch)
        in_flight = {asked.name for asked in upstream.asked[50:]}
        await kill(first)
    gate.open()
    async with rigged(store, upstream, slots=8) as second:
        await second.finish()
    assert (await results(store, batch)).keys() == names(100)
    again = {name for name, times in upstream.arrivals.items() if times > 1}
    assert again == in_flight
    assert max(upstream.arrivals.values()) == 2
    tries = await values(store, "SELECT line, tries FROM answer")
    assert {f"r{row['line']}" for row in tries if row["tries"] == 2} >= in_flight
    assert all(row["tries"] == 1 for row in tries if row["line"] < 50)


async def test_what_was_lost_with_a_worker_runs_before_what_was_never_sent(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(200)])
    async with rigged(store, upstream, slots=8) as first:
        gate = await half_done(first, batch)
        in_flight = {asked.name for asked in upstream.asked[50:]}
        await kill(first)
    gate.open()
    async with rigged(store, upstream, slots=8) as second:
        await second.until(lambda: len(upstream.asked) >= 66)
        assert {asked.name for asked in upstream.asked[58:66]} == in_flight
        await second.finish()


async def test_what_was_lost_with_a_worker_is_taken_over_by_one_that_has_enough(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = gate = Gate()
    await add_batch(store, [request(f"r{i}") for i in range(512)])
    async with rigged(store, upstream, slots=4) as first, rigged(store, upstream, slots=4) as second:
        await first.until(lambda: upstream.in_flight == 4)
        lost = {asked.name for asked in upstream.asked}
        await second.until(lambda: upstream.in_flight == 8)
        assert (
            await value(store, "SELECT count(*) FROM block WHERE state = 'leased' AND worker = $1", second.life.no) == 1
        )
        await kill(first)
        second.worker.wake()
        while await second.worker.round():
            pass
        assert (
            await value(store, "SELECT count(*) FROM block WHERE state = 'leased' AND worker = $1", second.life.no) == 2
        )
        gate.open()
        await second.until(lambda: len(upstream.asked) >= 30)
        assert lost <= {asked.name for asked in upstream.asked[8:30]}


async def test_a_worker_whose_server_takes_nothing_leaves_its_requests_to_others(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "STUCK_FOR", 0.05)
    server = Switch(upstream.url)
    server.up()
    batch = await add_batch(store, [request(f"r{i}") for i in range(100)])
    async with rigged(store, upstream, route=server) as first:
        upstream.script = gate = Gate()
        await first.until(lambda: upstream.in_flight == 4)
        server.down()
        gate.open()
        await first.until(lambda: first.worker.is_idle)
        async with rigged(store, upstream, slots=8) as second:
            await second.finish()
    assert (await results(store, batch)).keys() == names(100)
    assert set(upstream.arrivals.values()) == {1}


async def test_a_worker_declared_dead_can_write_nothing(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(100)])
    async with rigged(store, upstream, slots=8) as first:
        gate = await half_done(first, batch)
        old = first.life.no
        assert await declare_dead(store, old, AT_ONCE)
        gate.open()
        await first.until(lambda: first.life.no != old)
        assert len(await results(store, batch)) == 50
        assert await value(store, "SELECT count(*) FROM block WHERE worker = $1", old) == 0
        # Under its new number it is a worker like any other, and begins with nothing of what it held.
        await first.finish()
    assert (await results(store, batch)).keys() == names(100)


async def test_what_was_stored_before_the_death_stays(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(10)])
    async with rigged(store, upstream) as first:
        await first.until(lambda: first.worker.unstored == 0 and len(upstream.asked) == 10)
        before = await results(store, batch)
        await kill(first)
    async with rigged(store, upstream) as second:
        await second.finish()
    assert await results(store, batch) == before
    assert max(upstream.arrivals.values()) == 1


async def test_a_worker_that_begins_anew_gives_up_what_runs(store: Store, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(10)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        assert await declare_dead(store, rig.life.no, AT_ONCE)
        await rig.life.try_to_beat()
        assert rig.worker.running == 0
        gate.open()
        await rig.finish()
        # What the calls that were given up came to is nobody's business.
        assert rig.worker.running == 0
    assert (await results(store, batch)).keys() == names(10)


async def test_a_worker_may_be_made_before_its_life_begins(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request("a")])
    async with rigged(store, upstream, begun=False) as rig:
        await rig.life.begin()
        await rig.finish()
    assert (await results(store, batch)).keys() == {"a"}


async def test_a_worker_whose_session_was_ended_goes_on_where_it_is_alive(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(100)])
    async with rigged(store, upstream, slots=8) as rig:
        gate = await half_done(rig, batch)
        assert await end_sessions(store, rig.life.no) == 1
        gate.open()
        await rig.finish()
    assert (await results(store, batch)).keys() == names(100)
    assert max(upstream.arrivals.values()) == 1


async def test_a_worker_without_a_fresh_heartbeat_starts_nothing(store: Store, upstream: Upstream) -> None:
    frozen_for = 0.0

    def clock() -> float:
        return monotonic() + frozen_for

    gate = Gate()
    upstream.script = gate
    batch = await add_batch(store, [request(f"r{i}") for i in range(20)])
    async with rigged(store, upstream, slots=4, clock=clock) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        frozen_for = 6.0
        gate.open()
        await rig.until(lambda: rig.worker.running == 0)
        await rig.worker.round()
        assert len(upstream.asked) == 4
        await rig.life.try_to_beat()
        await rig.finish()
    assert (await results(store, batch)).keys() == names(20)


@pytest.mark.usefixtures("short_waits")
async def test_tries_are_counted_on_and_waits_are_kept(store: Store, upstream: Upstream) -> None:
    async def broken(_: Asked) -> Say:
        return Say(500, failure("broken"))

    upstream.script = broken
    batch = await add_batch(store, [request("a")])
    async with rigged(store, upstream) as first:
        await first.until(lambda: upstream.arrivals["a"] == 3 and first.worker.running == 0)
        await first.worker.round()
        await kill(first)
    async with store.session() as session:
        await session.connection.execute("UPDATE call SET again_at = now() + interval '1 hour' WHERE try = 3")
    async with rigged(store, upstream) as second:
        await second.until(lambda: second.worker.holds(batch))
        await second.worker.round()
        assert upstream.arrivals["a"] == 3
        await kill(second)
    async with store.session() as session:
        await session.connection.execute("UPDATE call SET again_at = now()")
    upstream.script = echo
    async with rigged(store, upstream) as third:
        await third.finish()
    assert await value(store, "SELECT tries FROM answer") == 4


async def test_two_workers_share_a_batch(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(400)], of_each=20)
    async with rigged(store, upstream, slots=4) as one, rigged(store, upstream, slots=4) as two:
        while await value(store, "SELECT completed FROM batch") < 400:
            await one.worker.round()
            await two.worker.round()
            await one.worker.bell.wait(0.01)
        assert one.committed
        assert two.committed
    assert (await results(store, batch)).keys() == names(400)
    assert max(upstream.arrivals.values()) == 1


async def test_a_request_that_four_workers_died_of_is_not_sent_again(store: Store, upstream: Upstream) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(10)])
    async with store.session() as session:
        await session.connection.execute("UPDATE block SET leases = 4")
        await session.connection.execute(
            "INSERT INTO attempt (batch, worker, no, blocks, lines)"
            " SELECT $1::bigint, n, 1, '{0}'::int[], '{3,4}'::int[]"
            " FROM generate_series(1, 3) n UNION ALL SELECT $1, 4, 1, '{0}', '{3}'",
            batch,
        )
    async with rigged(store, upstream) as rig:
        await rig.finish()
    found = await results(store, batch)
    assert found.keys() == names(10)
    assert found["r3"]["error"]["code"] == "upstream_error"
    assert {name for name, line in found.items() if line["error"] is None} == names(10) - {"r3"}
    assert "r3" not in upstream.arrivals
    # The other one has lost three workers: it ran, and while it did nothing else.
    assert upstream.beside["r4"] == 0


async def test_what_the_database_still_does_for_a_lost_connection_is_not_done(store: Store, upstream: Upstream) -> None:
    """A statement that was under way as the connection broke, and would be committed after all was taken back."""
    batch = await add_batch(store, [request("a")])
    async with rigged(store, upstream) as rig, store.session() as session:
        hold = session.connection
        await hold.execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF NEW.no = 1 THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER wait BEFORE INSERT ON attempt FOR EACH ROW EXECUTE FUNCTION wait();"
            "SELECT pg_advisory_lock(7)"
        )
        writing = asyncio.create_task(rig.worker.round())
        while not await value(store, _WAITING):
            await asyncio.sleep(0.005)
        assert rig.worker._connection._session is not None
        rig.worker._connection._session.connection.terminate()
        await writing
        await rig.until(lambda: rig.worker.running == 1)
        await hold.execute("SELECT pg_advisory_unlock(7)")
        while await value(store, _WAITING):
            await asyncio.sleep(0.005)
        await rig.finish()
    assert (await results(store, batch)).keys() == {"a"}
    assert await value(store, "SELECT sum(cardinality(lines)) FROM attempt") == 1


_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"
