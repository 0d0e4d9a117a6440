"""A server that failed too often is tried again with a request that may well succeed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from overnight.catalog import circuit
from overnight.catalog.route import Route
from overnight.domain import backoff
from overnight.domain.limits import Limits
from overnight.monotonic import monotonic
from overnight.store.pool import Store
from tests.scripted_upstream import Asked, Gate, Say, Upstream, echo, failure
from tests.worker.rig import Rig, add_batch, add_owner, names, request, results, rigged
from tests.worker.routes import OnTrial
from tests.worker.turned_clock import pass_time


def route_of(rig: Rig) -> Route:
    return next(iter(rig.worker._routes))


async def quiet(rig: Rig) -> None:
    """Let the worker do all that there is to do now."""
    for _ in range(3):
        rig.worker.wake()
        while await rig.worker.round():
            pass


async def test_a_request_that_failed_before_is_no_probe_while_there_are_others(
    store: Store, upstream: Upstream
) -> None:
    bad_before_good = []

    async def script(asked: Asked) -> Say:
        if asked.name == "bad":
            return Say(500, failure("always"))
        bad_before_good.append(upstream.arrivals["bad"])
        return await echo(asked)

    upstream.script = script
    route = OnTrial(upstream.url, slots=1)
    route.up()
    await add_batch(store, [request("bad")])
    async with rigged(store, upstream, route=route) as rig:
        await rig.until(lambda: upstream.arrivals["bad"] == 1 and rig.worker.running == 0)
        await rig.worker.round()
        await add_batch(store, [request("good")])
        route.on_trial = True
        rig.worker._held.take_up_due(monotonic() + 60)

        rig.worker.wake()
        await rig.until(lambda: upstream.arrivals["good"] == 1)

    assert bad_before_good == [1]


@pytest.mark.parametrize(("cap", "is_others"), [(None, True), (4, True), (None, False)])
async def test_a_batch_that_comes_while_another_one_has_closed_a_server_that_answers_starts_at_once(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, cap: int | None, is_others: bool
) -> None:
    monkeypatch.setattr(backoff, "FIRST", timedelta(milliseconds=1))
    # So long that nothing in here is owed to its end.
    monkeypatch.setattr(circuit, "FIRST_PAUSE", 3600.0)
    sent = []

    async def script(asked: Asked) -> Say:
        sent.append(asked.name)
        return Say(500, failure("always")) if asked.name.startswith("bad") else await echo(asked)

    upstream.script = script
    await add_batch(store, [request(f"bad{i}") for i in range(40)])
    async with rigged(store, upstream, slots=4, clock=lambda: 0.0, limits=Limits(per_model=cap)) as rig:
        await rig.until(lambda: route_of(rig).is_on_trial and rig.worker.running == 0)
        await quiet(rig)
        failed = len(sent)
        owner = await add_owner(store, "other") if is_others else 1
        good = await add_batch(store, [request("good")], owner=owner)
        rig.worker.wake()
        await rig.worker.round()
        await rig.until(lambda: len(sent) > failed)
        assert sent[failed] == "good"
        await rig.until(lambda: not rig.worker.holds(good))
    assert (await results(store, good)).keys() == {"good"}


async def test_a_batch_that_failed_at_a_closed_server_waits_and_the_next_one_is_tried(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", timedelta(milliseconds=1))
    monkeypatch.setattr(circuit, "FIRST_PAUSE", 3600.0)
    sent = []

    async def script(asked: Asked) -> Say:
        sent.append(asked.name)
        return Say(500, failure("always"))

    upstream.script = script
    await add_batch(store, [request(f"bad{i}") for i in range(40)])
    async with rigged(store, upstream, slots=4, clock=lambda: 0.0) as rig:
        await rig.until(lambda: route_of(rig).is_on_trial and rig.worker.running == 0)
        await quiet(rig)
        for name in ("worse", "worst"):
            failed = len(sent)
            await add_batch(store, [request(f"{name}{i}") for i in range(3)])
            rig.worker.wake()
            await rig.until(lambda: len(sent) > failed and rig.worker.running == 0)  # noqa: B023
            await quiet(rig)
            assert [one[:-1] for one in sent[failed:]] == [name]


async def test_a_server_that_could_not_be_reached_is_left_alone_whoever_comes(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", timedelta(milliseconds=1))
    monkeypatch.setattr(circuit, "FIRST_PAUSE", 3600.0)

    async def script(asked: Asked) -> Say:
        return Say(raw=b"")

    upstream.script = script
    await add_batch(store, [request(f"r{i}") for i in range(40)])
    async with rigged(store, upstream, slots=4, clock=lambda: 0.0) as rig:
        await rig.until(lambda: route_of(rig).is_on_trial and rig.worker.running == 0)
        await quiet(rig)
        sent = len(upstream.asked)
        good = await add_batch(store, [request("good")])
        rig.worker.wake()
        await rig.until(lambda: rig.worker.holds(good))
        await quiet(rig)
        assert len(upstream.asked) == sent


async def test_a_batch_that_always_fails_does_not_close_a_server_to_others_that_may_do_well(
    store: Store, upstream: Upstream
) -> None:
    gate = Gate()

    async def script(asked: Asked) -> Say:
        return Say(500, failure("always")) if asked.name.startswith("bad") else await gate(asked)

    upstream.script = script
    good = await add_batch(store, [request(f"r{i}") for i in range(200)])
    limits = Limits(request_seconds=60.0, per_model=4)
    async with rigged(store, upstream, slots=64, limits=limits) as rig:
        await rig.until(lambda: upstream.in_flight == 4)
        bad = await add_batch(store, [request(f"bad{i}") for i in range(100)], owner=await add_owner(store, "other"))
        rig.worker.wake()
        await rig.until(lambda: rig.worker.holds(bad))
        object.__setattr__(limits, "per_model", 64)
        # They fail one after the other, beside requests of which nothing is known yet.
        await rig.until(lambda: sum(name.startswith("bad") for name in upstream.arrivals) >= 4 * circuit.FAILURES)
        assert not route_of(rig).is_on_trial
        gate.open()
        await rig.until(lambda: not rig.worker.holds(good))
    assert (await results(store, good)).keys() == names(200)


@pytest.mark.parametrize("queued", [0, 3])
async def test_a_probe_is_of_a_model_that_may_do_well_before_one_that_fails_or_waits_for_a_machine(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, queued: int
) -> None:
    monkeypatch.setattr(circuit, "FIRST_PAUSE", 1.0)
    sent = []

    async def script(asked: Asked) -> Say:
        sent.append(asked.name)
        if asked.name.startswith("queued"):
            return Say(503, failure("model_queued"), {"retry-after": "600"})
        return Say(500, failure("always")) if asked.name.startswith("bad") else await echo(asked)

    upstream.script = script
    upstream.models = Say(body=b'{"data":[{"id":"m"},{"id":"q"},{"id":"other"}]}')
    async with rigged(store, upstream, slots=4) as rig:
        if queued:
            await add_batch(store, [request(f"queued{i}", model="q") for i in range(queued)], model="q")
            rig.worker.wake()
            await rig.until(lambda: len(sent) == queued and rig.worker.running == 0)
        await add_batch(store, [request(f"bad{i}") for i in range(600)])
        rig.worker.wake()
        await rig.until(lambda: route_of(rig).is_on_trial and rig.worker.running == 0)
        good = await add_batch(store, [request("good", model="other")], model="other")
        rig.worker.wake()
        await rig.until(lambda: rig.worker.holds(good))
        failed = len(sent)
        await rig.until(lambda: len(sent) > failed)
        assert sent[failed] == "good"


async def test_while_a_server_is_left_alone_the_worker_rests(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", timedelta(milliseconds=1))

    async def script(asked: Asked) -> Say:
        return Say(500, failure("always"))

    upstream.script = script
    await add_batch(store, [request(f"bad{i}") for i in range(20)])
    async with rigged(store, upstream, slots=4) as rig:
        await rig.until(lambda: route_of(rig).is_on_trial and rig.worker.running == 0)
        while await rig.worker.round():
            pass
        await rig.until(lambda: not rig.worker._held.next_due())
        rings = rig.worker.bell.rings
        for _ in range(3):
            await rig.worker.round()
            assert rig.worker.bell.rings == rings


async def test_a_server_is_tried_again_while_requests_from_before_still_hang(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", timedelta(milliseconds=1))
    monkeypatch.setattr(circuit, "FIRST_PAUSE", 0.2)
    gate = Gate()
    is_back = False

    async def script(asked: Asked) -> Say:
        if asked.name.startswith("hangs"):
            return await gate(asked)
        return await echo(asked) if is_back else Say(502, failure("gone"))

    upstream.script = script
    await add_batch(store, [request(f"hangs{i}") for i in range(3)])
    async with rigged(store, upstream, slots=8, limits=Limits(request_seconds=60.0, per_model=8)) as rig:
        await rig.until(lambda: upstream.in_flight == 3)
        later = await add_batch(store, [request(f"r{i}") for i in range(40)])
        rig.worker.wake()
        await rig.until(lambda: route_of(rig).is_on_trial and rig.worker.running == 3)
        is_back = True
        await rig.until(lambda: not route_of(rig).is_on_trial)
        assert upstream.in_flight >= 3
        gate.open()
        await rig.finish()
    assert (await results(store, later)).keys() == names(40)


@pytest.mark.parametrize("interactive", [0, 2])
async def test_beside_what_hangs_one_request_at_a_time_is_a_probe(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, interactive: int
) -> None:
    gate = Gate()

    async def script(asked: Asked) -> Say:
        hangs = asked.name.startswith("hangs") or route_of(rig).is_on_trial
        return await gate(asked) if hangs else Say(502, failure("gone"))

    upstream.script = script
    await add_batch(store, [request(f"hangs{i}") for i in range(3)])
    # Its heartbeat is always fresh, whatever the clock of the circuit shows.
    async with rigged(store, upstream, slots=12, clock=lambda: 0.0) as rig:
        await rig.until(lambda: upstream.in_flight == 3)
        for _ in range(interactive):
            rig.routes.load.begin(route_of(rig), "m")
        await add_batch(store, [request(f"r{i}") for i in range(40)])
        rig.worker.wake()
        await rig.until(lambda: route_of(rig).is_on_trial and rig.worker.running == upstream.in_flight)
        hanging = rig.worker.running
        assert 3 <= hanging < 11
        pass_time(monkeypatch, circuit.FIRST_PAUSE)
        await rig.until(lambda: upstream.in_flight > hanging)
        for _ in range(5):
            rig.worker.wake()
            await rig.worker.round()
        assert rig.worker.running == hanging + 1
        gate.open()
