"""Batches that are cancelled, paused or closed while some of their requests run."""

from __future__ import annotations

from overnight.store.pool import Store
from tests.scripted_upstream import Gate, Upstream
from tests.worker.rig import Rig, add_batch, names, request, results, rigged, value, values


async def change(store: Store, batch: int, what: str) -> None:
    async with store.session() as session:
        await session.connection.execute(f"UPDATE batch SET {what} WHERE no = $1", batch)


CANCEL = "ends_as = 'cancelled', status = 'cancelling'"


async def running(rig: Rig, of_each: int = 20) -> tuple[int, Gate]:
    """A batch of 50 requests of which four are in flight until the gate opens."""
    gate = Gate()
    rig.upstream.script = gate
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(50)], of_each=of_each)
    await rig.until(lambda: rig.upstream.in_flight == 4)
    return batch, gate


async def test_cancelling_keeps_what_runs_and_starts_nothing_more(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig)
        await change(store, batch, CANCEL)
        rig.worker.wake()
        await rig.worker.round()
        gate.open()
        await rig.finish()
    assert len(upstream.asked) == 4
    assert (await results(store, batch)).keys() == {asked.name for asked in upstream.asked}


async def test_a_cancelled_batch_holds_no_lease_once_nothing_of_it_runs(store: Store, upstream: Upstream) -> None:
    leased = "SELECT count(*) FROM block WHERE state = 'leased'"
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig, of_each=3)
        assert await value(store, leased) > 2
        await change(store, batch, CANCEL)
        rig.worker.wake()
        await rig.worker.round()
        # What nothing runs of goes back at once; two blocks wait for their four requests.
        assert await value(store, leased) == 2
        gate.open()
        await rig.finish()
    assert await value(store, leased) == 0


async def test_what_was_written_down_and_not_sent_is_taken_back(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig)
        written = "SELECT sum(cardinality(lines))::integer FROM attempt"
        assert await value(store, written) > 4
        await change(store, batch, CANCEL)
        rig.worker.wake()
        await rig.worker.round()
        gate.open()
        await rig.finish()
        assert await value(store, written) == 4


async def test_a_paused_batch_goes_on_when_it_is_resumed(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig)
        await change(store, batch, "paused = '{}'")
        rig.worker.wake()
        await rig.worker.round()
        gate.open()
        await rig.finish()
        assert len(upstream.asked) == 4
        await change(store, batch, "paused = NULL")
        rig.worker.wake()
        await rig.finish()
    assert (await results(store, batch)).keys() == names(50)
    assert max(upstream.arrivals.values()) == 1
    assert await value(store, "SELECT max(tries) FROM answer") == 1


async def test_a_batch_resumed_while_some_of_it_runs_goes_on_at_once(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig)
        await change(store, batch, "paused = '{}'")
        rig.worker.wake()
        await rig.worker.round()
        await change(store, batch, "paused = NULL")
        rig.worker.wake()
        gate.open()
        await rig.finish()
    assert (await results(store, batch)).keys() == names(50)
    assert max(upstream.arrivals.values()) == 1


async def test_nothing_starts_after_the_window_has_closed(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig)
        await change(store, batch, "expires_at = now()")
        rig.worker.wake()
        await rig.worker.round()
        gate.open()
        await rig.finish()
    assert len(upstream.asked) == 4
    assert len(await results(store, batch)) == 4
    assert {row["state"] for row in await values(store, "SELECT state FROM block")} == {"ready"}


async def test_a_batch_that_ended_under_the_write_is_noticed_there(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig)
        await change(store, batch, CANCEL)
        # Nobody rings and the next look is a second away: the statement that writes the next group down finds out.
        gate.open()
        await rig.until(lambda: not rig.worker.holds(batch))
    assert len(upstream.asked) < 20


async def test_a_batch_that_was_deleted_is_let_go(store: Store, upstream: Upstream) -> None:
    async with rigged(store, upstream, slots=4) as rig:
        batch, gate = await running(rig)
        async with store.session() as session:
            await session.connection.execute("DELETE FROM block WHERE batch = $1", batch)
            await session.connection.execute("DELETE FROM batch WHERE no = $1", batch)
        rig.worker.wake()
        gate.open()
        await rig.finish()
    assert await value(store, "SELECT count(*) FROM answer") == 0
