"""Two workers that claim one block: whichever of them comes first has it, however their statements are interleaved."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from overnight.batches.shape import BatchView
from overnight.store import leases
from overnight.store.leases import Wanted
from overnight.store.life import Life
from overnight.store.pool import Session, Store
from tests.batches.factory import Factory, lines, make_factory

WANTED = Wanted(models=None, other_models=(), most=10, of_owner=10, of_each=10)


@pytest_asyncio.fixture
async def make(store: Store) -> Factory:
    return await make_factory(store)


@pytest.fixture(params=[False, True])
async def pair(make: Factory, request: pytest.FixtureRequest) -> tuple[Life, Life]:
    """Two workers: the one that registered first claims first, or the other one."""
    one, other = await make.worker(), await make.worker()
    return (other, one) if request.param else (one, other)


async def claim(session: Session, life: Life) -> list[int]:
    return [block.seq for block in (await leases.lease(session, life.no, WANTED))[0]]


async def holders(make: Factory, batch: BatchView) -> list[tuple[str, int | None, int]]:
    async with make.store.session() as session:
        rows = await session.connection.fetch(
            "SELECT state, worker, leases FROM block WHERE batch = $1 ORDER BY seq", batch.no
        )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("undone", [False, True])
async def test_who_claims_while_another_one_has_not_committed_gets_nothing_and_does_not_wait(
    make: Factory, pair: tuple[Life, Life], undone: bool
) -> None:
    first, second = pair
    batch = await make.running(lines(5))
    one = await make.store.connect("first")
    transaction = one.connection.transaction()
    await transaction.start()
    assert await claim(one, first) == [0]
    async with make.store.session() as session:
        assert await claim(session, second) == []
        await (transaction.rollback() if undone else transaction.commit())
        # What was undone is there for the next one.
        assert await claim(session, second) == ([0] if undone else [])
    await one.connection.close()
    assert await holders(make, batch) == [("leased", (second if undone else first).no, 1)]


@pytest.mark.parametrize("given_back", [False, True])
async def test_who_looked_before_another_one_committed_takes_nothing_that_is_taken(
    make: Factory, pair: tuple[Life, Life], given_back: bool
) -> None:
    """A statement sees the database as it was when it began; here it stands at its fence while the other one claims."""
    first, second = pair
    batch = await make.running(lines(5))
    async with make.open_transaction() as fence:
        await fence.connection.execute("SELECT FROM worker WHERE no = $1 FOR UPDATE", second.no)
        async with make.store.session() as session, asyncio.TaskGroup() as group:
            claiming = group.create_task(claim(session, second))
            await make.lock_wait()
            held = await make.lease(batch, first)
            assert [block.seq for block in held] == [0]
            if given_back:
                await make.let_go(held, first)
            await fence.connection.execute("ROLLBACK")
            await fence.connection.execute("BEGIN")
    taken = claiming.result()
    if given_back:
        # It may have what is free again; if so, it is its lease, and counted as a second one.
        assert await holders(make, batch) == [("leased", second.no, 2) if taken else ("ready", None, 1)]
    else:
        assert taken == []
        assert await holders(make, batch) == [("leased", first.no, 1)]
