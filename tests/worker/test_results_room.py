"""A batch stores as many bytes of responses as it was promised, and its requests run no more when there is no room."""

from __future__ import annotations

from overnight.domain.limits import Limits
from overnight.store.pool import Store
from tests.scripted_upstream import Upstream
from tests.worker.rig import add_batch, names, request, results, rigged, value

ONE = Limits(slots=1, request_seconds=10)
"""One request after the other."""


async def size_of_one(store: Store, upstream: Upstream) -> int:
    """The bytes of the result line of a request with a name of two characters."""
    batch = await add_batch(store, [request("r0")])
    async with rigged(store, upstream) as rig:
        await rig.finish()
    upstream.asked.clear()
    size: int = await value(store, "SELECT output_bytes FROM batch WHERE no = $1", batch)
    return size


async def with_room(store: Store, count: int, results_bytes: int | None) -> int:
    batch = await add_batch(store, [request(f"r{i}") for i in range(count)], of_each=2)
    await value(store, "UPDATE batch SET results_bytes = $2 WHERE no = $1", batch, results_bytes)
    return batch


async def test_the_first_response_that_does_not_fit_is_dropped_and_nothing_runs_after_it(
    store: Store, upstream: Upstream
) -> None:
    size = await size_of_one(store, upstream)
    batch = await with_room(store, 9, 4 * size - 1)
    async with rigged(store, upstream, limits=ONE, slots=1) as rig:
        await rig.finish()
    found = await results(store, batch)
    assert found.keys() == names(9)
    assert len(upstream.asked) == 4
    failed = [one["error"] for one in found.values() if one["error"]]
    assert {one["code"] for one in failed} == {"result_too_large"}
    assert sorted(one["status"] for one in failed if "status" in one) == [200]
    assert sum("was not run" in one["message"] for one in failed) == 5
    assert await value(store, "SELECT output_bytes FROM batch WHERE no = $1", batch) == 3 * size
    tokens = "SELECT count(*) FROM answer WHERE batch = $1 AND input_tokens > 0"
    assert await value(store, tokens, batch) == 4
    assert await value(store, "SELECT sum(cardinality(lines)) FROM attempt WHERE batch = $1", batch) == 4
    assert await value(store, "SELECT sum(tries) FROM answer WHERE batch = $1", batch) == 4


async def test_responses_that_fill_the_room_to_the_byte_are_all_kept(store: Store, upstream: Upstream) -> None:
    size = await size_of_one(store, upstream)
    batch = await with_room(store, 3, 3 * size)
    async with rigged(store, upstream) as rig:
        await rig.finish()
    assert all(one["error"] is None for one in (await results(store, batch)).values())


async def test_what_was_stored_before_a_restart_counts(store: Store, upstream: Upstream) -> None:
    size = await size_of_one(store, upstream)
    batch = await with_room(store, 2, 2 * size)
    await value(store, "UPDATE batch SET output_bytes = $2 WHERE no = $1", batch, 2 * size)
    async with rigged(store, upstream, limits=ONE, slots=1) as rig:
        await rig.until(lambda: rig.worker.is_idle and bool(rig.committed))
    assert upstream.asked == []
    codes = "SELECT array_agg(DISTINCT code) FROM answer WHERE batch = $1"
    assert await value(store, codes, batch) == ["result_too_large"]


async def test_a_batch_without_a_limit_stores_whatever_comes(store: Store, upstream: Upstream) -> None:
    batch = await with_room(store, 9, None)
    async with rigged(store, upstream) as rig:
        await rig.finish()
    assert all(one["error"] is None for one in (await results(store, batch)).values())
