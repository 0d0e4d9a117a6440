"""The fence: each write of a worker finds it alive, and keeps it from being declared dead until its commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from overnight.batches.cancel import cancel
from overnight.store import answers, batches, grants, leases
from overnight.store.answers import Fenced
from overnight.store.grants import Ask
from overnight.store.leases import FailedCall, Wanted
from overnight.store.life import declare_dead, hold_fence
from overnight.store.pool import Session, Store
from overnight.store.statements import load
from tests.batches.factory import Factory, an_answer, lines, make_factory

_BATCH = load("batch")
_TABLES = ("batch", "block", "attempt", "call", "answer", "segment", "model_state", "model_grant", "beat")


@dataclass(frozen=True)
class Case:
    """A worker that holds a block of a batch, and batches that it could check, seal or bring to their end."""

    make: Factory
    batch: int
    id: Any

    @property
    def worker(self) -> int:
        return self.make.life.no


@pytest_asyncio.fixture
async def case(store: Store) -> Case:
    make = await make_factory(store)
    running, sealing, over = await make.running(lines(300)), await make.running(lines(1)), await make.running(lines(1))
    await cancel(store, make.owner, sealing.public_id)
    assert await batches.claim_over(store, make.life.no, [sealing.no])
    await make.run("UPDATE batch SET sealer = NULL")
    await make.answer_all(over)
    await make.batch()
    assert len(await make.lease(running, most=1)) == 1
    async with store.session() as session:
        await leases.write_down(session, make.life.no, 1, {running.no: ([0], [0])})
    return Case(make, running.no, running.id)


async def _lease(session: Session, case: Case) -> None:
    assert (await leases.lease(session, case.worker, Wanted(None, (), most=1, of_owner=1, of_each=1)))[0]


async def _write_down(session: Session, case: Case) -> None:
    assert await leases.write_down(session, case.worker, 2, {case.batch: ([1], [0])}) == {case.batch}


async def _take_back(session: Session, case: Case) -> None:
    await leases.take_back(session, case.worker, [(case.batch, 1, 0)])


async def _note_calls(session: Session, case: Case) -> None:
    call = FailedCall(case.batch, 0, 1, 5, 500, "upstream_error", "no", None)
    await leases.note_calls(session, case.worker, [call])


async def _end_leases(session: Session, case: Case) -> None:
    await leases.end_leases(session, case.worker, [(case.batch, 0, False)])


async def _record(session: Session, case: Case) -> None:
    assert await answers.record(session, case.worker, [(case.batch, [an_answer(case.id, 0)])]) == 1


async def _share_slots(session: Session, case: Case) -> None:
    assert await grants.share(session, case.worker, [Ask("m", 0, 0, 1, 1, 1, 10)])


async def _hold_models(session: Session, case: Case) -> None:
    await grants.hold(session, case.worker, {"m": timedelta(seconds=30)})


async def _hold_fence(session: Session, case: Case) -> None:
    await hold_fence(session, case.worker)


async def _claim_check(session: Session, case: Case) -> None:
    await _claim(session, case, "claim_validating", may_read=True)


async def _claim_sealing(session: Session, case: Case) -> None:
    await _claim(session, case, "claim_finalizing")


async def _claim_over(session: Session, case: Case) -> None:
    await _claim(session, case, "finalize_if_over")


async def _claim(session: Session, case: Case, statement: str, **given: Any) -> None:
    if await session.row(_BATCH[statement], worker=case.worker, only=None, skipped=[], **given) is None:
        raise Fenced


Write = Callable[[Session, Case], Awaitable[None]]
WRITES: list[Write] = [
    _lease, _write_down, _take_back, _note_calls, _end_leases, _record, _share_slots, _hold_models, _hold_fence,
    _claim_check, _claim_sealing, _claim_over,
]  # fmt: skip


async def test_a_worker_is_not_declared_dead_in_the_middle_of_a_write(case: Case) -> None:
    """Else what the write leaves behind, such as a lease, is nobody's: it was not there when all was given back."""
    for write in WRITES:
        async with case.make.open_transaction() as session:
            await write(session, case)
            assert not await _can_be_declared_dead(case), write.__name__
        assert await _can_be_declared_dead(case)


async def _can_be_declared_dead(case: Case) -> bool:
    try:
        await case.make.run("SELECT FROM worker WHERE no = $1 FOR NO KEY UPDATE NOWAIT", case.worker)
    except asyncpg.LockNotAvailableError:
        return False
    return True


async def test_no_write_of_a_worker_declared_dead_changes_anything(case: Case) -> None:
    assert await declare_dead(case.make.store, case.worker, timedelta(0))
    before = await _everything(case.make)
    for write in WRITES:
        async with case.make.store.session() as session:
            with pytest.raises(Fenced):
                await write(session, case)
        assert await _everything(case.make) == before, write.__name__


async def _everything(make: Factory) -> list[Any]:
    return [await make.value(f"SELECT array_agg(t::text ORDER BY t::text) FROM {table} t") for table in _TABLES]
