"""The whole of a worker, on a real database and a real server."""

from __future__ import annotations

from overnight.store.pool import Store
from tests.worker.rig import Rig, add_batch, add_owner, request, results, rigged, value, values
from tests.worker.upstream import Upstream


async def test_every_request_gets_exactly_one_answer(rig: Rig) -> None:
    batch = await add_batch(rig.store, [request(f"r{i}") for i in range(500)])
    await rig.finish()
    found = await results(rig.store, batch)
    assert found.keys() == {f"r{i}" for i in range(500)}
    assert all(
        line["response"]["body"]["choices"][0]["message"]["content"] == f"hello {name}" for name, line in found.items()
    )
    assert max(rig.upstream.arrivals.values()) == 1
