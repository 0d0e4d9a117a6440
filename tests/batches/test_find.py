"""Batches are listed newest first, for their owner only, and searched."""

from __future__ import annotations

from typing import Any

import pytest

from overnight.batches import find
from overnight.batches.cancel import cancel
from overnight.batches.shape import BatchView
from overnight.domain.errors import BatchNotFound, InvalidParameter
from overnight.domain.states import Status
from tests.batches.factory import CHAT, Factory, line, lines


async def page(make: Factory, **given: Any) -> tuple[list[BatchView], bool]:
    return await find.page(make.store, make.owner, **{"limit": 20, "after": None, **given})


async def made(make: Factory, count: int, **given: Any) -> list[str]:
    """The ids of new batches, newest first."""
    return [(await make.batch(lines(1), **given)).public_id for _ in range(count)][::-1]


async def test_pages_go_on_where_the_last_one_ended(make: Factory) -> None:
    all_ids = await made(make, 5)
    seen: list[str] = []
    after, more = None, True
    while more:
        found, more = await page(make, limit=2, after=after)
        seen += [batch.public_id for batch in found]
        after = seen[-1]
    assert seen == all_ids


async def test_a_page_stays_the_same_while_new_batches_arrive(make: Factory) -> None:
    ids = await made(make, 3)
    await made(make, 2)
    found, more = await page(make, limit=5, after=ids[0])
    assert [batch.public_id for batch in found] == ids[1:]
    assert not more


async def test_there_is_more_only_where_another_page_has_rows(make: Factory) -> None:
    ids = await made(make, 2)
    assert (await page(make, limit=2))[1] is False
    assert (await page(make, limit=1))[1] is True
    assert await page(make, after=ids[-1]) == ([], False)


@pytest.mark.parametrize("limit", [0, -1, 101])
async def test_a_limit_out_of_its_range_is_refused(make: Factory, limit: int) -> None:
    with pytest.raises(InvalidParameter) as refused:
        await page(make, limit=limit)
    assert refused.value.param == "limit"


async def test_another_owners_batch_reads_like_an_unknown_one(make: Factory) -> None:
    foreign = await make.batch(owner=await make.stranger())
    unknown = "batch_" + "0" * 32
    for batch_id in (foreign.public_id, unknown, "batch_x", "", foreign.public_id.upper()):
        with pytest.raises(BatchNotFound):
            await find.get(make.store, make.owner, batch_id)
        with pytest.raises(BatchNotFound):
            await cancel(make.store, make.owner, batch_id)
        with pytest.raises(InvalidParameter) as refused:
            await page(make, after=batch_id)
        assert refused.value.param == "after"
    assert await page(make) == ([], False)
    assert (await make.look(foreign)).status is Status.VALIDATING


async def test_batches_are_kept_by_their_states(make: Factory) -> None:
    running = await make.running(lines(1))
    waiting = await make.batch(lines(1))
    done = await make.completed(lines(1))
    assert [b.id for b in (await page(make, status=["completed"]))[0]] == [done.id]
    both = (await page(make, status=["in_progress", "validating"]))[0]
    assert {b.id for b in both} == {running.id, waiting.id}
    assert len((await page(make, status=list(Status)))[0]) == 3


async def test_an_unknown_state_is_refused(make: Factory) -> None:
    with pytest.raises(InvalidParameter) as refused:
        await page(make, status=["running"])
    assert refused.value.param == "status"


async def test_a_search_finds_ids_by_their_beginning_and_metadata_by_any_part(make: Factory) -> None:
    one = await make.batch(lines(1), metadata={"project": "Nightly Eval", "team": "red"})
    two = await make.batch(lines(1), metadata={"project": "daily"})

    async def search(q: str) -> list[str]:
        return [batch.public_id for batch in (await page(make, q=q))[0]]

    assert await search(one.public_id) == [one.public_id]
    assert await search(two.id.hex) == [two.public_id]
    assert set(await search(one.public_id[:12])) == {one.public_id, two.public_id}
    assert await search("batch_") == await search("bat") == [two.public_id, one.public_id]
    assert await search("eval") == [one.public_id]
    assert await search("DAILY") == [two.public_id]
    assert await search("project") == []
    assert await search("%") == []
    assert await search("") == [two.public_id, one.public_id]


