"""Locks are taken in one order: worker, model (by name), batch (by number), block. So nobody waits in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from overnight.batches.cancel import cancel
from overnight.store import answers, batches, grants, leases
from overnight.store.grants import Ask
from overnight.store.life import Life, declare_dead
from overnight.store.life import give_back as give_back_batches
from overnight.store.pool import Session, Store
from overnight.store.statements import load
from overnight.upkeep.ingest import Ingest
from overnight.upkeep.seal import _Sealing
from tests.batches.factory import Factory, an_answer, lines, make_factory

ORDER = {
    "worker": ["SELECT FROM worker WHERE no = $1 FOR UPDATE"],
    "model": [
        "SELECT FROM model_state WHERE $1 = $1 ORDER BY model FOR UPDATE",
        "SELECT FROM model_grant WHERE worker = $1 ORDER BY model FOR UPDATE",
    ],
    "batch": ["SELECT FROM batch WHERE $1 = $1 ORDER BY no FOR UPDATE"],
    "block": ["SELECT FROM block WHERE $1 = $1 ORDER BY batch, seq FOR UPDATE"],
}


@dataclass
class Case:
    """A worker with a grant, a leased block, a batch that it checks and one that it seals."""

    make: Factory
    life: Life
    rows: dict[str, Any] = field(default_factory=dict)

    async def lock(self, session: Session, level: str, *, now: bool) -> None:
        """Lock all rows of a level. Raises LockNotAvailableError where somebody has one of them and it is for `now`."""
        for statement in ORDER[level]:
            await session.connection.execute("SELECT set_config('lock_timeout', $1, true)", "1ms" if now else "0")
            await session.connection.execute(statement.replace("$1", f"{self.life.no}::bigint"))


@pytest_asyncio.fixture
async def case(store: Store) -> Case:
    make = await make_factory(store)
    life = await make.worker()
    running, sealing, checking = await make.running(lines(3)), await make.running(lines(3)), await make.batch()
    assert await make.lease(running, life)
    await cancel(store, make.owner, sealing.public_id)
    row = await batches.claim_over(store, life.no, [sealing.no])
    assert await batches.claim_validating(store, life.no, [checking.no], may_read=True)
    async with store.session() as session:
        await grants.share(session, life.no, [Ask("m", 0, 0, 1, 1, 1, 10)])
    return Case(make, life, {"running": running, "sealing": row, "checking": checking})


async def _record(case: Case) -> None:
    batch = case.rows["running"]
    async with case.make.store.session() as session:
        await answers.record(session, case.life.no, [(batch.no, [an_answer(batch.id, 0)])])


async def _end_leases(case: Case) -> None:
    async with case.make.store.session() as session:
        await leases.end_leases(session, case.life.no, [(case.rows["running"].no, 0, False)])


async def _share_slots(case: Case) -> None:
    async with case.make.store.session() as session:
        await grants.share(session, case.life.no, [Ask("m", 0, 0, 2, 2, 2, 10)])


async def _hold_models(case: Case) -> None:
    async with case.make.store.session() as session:
        await grants.hold(session, case.life.no, {"m": timedelta(seconds=30)})


async def _check(case: Case) -> None:
    async with Ingest(case.make.store, case.life.no, case.rows["checking"].no).held():
        pass


async def _seal(case: Case) -> None:
    await _Sealing(case.make.store, case.life.no, case.rows["sealing"])._answer_some()


async def _declare_dead(case: Case) -> None:
    assert await declare_dead(case.make.store, case.life.no, timedelta(0))


async def _leave(case: Case) -> None:
    await case.life.end()


TAKES: list[tuple[Callable[[Case], Coroutine[Any, Any, None]], list[str]]] = [
    (_record, ["worker", "batch"]),
    (_end_leases, ["worker", "block"]),
    (_share_slots, ["worker", "model"]),
    (_hold_models, ["worker", "model"]),
    (_check, ["worker", "batch"]),
    (_seal, ["worker", "batch", "block"]),
    (_declare_dead, ["worker", "model", "batch", "block"]),
    (_leave, ["worker", "model", "batch", "block"]),
]


async def test_who_waits_for_a_lock_holds_none_that_comes_later(case: Case) -> None:
    """Another connection has the one lock and takes the later ones: that would be a circle if the first had them."""
    for act, levels in TAKES:
        for level in levels:
            async with case.make.open_transaction() as other:
                await case.lock(other, level, now=False)
                acting = asyncio.ensure_future(act(case))
                await case.make.lock_wait()
                for later in list(ORDER)[list(ORDER).index(level) + 1 :]:
                    try:
                        await case.lock(other, later, now=True)
                    except asyncpg.LockNotAvailableError:
                        pytest.fail(f"{act.__name__} waits for a {level} and holds a {later}")
                # It waited only: what it would have done is undone.
                acting.cancel()
                await asyncio.wait([acting])


async def first_comes_first(case: Case, act: Callable[[], Coroutine[Any, Any, object]], first: str, rest: str) -> None:
    """Another connection has the first row of a kind, and can have all others while `act` waits for that one."""
    async with case.make.open_transaction() as other:
        await other.connection.execute(first)
        acting = asyncio.ensure_future(act())
        await case.make.lock_wait()
        await other.connection.execute("SET LOCAL lock_timeout = '1ms'")
        try:
            await other.connection.execute(rest)
        except asyncpg.LockNotAvailableError:
            pytest.fail(f"{act.__name__} waits for one row and holds a later one")
        acting.cancel()
        await asyncio.wait([acting])


async def test_several_batches_are_locked_by_their_numbers(case: Case) -> None:
    make, life = case.make, case.life
    low, *others = sorted([case.rows["checking"].no, case.rows["sealing"]["no"], case.rows["running"].no])
    # Its row now lies behind all others, where a scan of the table comes by last.
    await make.run("UPDATE batch SET validator = $1 WHERE no = $2", life.no, low)

    async def note_late() -> None:
        await batches.note_late_if_not_told(make.store, [*reversed(others), low])

    async def give_back() -> None:
        async with make.store.transaction() as session:
            await session.row(load("worker")["retire_worker"], worker=life.no)
            await give_back_batches(session, life.no)

    for act in (note_late, give_back):
        first = f"SELECT FROM batch WHERE no = {low} FOR UPDATE"
        await first_comes_first(case, act, first, f"SELECT FROM batch WHERE no <> {low} FOR UPDATE")


async def test_several_models_are_locked_by_their_names(case: Case) -> None:
    async def share_slots() -> None:
        async with case.make.store.session() as session:
            await grants.share(session, case.life.no, [Ask(model, 0, 0, 1, 1, 1, 10) for model in ("b", "a")])

    async def hold_models() -> None:
        async with case.make.store.session() as session:
            await grants.hold(session, case.life.no, {model: timedelta(seconds=30) for model in ("b", "a")})

    await share_slots()
    for act in (share_slots, hold_models):
        first = "SELECT FROM model_state WHERE model = 'a' FOR UPDATE"
        await first_comes_first(case, act, first, "SELECT FROM model_state WHERE model = 'b' FOR UPDATE")
