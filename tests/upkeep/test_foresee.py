"""The operator hears, once while it is so, that a batch's window will close first."""

from __future__ import annotations

import dataclasses

import pytest

from overnight.batches.pause import pause, resume
from overnight.batches.shape import BatchView
from overnight.domain import events
from overnight.domain.events import COUNTED
from overnight.upkeep import foresee
from overnight.upkeep.foresee import Foresee
from tests.batches.factory import Factory, lines


def told() -> float:
    return float(COUNTED.labels("batch_late")._value.get())


async def started(make: Factory, count: int, hours: float, answered: int) -> BatchView:
    """A batch in a window of 24 hours that started so many hours ago."""
    batch = await make.running(lines(count))
    await make.run(
        "UPDATE batch SET in_progress_at = now() - $2 * interval '1 hour',"
        " expires_at = now() + (24 - $2) * interval '1 hour' WHERE no = $1",
        *(batch.no, hours),
    )
    blocks = await make.lease(batch)
    await make.answer(batch, range(answered))
    await make.let_go(blocks)
    return batch


async def test_a_batch_that_will_be_late_is_told_once_whoever_looks(
    make: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    events.set_up_logging("warning")
    late = await started(make, 10, 12, 4)
    before = told()
    await Foresee(make.deps).round()
    await Foresee(make.deps).round()
    assert told() == before + 1
    said = capsys.readouterr()
    assert late.public_id in said.out + said.err


async def test_one_that_was_in_time_again_is_told_a_second_time(make: Factory) -> None:
    batch = await started(make, 100, 12, 40)
    before = told()
    for answered, times in ((49, 1), (51, 1), (60, 1), (49, 2)):
        # Just in time (51) is not enough: the next look might say otherwise.
        await make.run("UPDATE batch SET completed = $2 WHERE no = $1", batch.no, answered)
        await Foresee(make.deps).round()
        assert told() == before + times


async def test_a_batch_in_time_is_not_told(make: Factory) -> None:
    await started(make, 10, 12, 6)
    before = told()
    await Foresee(make.deps).round()
    assert told() == before


async def test_a_paused_batch_and_one_that_ends_are_not_told(make: Factory) -> None:
    paused, ending = await started(make, 10, 12, 1), await started(make, 10, 12, 1)
    await make.run("UPDATE batch SET paused = $2 WHERE no = $1", paused.no, {"reason": "user"})
    await make.run("UPDATE batch SET ends_as = 'failed' WHERE no = $1", ending.no)
    before = told()
    await Foresee(make.deps).round()
    assert told() == before


async def test_time_that_a_batch_was_paused_does_not_make_it_late(make: Factory) -> None:
    batch = await started(make, 10, 12, 6)
    await pause(make.store, make.owner, batch.public_id)
    await make.run(
        "UPDATE batch SET in_progress_at = in_progress_at - '8 hours'::interval,"
        " paused_at = paused_at - '8 hours'::interval WHERE no = $1",
        batch.no,
    )
    await resume(make.store, make.owner, batch.public_id)
    before = told()
    await Foresee(make.deps).round()
    assert told() == before


async def test_all_batches_are_looked_at_some_at_a_time(make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foresee, "AT_ONCE", 2)
    for hours, answered in ((12, 6), (12, 6), (12, 1)):
        await started(make, 10, hours, answered)
    before = told()
    one = Foresee(make.deps)
    assert await one.round() is True
    assert told() == before
    assert await one.round() is False
    assert told() == before + 1


async def test_only_the_one_batch_is_told_where_one_is_named(make: Factory) -> None:
    batches = [await started(make, 10, 12, 1) for _ in range(2)]
    before = told()
    await Foresee(dataclasses.replace(make.deps, only=lambda: [batches[1].no])).round()
    assert told() == before + 1
    assert await make.value("SELECT told_late FROM batch WHERE no = $1", batches[0].no) is False