@pytest.mark.parametrize("q", ["x" * 513, "a\0b"])
async def test_a_search_that_cannot_be_made_is_refused(make: Factory, q: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        await page(make, q=q)
    assert refused.value.param == "q"


async def test_batches_are_kept_by_endpoint_and_by_model(make: Factory) -> None:
    chat = await make.running(lines(1))
    other = await make.running(lines(1, model="other"))
    embedding = await make.batch(line("a", url="/v1/embeddings", input="x"), endpoint="/v1/embeddings")

    async def kept(**given: Any) -> list[str]:
        return [batch.public_id for batch in (await page(make, **given))[0]]

    assert await kept(endpoint="/v1/embeddings") == [embedding.public_id]
    assert await kept(endpoint="/v1/chat/completions") == [other.public_id, chat.public_id]
    assert await kept(model="other") == [other.public_id]
    assert await kept(model="nick") == []
    assert await kept(model="other", endpoint="/v1/embeddings") == []


async def test_batches_are_kept_by_the_seconds_in_which_they_were_created(make: Factory) -> None:
    now = int(await make.value("SELECT extract(epoch FROM now())"))
    made_at = {}
    for ago in (172_800, 60, 59):
        batch = await make.batch(lines(1))
        await make.run(
            "UPDATE batch SET created_at = to_timestamp($2 + 0.999),"
            " no = days_since_1970(to_timestamp($2))::bigint << 32 | (no & 4294967295) WHERE no = $1",
            *(batch.no, float(now - ago)),
        )
        made_at[ago] = batch.public_id

    async def kept(**given: int) -> list[str]:
        return [batch.public_id for batch in (await page(make, **given))[0]]

    assert await kept(created_after=now - 61) == [made_at[59], made_at[60]]
    assert await kept(created_after=now - 60) == [made_at[59]]
    assert await kept(created_before=now - 59) == [made_at[60], made_at[172_800]]
    assert await kept(created_before=now - 60) == [made_at[172_800]]
    assert await kept(created_after=now - 172_801, created_before=now - 172_799) == [made_at[172_800]]
    assert await kept(created_after=now - 60, created_before=now - 60) == []


async def test_pages_of_what_is_wanted_are_full_and_say_rightly_whether_there_is_more(make: Factory) -> None:
    wanted = []
    for _ in range(4):
        wanted.append((await make.completed(lines(1), metadata={"name": "Nightly"})).public_id)
        await make.completed(lines(1), metadata={"name": "daily"})
        await make.running(lines(1), metadata={"name": "nightly"})
    given = {
        "status": ["completed", "failed"], "endpoint": CHAT, "model": "m", "q": "night", "created_after": 0,
        "created_before": 32_503_680_000, "limit": 2,
    }  # fmt: skip
    first, more = await page(make, **given)
    assert ([batch.public_id for batch in first], more) == (wanted[:1:-1], True)
    last, more = await page(make, **given, after=first[-1].public_id)
    assert ([batch.public_id for batch in last], more) == (wanted[1::-1], False)
    assert await page(make, **given, after=last[-1].public_id) == ([], False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "/v1/chat"), ("endpoint", ""), ("model", "x" * 513), ("model", "a\0b"), ("created_after", -1),
        ("created_after", 32_503_680_001), ("created_before", 32_503_680_001), ("created_before", -1),
    ],
)  # fmt: skip
async def test_a_filter_that_no_batch_could_pass_is_refused_by_its_name(make: Factory, name: str, value: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        await page(make, **{name: value})
    assert refused.value.param == name
