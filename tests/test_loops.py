"""Rounds: one helping after another, whatever happens in them."""

from __future__ import annotations

import asyncio

import pytest

from overnight.domain import events
from overnight.loops import Away, Bell, repeat, uncancel

FOR_EVER = 3600.0


async def ends(work: asyncio.Task[None]) -> None:
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_round_comes_again_at_once_while_it_finds_work_and_then_when_it_is_woken() -> None:
    found = [True, True, False, False]
    seen = 0
    idle = asyncio.Event()
    bell = Bell()

    async def one_round() -> bool:
        nonlocal seen
        seen += 1
        result = found.pop(0)
        if not result:
            idle.set()
        return result

    work = asyncio.create_task(repeat("test", one_round, every=FOR_EVER, bell=bell))
    await idle.wait()
    assert seen == 3

    idle.clear()
    bell.ring()
    await idle.wait()

    assert seen == 4
    await ends(work)


async def test_a_round_comes_by_itself_without_being_woken() -> None:
    twice = asyncio.Event()
    seen = 0

    async def one_round() -> bool:
        nonlocal seen
        seen += 1
        if seen == 2:
            twice.set()
        return False

    work = asyncio.create_task(repeat("test", one_round, every=0.001))
    await asyncio.wait_for(twice.wait(), 60)
    await ends(work)


async def test_an_error_in_a_round_is_told_and_does_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(events, "tell", lambda event, error, **facts: told.append((event, str(error), facts)))
    third = asyncio.Event()
    seen = 0

    async def one_round() -> bool:
        nonlocal seen
        seen += 1
        if seen < 3:
            raise ValueError(f"number {seen}")
        third.set()
        return False

    work = asyncio.create_task(repeat("fragile", one_round, every=0.001))
    await asyncio.wait_for(third.wait(), 60)

    assert [(event, error, facts["in_a_row"]) for event, error, facts in told] == [
        ("round_failed", "number 1", 1),
        ("round_failed", "number 2", 2),
    ]
    await ends(work)


async def test_what_is_away_is_no_fault_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(events, "tell", lambda event, *_, **__: told.append(event))
    errors = [Away("gone"), Away("gone"), ValueError("ours")]
    done = asyncio.Event()

    async def one_round() -> bool:
        if errors:
            raise errors.pop(0)
        done.set()
        return False

    work = asyncio.create_task(repeat("fragile", one_round, every=0.001))
    await asyncio.wait_for(done.wait(), 60)

    assert told == ["round_failed"]
    await ends(work)


async def test_how_long_it_waits_may_change_with_each_round() -> None:
    asked: list[int] = []
    rounds = 0
    third = asyncio.Event()

    async def one_round() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            third.set()
        return False

    def every() -> float:
        asked.append(rounds)
        return 0.001 if rounds < 3 else FOR_EVER

    work = asyncio.create_task(repeat("changing", one_round, every=every))
    await asyncio.wait_for(third.wait(), 60)
    for _ in range(5):
        await asyncio.sleep(0)

    assert asked == [1, 2, 3]
    await ends(work)


async def test_a_ring_before_anyone_waits_is_not_lost_and_wakes_the_others_too() -> None:
    inner = Bell()
    outer = Bell(inner)

    outer.ring()

    await asyncio.wait_for(outer.wait(FOR_EVER), 60)
    await asyncio.wait_for(inner.wait(FOR_EVER), 60)


async def test_of_several_who_wait_the_time_of_one_wakes_no_other() -> None:
    bell = Bell()
    patient = asyncio.create_task(bell.wait(FOR_EVER))
    await asyncio.sleep(0)

    await bell.wait(0.0)
    await asyncio.sleep(0)

    assert not patient.done()
    bell.ring()
    await asyncio.wait_for(patient, 60)


async def test_a_ring_during_a_round_is_heard_by_it_though_another_one_was_waiting() -> None:
    bell = Bell()
    asked: list[str] = []

    async def busy() -> bool:
        asked.append("busy")
        if len(asked) == 1:
            bell.ring()
        return False

    waiting = asyncio.create_task(bell.wait(FOR_EVER))
    await asyncio.sleep(0)
    work = asyncio.create_task(repeat("busy", busy, every=FOR_EVER, bell=bell))
    await asyncio.wait_for(waiting, 60)
    for _ in range(5):
        await asyncio.sleep(0)

    assert asked == ["busy", "busy"]
    await ends(work)


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancellation_is_heard_while_it_rings(turns: int) -> None:
    bell = Bell()
    rounds = 0

    async def idle() -> bool:
        nonlocal rounds
        rounds += 1
        return False

    running = asyncio.create_task(repeat("test", idle, every=60, bell=bell))
    while not rounds:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    bell.ring()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    for _ in range(10):
        await asyncio.sleep(0)

    assert running.cancelled()


async def test_a_task_that_was_cancelled_cleans_up_with_waits_of_its_own() -> None:
    done = []

    async def work() -> None:
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            uncancel()
            await Bell().wait(0.001)
            done.append("waited")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(FOR_EVER)
            done.append("timed out")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await ends(task)
    assert done == ["waited", "timed out"]
