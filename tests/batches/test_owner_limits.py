"""What one owner may have unfinished is exact, whoever calls at once; the local account has no such limits."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from overnight.batches import create as creating
from overnight.batches import idempotency
from overnight.batches.cancel import cancel
from overnight.batches.idempotency import Key
from overnight.batches.request import NewBatch
from overnight.batches.retry import retry
from overnight.batches.shape import BatchView
from overnight.domain.errors import (
    CapacityExceeded,
    DuplicateBatch,
    InvalidParameter,
    TooManyBatches,
    TooManyQueued,
    TooManyRequests,
)
from overnight.domain.limits import Limits
from overnight.domain.states import Status
from overnight.store import batches
from overnight.upkeep.validate import Validate
from tests.batches.factory import CHAT, Factory, hours, line, lines

Create = Callable[[Factory, int, int], Awaitable[BatchView]]


async def of_file(make: Factory, owner: int, count: int) -> BatchView:
    file = await make.file(lines(count), owner=owner)
    return await creating.create(make.store, make.limits, owner, NewBatch(file.public_id, CHAT))


async def direct(make: Factory, owner: int, count: int, key: Key | None = None) -> BatchView:
    requests = [msgspec.Raw(line(f"r{i}")) for i in range(count)]
    return await creating.create(make.store, make.limits, owner, NewBatch(None, None, requests=requests), key)


BOTH = pytest.mark.parametrize("create", [of_file, direct], ids=["file", "direct"])


def limited(make: Factory, **given: Any) -> None:
    make.limits = dataclasses.replace(make.limits, **given)


async def behind_an_open_create(make: Factory, owner: int, total: int, late: Awaitable[Any], *, kept: bool) -> Any:
    """What a create comes to that began while another one, of `total` requests, was in the middle."""
    early = await make.store.connect("early")
    transaction = early.connection.transaction()
    await transaction.start()
    await batches.serialise_creates(early)
    await early.connection.execute(
        "INSERT INTO batch (no, id, owner, target, endpoint, source, status, completion_window, retention, total)"
        " VALUES (next_batch_no(now()), gen_random_uuid(), $1, 'chat', $2, 'direct', 'validating', '1h', '1 day', $3)",
        *(owner, CHAT, total),
    )
    task = asyncio.ensure_future(late)
    await make.lock_wait()
    await (transaction.commit() if kept else transaction.rollback())
    await early.connection.close()
    return (await asyncio.gather(task, return_exceptions=True))[0]


@BOTH
async def test_with_nine_unfinished_batches_one_of_two_creates_gets_in(make: Factory, create: Create) -> None:
    owner = await make.stranger()
    for _ in range(9):
        await create(make, owner, 1)
    came = await asyncio.gather(*(create(make, owner, 1) for _ in range(2)), return_exceptions=True)
    assert sum(isinstance(one, BatchView) for one in came) == 1
    refused = next(one for one in came if isinstance(one, TooManyBatches))
    assert "10 unfinished batches of 10" in refused.message
    assert await make.value("SELECT count(*) FROM batch WHERE owner = $1", owner) == 10


@BOTH
@pytest.mark.parametrize("kept", [True, False])
async def test_a_create_counts_the_one_before_it_if_that_is_kept(make: Factory, create: Create, kept: bool) -> None:
    limited(make, batches_per_owner=1)
    owner = await make.stranger()
    came = await behind_an_open_create(make, owner, 1, create(make, owner, 1), kept=kept)
    assert isinstance(came, TooManyBatches if kept else BatchView)


@BOTH
@pytest.mark.parametrize("kept", [True, False])
async def test_unfinished_requests_of_the_create_before_count_if_it_is_kept(
    make: Factory, create: Create, kept: bool
) -> None:
    limited(make, requests_per_owner=10)
    owner = await make.stranger()
    came = await behind_an_open_create(make, owner, 6, create(make, owner, 5), kept=kept)
    if kept:
        assert isinstance(came, TooManyQueued)
        assert "6 unfinished requests of 10" in came.message
        assert await create(make, owner, 4)
    else:
        assert isinstance(came, BatchView)


@BOTH
@pytest.mark.parametrize("kept", [True, False])
async def test_the_queue_counts_the_create_before_if_that_is_kept(make: Factory, create: Create, kept: bool) -> None:
    limited(make, intake=10)
    came = await behind_an_open_create(make, make.owner, 6, create(make, make.owner, 5), kept=kept)
    assert isinstance(came, CapacityExceeded if kept else BatchView)


@BOTH
@pytest.mark.parametrize(("before", "kept", "gets_in"), [(181, True, False), (181, False, True), (180, True, True)])
async def test_above_nine_tenths_of_the_queue_the_rule_for_small_batches_is_exact(
    make: Factory, create: Create, before: int, kept: bool, gets_in: bool
) -> None:
    limited(make, intake=200)
    came = await behind_an_open_create(make, make.owner, before, create(make, make.owner, 3), kept=kept)
    assert isinstance(came, BatchView if gets_in else CapacityExceeded)


async def test_many_creates_at_once_never_take_more_requests_than_an_owner_may_have(make: Factory) -> None:
    limited(make, requests_per_owner=20)
    owner = await make.stranger()
    both = [of_file, direct] * 4
    came = await asyncio.gather(*(create(make, owner, 6) for create in both), return_exceptions=True)
    assert sum(isinstance(one, BatchView) for one in came) == 3
    assert await make.value("SELECT sum(total) FROM batch") == 18


async def test_batches_that_ended_and_requests_that_are_answered_or_cancelled_count_no_more(make: Factory) -> None:
    limited(make, batches_per_owner=2, requests_per_owner=10)
    owner = await make.stranger()
    first = await make.running(lines(8), owner=owner)
    with pytest.raises(TooManyQueued):
        await direct(make, owner, 3)
    blocks = await make.lease(first)
    await make.answer(first, blocks[0].lines[:1])
    second = await direct(make, owner, 3)
    with pytest.raises(TooManyBatches):
        await direct(make, owner, 1)
    await cancel(make.store, owner, second.public_id)
    await make.sealed(second)
    assert await direct(make, owner, 3)


async def test_another_owners_batches_do_not_count(make: Factory) -> None:
    limited(make, batches_per_owner=1, requests_per_owner=3)
    await make.batch(lines(3))
    assert await direct(make, await make.stranger(), 3)


async def test_the_local_account_has_none_of_these_limits(make: Factory) -> None:
    limited(make, batches_per_owner=1, requests_per_owner=1, batch_requests=1, intake=30)
    for create in (of_file, direct, of_file):
        assert await create(make, make.owner, 5)
    checked = await make.running(lines(5))
    assert checked.status is Status.IN_PROGRESS


async def test_a_batch_of_another_owner_holds_no_more_requests_than_one_batch_may(make: Factory) -> None:
    limited(make, batch_requests=4)
    owner = await make.stranger()
    with pytest.raises(TooManyRequests, match=r"5 requests; a batch may hold 4"):
        await direct(make, owner, 5)
    assert await direct(make, owner, 4)
    refused = await make.running(lines(5), owner=owner)
    assert refused.status is Status.FAILED
    assert refused.error is not None
    assert refused.error[0] == "too_many_requests"
    assert (await make.running(lines(4), owner=owner)).status is Status.IN_PROGRESS


async def test_an_unknown_problem_is_told_before_a_limit(make: Factory) -> None:
    """The order of checks: the body first, then whether the file has a batch, then limits."""
    limited(make, batches_per_owner=1)
    owner = await make.stranger()
    file = await make.file(lines(1), owner=owner)
    new = NewBatch(file.public_id, CHAT)
    await creating.create(make.store, make.limits, owner, new)
    with pytest.raises(DuplicateBatch):
        await creating.create(make.store, make.limits, owner, new)
    with pytest.raises(InvalidParameter):
        await creating.create(make.store, make.limits, owner, dataclasses.replace(new, completion_window="none"))


async def test_a_refusal_does_not_use_up_the_key_of_the_call(make: Factory) -> None:
    limited(make, batches_per_owner=1)
    owner = await make.stranger()
    first = await direct(make, owner, 1)
    key = Key("k", await idempotency.fingerprint(b"{}"), 2)
    with pytest.raises(TooManyBatches):
        await direct(make, owner, 1, key)
    assert await make.value("SELECT count(*) FROM idempotency") == 0
    await cancel(make.store, owner, first.public_id)
    await make.sealed(first)
    made = await direct(make, owner, 1, key)
    assert (await direct(make, owner, 1, key)).id == made.id


async def test_a_retry_is_a_create_like_any_other(make: Factory) -> None:
    owner = await make.stranger()
    ended = await make.running(lines(2), owner=owner)
    await cancel(make.store, owner, ended.public_id)
    await make.sealed(ended)
    limited(make, requests_per_owner=1)
    with pytest.raises(TooManyQueued):
        await retry(make.store, make.limits, owner, ended.public_id)
    assert (
        await make.value("SELECT count(*) FROM file WHERE state = 'ready' AND purpose = 'batch' AND owner = $1", owner)
        == 1
    )


# -- settings, and batches that were made before they changed ----------------------------------------------------


async def test_a_batch_keeps_what_it_was_created_with(make: Factory) -> None:
    owner = await make.stranger()
    batch = await make.batch(lines(5), owner=owner)
    make.limits = Limits(batch_requests=1, line_bytes=10, window=hours(1), retention=hours(24))
    while await Validate(make.deps).round():
        pass
    seen = await make.look(batch)
    assert (seen.status, seen.moments.expires_at, seen.completion_window) == (
        Status.IN_PROGRESS,
        batch.moments.expires_at,
        "24h",
    )
    asked = "SELECT (retention, most_requests, line_bytes, results_bytes) FROM batch WHERE no = $1"
    old = Limits()
    promised = (old.retention, old.batch_requests, old.line_bytes, old.results_bytes)
    assert tuple(await make.value(asked, batch.no)) == promised


async def test_a_longer_line_than_was_allowed_at_the_create_refuses_the_batch(make: Factory) -> None:
    file = await make.file(lines(1))
    limited(make, line_bytes=10)
    batch = await creating.create(make.store, make.limits, make.owner, NewBatch(file.public_id, CHAT))
    make.limits = Limits()
    while await Validate(make.deps).round():
        pass
    error = (await make.look(batch)).error
    assert error is not None
    assert error[0] == "line_too_long"


async def test_where_windows_are_lifted_a_batch_has_no_end(make: Factory) -> None:
    limited(make, window=None)
    file = await make.file(lines(1))
    new = NewBatch(file.public_id, CHAT, "24h")
    batch = await creating.create(make.store, make.limits, make.owner, new)
    assert (batch.completion_window, batch.moments.expires_at) == ("24h", None)
    direct_one = await direct(make, make.owner, 1)
    assert (direct_one.completion_window, direct_one.moments.expires_at) == ("none", None)
    asked = [msgspec.Raw(line("a"))]
    new = NewBatch(None, None, "48h", requests=asked)
    bounded = await creating.create(make.store, make.limits, make.owner, new)
    assert bounded.moments.expires_at is not None
    assert bounded.moments.expires_at - bounded.moments.created_at == hours(48)


async def test_a_retry_gets_the_usual_window_where_the_old_one_may_not_be_had_any_more(make: Factory) -> None:
    limited(make, window=None)
    ended = await direct(make, make.owner, 1)
    await cancel(make.store, make.owner, ended.public_id)
    await make.sealed(ended)
    make.limits = Limits(window=hours(12))
    again = await retry(make.store, make.limits, make.owner, ended.public_id)
    assert again.completion_window == "12h"


async def test_a_file_may_have_several_unfinished_batches_where_the_operator_allows_it(make: Factory) -> None:
    limited(make, one_batch_per_file=False)
    file = await make.file(lines(2))
    new = NewBatch(file.public_id, CHAT)
    made = [await creating.create(make.store, make.limits, make.owner, new) for _ in range(2)]
    while await Validate(make.deps).round():
        pass
    assert [(await make.look(batch)).status for batch in made] == [Status.IN_PROGRESS] * 2
    make.limits = Limits()
    with pytest.raises(DuplicateBatch):
        await creating.create(make.store, make.limits, make.owner, new)
