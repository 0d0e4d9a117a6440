"""A batch is what the types of the official SDK say it is, whatever has become of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from openai.types import Batch

from overnight.batches.cancel import cancel
from overnight.batches.pause import pause
from overnight.batches.shape import BatchView, as_json
from overnight.domain.states import Status
from overnight.store.answers import ERROR
from overnight.upkeep.expire import Expire
from tests.batches.factory import Factory, lines
from tests.sdk_types import strictly


async def validating(make: Factory) -> BatchView:
    return await make.batch(metadata={"a": "b"}, completion_window="1h")


async def in_progress(make: Factory) -> BatchView:
    batch = await make.running(lines(300), defaults={"temperature": 0.5}, output_expires_after=3_600)
    blocks = await make.lease(batch, most=1)
    await make.answer(batch, blocks[0].lines[:2])
    return await make.look(batch)


async def finalizing(make: Factory) -> BatchView:
    batch = await in_progress(make)
    await make.run("UPDATE batch SET status = 'finalizing', finalizing_at = now() WHERE no = $1", batch.no)
    return await make.look(batch)


async def completed(make: Factory) -> BatchView:
    batch = await make.running(lines(2))
    blocks = await make.lease(batch)
    await make.answer(batch, [0])
    await make.answer(batch, [1], kind=ERROR)
    await make.let_go(blocks, done=True)
    return await make.sealed(batch)


async def failed(make: Factory) -> BatchView:
    return await make.running(b'not json\n{"custom_id":"a"}\n')


async def expired(make: Factory) -> BatchView:
    batch = await make.running(lines(3))
    blocks = await make.lease(batch)
    await make.answer(batch, [0])
    await make.let_go(blocks)
    await make.close_window(batch)
    await Expire(make.deps).round()
    return await make.sealed(batch)


async def cancelling(make: Factory) -> BatchView:
    return await cancel(make.store, make.owner, (await in_progress(make)).public_id)


async def cancelled(make: Factory) -> BatchView:
    batch = await make.running(lines(3))
    await cancel(make.store, make.owner, batch.public_id)
    return await make.sealed(batch)


async def paused(make: Factory) -> BatchView:
    return await pause(make.store, make.owner, (await in_progress(make)).public_id)


@pytest.mark.parametrize(
    ("reach", "status"),
    [
        (validating, "validating"),
        (in_progress, "in_progress"),
        (paused, "in_progress"),
        (finalizing, "finalizing"),
        (completed, "completed"),
        (failed, "failed"),
        (expired, "expired"),
        (cancelling, "cancelling"),
        (cancelled, "cancelled"),
    ],
)
async def test_a_batch_in_any_state_is_the_sdks_batch(
    make: Factory, reach: Callable[[Factory], Awaitable[BatchView]], status: str
) -> None:
    text = msgspec.json.encode(as_json(await reach(make)))

    batch = strictly(Batch, text)

    assert batch.status == status
    assert batch.metadata is not None
    assert batch.request_counts is not None
    assert batch.usage is not None
    absent = {name: value for name, value in msgspec.json.decode(text).items() if value in ("", 0)}
    assert absent.keys() <= {"cost_usd", "cost_unknown_attempts"}
    ends = {moment: getattr(batch, f"{moment}_at") for moment in ("completed", "failed", "expired", "cancelled")}
    assert {moment for moment, at in ends.items() if at is not None} == {status} & ends.keys()


def test_every_state_is_one_that_the_sdk_knows() -> None:
    known = Batch.model_fields["status"].annotation
    assert set(Status) == set(known.__args__)  # type: ignore[union-attr]
