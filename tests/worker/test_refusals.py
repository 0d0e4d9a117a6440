"""A server that takes only so many requests at once is found out without many refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from overnight.domain.concurrency import rule
from overnight.store.pool import Store
from tests.scripted_upstream import Asked, Gate, Say, Upstream, echo, failure, serving
from tests.worker.rig import Rig, add_batch, names, request, rigged

TAKES = 20
MANY = 120


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with serving() as upstream:
        yield upstream


@pytest.fixture
async def rig(store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr("overnight.catalog.found_room.PERIOD", 0.02)
    async with rigged(store, upstream, slots=32) as rig:
        yield rig


class Refusing:
    """Refuses what comes while enough is in flight; the rest waits until the gate is opened.

    The first refusals are said `together`, when there are so many, however long a slow machine takes to send them.
    """

    def __init__(self, upstream: Upstream, status: int, takes: int = TAKES, together: int = 1) -> None:
        self._upstream = upstream
        self._status = status
        self._takes = takes
        self._together = together
        self._all_there = asyncio.Event()
        self.gate = Gate()
        self.taken = 0
        self.refused = 0

    async def __call__(self, asked: Asked) -> Say:
        if self._upstream.in_flight > self._takes:
            return await self._refuse()
        self.taken += 1
        return await self.gate(asked)

    async def _refuse(self) -> Say:
        self.refused += 1
        if self.refused >= self._together:
            self._all_there.set()
        await self._all_there.wait()
        return Say(self._status, failure("too_many"))


async def rounds(rig: Rig, count: int) -> None:
    """Let the worker go on for a while."""
    for _ in range(count):
        await rig.worker.round()
        await rig.worker.bell.wait(0.02)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refused_slot_is_not_filled_again(store: Store, upstream: Upstream, rig: Rig, status: int) -> None:
    script = upstream.script = Refusing(upstream, status, together=32 - TAKES)
    await add_batch(store, [request(name) for name in sorted(names(MANY))])
    await rig.until(lambda: script.refused > 0 and script.taken >= TAKES)
    await rounds(rig, 15)
    # The ramp goes to 32; nothing was sent in place of the twelve that were too many, but for two that came alone.
    assert script.taken == TAKES
    assert script.refused <= 14

    script.gate.open()
    # All but those that wait for their next try.
    await rig.until(lambda: len(upstream.arrivals) == MANY)
    assert script.refused <= 16
    assert upstream.most_in_flight <= 32


async def test_a_server_that_refuses_everything_is_left_alone(
    store: Store, upstream: Upstream, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For longer than a slow machine takes for the rounds, in which it may be tried again else.
    monkeypatch.setattr(rule, "FIRST_PAUSE", rule.LONGEST_PAUSE)
    script = upstream.script = Refusing(upstream, 429, takes=0, together=8)
    await add_batch(store, [request(name) for name in sorted(names(MANY))])
    await rig.until(lambda: script.refused >= 8)
    await rounds(rig, 15)
    # The first eight, one that tries it, and two or three in place of refusals that came alone on a slow machine.
    assert script.refused <= 12


async def test_refusals_that_end_are_forgotten(store: Store, upstream: Upstream, rig: Rig, short_waits: None) -> None:
    script = Refusing(upstream, 429, takes=0)
    upstream.script = script
    await add_batch(store, [request(name) for name in sorted(names(MANY))])
    await rig.until(lambda: script.refused >= 8)
    upstream.script = echo
    await rig.finish()
    assert len(upstream.arrivals) == MANY
