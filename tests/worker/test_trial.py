"""A server that failed too often is tried again with a request that may well succeed."""

from __future__ import annotations

from time import monotonic

from overnight.store.pool import Store
from tests.scripted_upstream import Asked, Say, Upstream, echo, failure
from tests.worker.rig import add_batch, request, rigged
from tests.worker.routes import Switch


class OnTrial(Switch):
    """Takes one request at a time, as a probe."""

    is_local = False
    on_trial = False

    @property
    def is_on_trial(self) -> bool:
        return self.on_trial


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
