"""A request that kills whoever runs it takes nothing with it that was in flight beside it."""

from __future__ import annotations

import pytest

from overnight.store.pool import Store
from tests.scripted_upstream import Asked, Gate, Say, Upstream, echo
from tests.worker.rig import add_batch, names, request, results, rigged
from tests.worker.test_takeover import kill


@pytest.mark.parametrize("poison", ["r0", "r3", "r5"])
async def test_what_was_in_flight_beside_the_poison_is_answered(store: Store, upstream: Upstream, poison: str) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(6)])
    gate = Gate()
    upstream.script = gate
    for death in range(3):
        async with rigged(store, upstream) as rig:
            await rig.until(lambda: len(upstream.asked) == 6 * (death + 1))  # noqa: B023 - called in this turn only
            await kill(rig)

    async def script(asked: Asked) -> Say:
        return await (gate(asked) if asked.name == poison else echo(asked))

    upstream.script = script
    async with rigged(store, upstream) as rig:
        await rig.until(lambda: upstream.arrivals[poison] == 4)
        await kill(rig)
    gate.open()
    async with rigged(store, upstream) as rig:
        await rig.finish()

    found = await results(store, batch)
    assert found.keys() == names(6)
    assert {name for name, line in found.items() if line["error"]} == {poison}
    assert upstream.arrivals[poison] == 4
