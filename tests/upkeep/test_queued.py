"""The operator hears, once, that a model has waited long for a machine, and of the end of that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from overnight.domain import events
from overnight.domain.events import COUNTED
from overnight.store import grants
from overnight.upkeep.queued import WatchQueued
from tests.batches.factory import Factory


def told(fact: str) -> float:
    return float(COUNTED.labels(fact)._value.get())


async def hold(make: Factory, model: str) -> None:
    async with make.store.session() as session:
        await grants.hold(session, make.deps.life.no, {model: timedelta(minutes=15)})


async def pass_hours(make: Factory, hours: float) -> None:
    await make.run(
        "UPDATE model_state SET queued_since = queued_since - $1::interval, held_until = held_until - $1::interval",
        timedelta(hours=hours),
    )


async def test_a_long_wait_is_told_once_however_often_the_model_is_asked(
    make: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    events.set_up_logging("warning")
    await hold(make, "large-model")
    before, round_ = told("model_queued_long"), WatchQueued(make.deps).round
    await round_()
    assert told("model_queued_long") == before
    for _ in range(3):
        await pass_hours(make, 6.1)
        await hold(make, "large-model")
        await round_()
    assert told("model_queued_long") == before + 1
    said = capsys.readouterr()
    assert "large-model" in said.out + said.err


async def test_its_end_is_told_and_the_next_wait_is_a_new_one(make: Factory) -> None:
    round_ = WatchQueued(make.deps).round
    long, no_more = told("model_queued_long"), told("model_queued_no_more")
    await hold(make, "large-model")
    await pass_hours(make, 6.1)
    await hold(make, "large-model")
    await round_()
    await pass_hours(make, 0.5)
    await round_()
    await round_()
    assert (told("model_queued_long"), told("model_queued_no_more")) == (long + 1, no_more + 1)
    await hold(make, "large-model")
    await round_()
    assert told("model_queued_long") == long + 1


async def test_a_wait_of_a_minute_and_one_that_nobody_wants_to_hear_of_are_not_told(make: Factory) -> None:
    round_ = WatchQueued(make.deps).round
    before = told("model_queued_long"), told("model_queued_no_more")
    await hold(make, "large-model")
    await pass_hours(make, 0.5)
    await round_()
    make.deps.limits.queued_alert = None
    await hold(make, "large-model")
    await pass_hours(make, 100)
    await hold(make, "large-model")
    await round_()
    assert (told("model_queued_long"), told("model_queued_no_more")) == before
