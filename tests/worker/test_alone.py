"""A request that its servers may have died of runs alone: as limits allow, without stopping the house, and for sure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from overnight.domain import alone
from overnight.domain.limits import Limits
from overnight.monotonic import monotonic
from overnight.store.pool import Store
from overnight.worker import grants
from tests.scripted_upstream import Asked, Gate, Say, Turnstile, Upstream, echo, failure, serving
from tests.worker.rig import add_batch, names, request, results, rigged, value
from tests.worker.test_grants import capped, rounds, set_cap, until


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look at each other's wishes every few milliseconds."""
    monkeypatch.setattr(grants, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(grants, "HUNGRY_EVERY", 0.02)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """It serves two models."""
    async with serving() as upstream:
        upstream.models = Say(
            body=b'{"object":"list","data":[{"id":"m","object":"model"},{"id":"n","object":"model"}]}'
        )
        yield upstream


async def add_lost(
    store: Store, requests: Sequence[bytes], *, times: int = 3, lost: Sequence[int] = (0,), model: str = "m"
) -> int:
    """A batch of which some lines were in flight when so many workers died."""
    batch = await add_batch(store, requests, model=model)
    async with store.session() as session:
        await session.connection.execute("UPDATE block SET leases = $2 WHERE batch = $1", batch, times)
        await session.connection.execute(
            "INSERT INTO attempt (batch, worker, no, blocks, lines)"
            " SELECT $1::bigint, n, 1, '{0}'::int[], $3::int[] FROM generate_series(1, $2) n",
            batch, times, list(lost),
        )  # fmt: skip
    return batch


async def written(store: Store, batch: int, *, times: int = 0) -> list[int]:
    """The lines of a batch that have no answer and were written down, more than so many times."""
    lines: list[int] = await value(
        store,
        "SELECT coalesce(array_agg(l ORDER BY l), '{}') FROM ("
        " SELECT l FROM attempt a, unnest(a.lines) l WHERE a.batch = $1"
        " AND NOT EXISTS (SELECT FROM answer WHERE answer.batch = a.batch AND line = l)"
        " GROUP BY l HAVING count(*) > $2) AS written (l)",
        batch,
        times,
    )
    return lines


class Slow:
    """A script: some names wait for their turnstile, all others are answered at once."""

    def __init__(self, *slow: str) -> None:
        self.names = slow
        self.turnstile = Turnstile()

    async def __call__(self, asked: Asked) -> Say:
        return await (self.turnstile(asked) if asked.name in self.names else echo(asked))


async def test_a_pause_holds_for_a_request_that_waits_to_run_alone(store: Store, upstream: Upstream) -> None:
    upstream.script = slow = Slow("other")
    limits = capped(4)
    async with rigged(store, upstream, limits=limits) as rig:
        await add_batch(store, [request("other", "n")], model="n")
        await rig.until(lambda: upstream.in_flight == 1)
        batch = await add_lost(store, [request("alone")])
        await rounds(rig)
        set_cap(limits, 0)
        slow.turnstile.let_pass(1)
        await rig.until(lambda: rig.worker.running == 0)
        await rounds(rig)
        assert upstream.arrivals.keys() == {"other"}
        assert await written(store, batch, times=3) == []
        set_cap(limits, 1)
        await rig.finish()
    assert (await results(store, batch)).keys() == {"alone"}


async def test_a_cap_holds_where_others_took_the_slot_of_a_request_that_waits_to_run_alone(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "TURN_SECONDS", 1)
    gates = {"alone": Gate(), "other": Gate(), "theirs": Gate()}
    running: set[str] = set()

    async def script(asked: Asked) -> Say:
        running.add(asked.name)
        try:
            return await gates[asked.name](asked)
        finally:
            running.discard(asked.name)

    upstream.script = script
    others = await add_batch(store, [request("other", "n")], model="n")
    async with rigged(store, upstream, limits=capped(1)) as a:
        await until(lambda: running == {"other"}, a)
        mine = await add_lost(store, [request("alone")])
        await rounds(a)
        theirs = await add_batch(store, [request("theirs")])
        async with rigged(store, upstream, limits=capped(1), only=theirs) as b:
            await until(lambda: running == {"other", "theirs"}, b, a)
            gates["other"].open()
            await until(lambda: running == {"theirs"}, b, a)
            await rounds(a, b)
            assert running == {"theirs"}
            gates["theirs"].open()
            gates["alone"].open()
            await until(lambda: a.worker.is_idle and b.worker.is_idle, a, b)
    for batch, name in ((mine, "alone"), (others, "other"), (theirs, "theirs")):
        assert (await results(store, batch)).keys() == {name}


async def test_nobody_waits_for_a_request_of_a_model_that_is_queued(store: Store, upstream: Upstream) -> None:
    slow = Slow("r", "s0", "s1")

    async def script(asked: Asked) -> Say:
        came = await slow(asked)
        return Say(503, failure("model_queued"), {"Retry-After": "900"}) if asked.name == "r" else came

    upstream.script = script
    async with rigged(store, upstream, slots=4) as rig:
        await add_batch(store, [request("r")])
        other = await add_batch(store, [request(f"s{i}", "n") for i in range(50)], model="n")
        # Should anybody wait for it, then for longer than this test.
        rig.worker._held.turns = replace(rig.worker._held.turns, wait=3_600.0)
        await rig.until(lambda: upstream.in_flight == 3)
        await add_lost(store, [request("alone")])
        await rounds(rig)
        slow.turnstile.let_pass(3)
        await rig.until(lambda: len(upstream.asked) == 51 and rig.worker.unstored == 0)
    assert (await results(store, other)).keys() == {f"s{i}" for i in range(50)}
    assert "alone" not in upstream.arrivals


async def test_a_request_that_is_to_run_alone_is_written_down_when_nothing_else_is_in_flight(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = slow = Slow("alone", *names(9))
    async with rigged(store, upstream, slots=4) as rig:
        others = await add_batch(store, [request(f"r{i}") for i in range(9)])
        await rig.until(lambda: upstream.in_flight == 4)
        assert len(await written(store, others)) > 4
        batch = await add_lost(store, [request("alone")])
        await rounds(rig)
        # A worker that dies by now takes with it what is in flight. This is not.
        assert await written(store, batch, times=3) == []
        slow.turnstile.let_pass(4)
        await rig.until(lambda: "alone" in upstream.arrivals)
        await rounds(rig, count=2)
        # Should it kill this worker, it alone is lost, and nothing that was only about to be sent.
        assert upstream.in_flight == 1
        assert await written(store, batch, times=3) == [0]
        assert await written(store, others) == []
        slow.turnstile.let_pass(20)
        await rig.finish()
    assert (await results(store, batch))["alone"]["error"] is None
    assert (await results(store, others)).keys() == names(9)


async def test_others_go_on_where_what_runs_takes_long_and_it_has_its_turn_in_the_end(
    store: Store, upstream: Upstream
) -> None:
    upstream.script = slow = Slow("long", *names(100))
    limits = Limits(request_seconds=10.0)
    async with rigged(store, upstream, slots=3, limits=limits) as rig:
        held = rig.worker._held
        others = await add_batch(store, [request("long"), *(request(f"r{i}") for i in range(100))])
        await rig.until(lambda: upstream.in_flight == 3)
        batch = await add_lost(store, [request("alone")])
        await rig.until(lambda: held.alone is not None)
        slow.turnstile.let_pass(1)
        await rig.until(lambda: held.running == 2)
        await rounds(rig)
        assert len(upstream.asked) == 3
        held.turns = replace(held.turns, since=monotonic() - alone.FIRST_WAIT)
        await rig.until(lambda: held.running == 3)
        slow.turnstile.let_pass(20)
        await rig.until(lambda: len(upstream.asked) >= 20)
        assert "alone" not in upstream.arrivals
        held.turns = replace(held.turns, others_until=0.0)
        await rig.until(lambda: held.alone is not None)
        slow.turnstile.let_pass(200)
        await rig.finish()
    assert upstream.beside["alone"] == 0
    assert (await results(store, batch)).keys() == {"alone"}
    assert (await results(store, others)).keys() == {"long", *names(100)}
