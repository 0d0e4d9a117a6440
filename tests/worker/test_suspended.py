"""Time for which the machine was suspended counts: others have counted on meanwhile."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

import overnight
from overnight.store.life import CUT_OFF_AFTER, MAY_START_WITHIN, Life
from overnight.store.pool import Store
from overnight.worker import worker
from tests.scripted_upstream import Asked, Gate, Say, Upstream, echo
from tests.worker.rig import add_batch, request, results, rigged
from tests.worker.turned_clock import pass_time


async def test_the_age_of_a_heartbeat_includes_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(store)
    await life.begin()
    assert (life.may_start(), life.is_cut_off()) == (True, False)
    pass_time(monkeypatch, CUT_OFF_AFTER)
    assert (life.may_start(), life.is_cut_off()) == (False, True)


async def test_a_window_that_closed_meanwhile_is_closed(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    upstream.script = gate
    await add_batch(store, [request(f"r{i}") for i in range(4)], window=timedelta(hours=1))
    # Its heartbeat is always fresh, so that the window alone keeps requests back.
    async with rigged(store, upstream, slots=1, clock=lambda: 0.0) as rig:
        await rig.until(lambda: upstream.in_flight == 1)
        pass_time(monkeypatch, 3_601)
        gate.open()
        await rig.until(lambda: rig.worker.is_idle)
    assert len(upstream.asked) == 1


async def test_a_try_that_came_due_meanwhile_is_made_at_once(
    store: Store, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(asked: Asked) -> Say:
        return await echo(asked) if asked.time > 1 else Say(500)

    upstream.script = script
    batch = await add_batch(store, [request("r0")])
    async with rigged(store, upstream, clock=lambda: 0.0) as rig:
        await rig.until(lambda: bool(rig.worker._held.next_due()))
        pass_time(monkeypatch, 10)
        await rig.finish()
    assert (await results(store, batch)).keys() == {"r0"}


def test_all_moments_that_a_worker_compares_are_of_one_clock() -> None:
    package = Path(overnight.__file__).parent
    modules = [path for room in ("worker", "catalog", "interactive") for path in (package / room).glob("*.py")]
    others = [
        path.name for path in modules if re.search(r"from time import .*monotonic|time\.monotonic", path.read_text())
    ]
    assert (len(modules) > 30, others) == (True, [])


def test_whoever_ran_nothing_at_its_last_look_is_looked_at_again_before_others_go_on_with_what_it_started() -> None:
    assert MAY_START_WITHIN + worker.IDLE_CUT_OFF_EVERY < CUT_OFF_AFTER
