"""How a process lives with a database that goes away."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import asyncpg
import pytest

from overnight.domain import events
from overnight.domain.errors import Unusable
from overnight.store import pool
from overnight.store.outage import DatabaseLost
from overnight.store.pool import LOST, Store
from overnight.store.statements import Statement

ONE = Statement("one", "SELECT 1 AS one")
GONE = "postgresql://nobody@127.0.0.1:9/none"


async def test_a_store_that_is_not_open_is_a_mistake_of_ours_and_no_lost_database() -> None:
    closed = Store(GONE)
    with pytest.raises(asyncpg.InterfaceError, match="not open"):
        await closed.rows(ONE)
    assert not closed.outage.is_on


class Frozen:
    """A pool, its one connection and the transaction on it, of a server that ends nothing any more."""

    def __init__(self) -> None:
        self.is_closed = asyncio.Event()
        self.waited: float | None = None

    async def acquire(self, timeout: float) -> Frozen:
        return self

    async def release(self, connection: Frozen, timeout: float | None = None) -> None:
        self.waited = timeout

    def transaction(self) -> Frozen:
        return self

    def terminate(self) -> None:
        self.is_closed.set()

    async def start(self) -> None:
        return

    async def rollback(self) -> None:
        await self.is_closed.wait()
        raise asyncpg.ConnectionDoesNotExistError("closed in the middle of an operation")


async def end_sessions(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'overnight'"
        " AND datname = current_database()"
    )
    await connection.close()


async def test_a_store_whose_sessions_were_ended_works_again_by_itself(store: Store, store_url: str) -> None:
    await store.row(ONE)
    await end_sessions(store_url)

    try:
        row = await store.row(ONE)
    except LOST:
        row = await store.row(ONE)

    assert row is not None
    assert row["one"] == 1


async def test_an_embedded_database_that_is_away_is_brought_back_when_it_is_needed(database_url: str) -> None:
    revived = []

    async def revive() -> None:
        revived.append(True)
        store._pool = working._pool

    working = await Store(database_url).open()
    store = Store(GONE, revive=revive)
    store._pool = await asyncpg.create_pool(GONE, min_size=0, timeout=1)

    row = await store.row(ONE)

    assert row is not None
    assert revived == [True]
    await working.close()


async def test_one_that_cannot_be_brought_back_is_lost_and_may_be_found_later() -> None:
    async def revive() -> None:
        raise Unusable("The disk is full.")

    store = Store(GONE, revive=revive)
    store._pool = await asyncpg.create_pool(GONE, min_size=0, timeout=1)

    with pytest.raises(LOST, match="The disk is full"):
        await store.row(ONE)


async def test_a_database_that_goes_is_told_once_and_once_when_it_is_back(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(events, "tell", lambda event, *_, **__: told.append(event))
    async with store.session() as one, store.session() as other:
        for session in (one, other):
            await session.row(ONE)
        assert told == []

        await end_sessions(store_url)
        for session in (one, other):
            with pytest.raises(DatabaseLost) as raised:
                await session.row(ONE)
            assert isinstance(raised.value, LOST)
            assert isinstance(raised.value.__cause__, LOST)
        assert told == ["database_lost"]
        own = await store.connect("another")
        assert (await own.row(ONE), told) == ((1,), ["database_lost", "database_back"])
        await own.connection.close()


async def test_a_transaction_whose_end_finds_no_database_raises_that_it_is_lost(store: Store, store_url: str) -> None:
    async def lose_it_inside() -> None:
        async with store.transaction() as session:
            await session.row(ONE)
            await end_sessions(store_url)

    with pytest.raises(DatabaseLost):
        await lose_it_inside()


async def test_who_is_told_to_stop_in_a_transaction_stops_though_its_database_has_gone(
    store: Store, store_url: str
) -> None:
    is_inside = asyncio.Event()

    async def stay_inside() -> None:
        async with store.transaction():
            is_inside.set()
            try:
                await asyncio.Event().wait()
            finally:
                await end_sessions(store_url)

    task = asyncio.create_task(stay_inside())
    await is_inside.wait()
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()


async def test_what_ended_the_use_of_a_connection_is_raised_though_that_breaks_when_it_is_given_back() -> None:
    class Breaking:
        async def acquire(self, timeout: float) -> object:
            return object()

        async def release(self, connection: object, timeout: float | None = None) -> None:
            raise ConnectionResetError

    async def use(store: Store, error: BaseException | None) -> None:
        async with store.session():
            if error is not None:
                raise error

    store = Store(GONE)
    store._pool = Breaking()
    with pytest.raises(asyncio.CancelledError):
        await use(store, asyncio.CancelledError())
    with pytest.raises(DatabaseLost):
        await use(store, None)


async def test_who_is_told_to_stop_waits_for_no_server_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "UNDO_WITHIN", 0.01)
    is_inside = asyncio.Event()
    server = Frozen()
    store = Store(GONE)
    store._pool = server

    async def stay_inside() -> None:
        async with store.transaction():
            is_inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stay_inside())
    await is_inside.wait()
    task.cancel()
    await asyncio.wait([task], timeout=60)

    assert task.cancelled()
    assert server.waited == 0.01


async def test_our_own_wrong_use_of_a_connection_is_no_outage(store: Store) -> None:
    async with store.session() as session:
        waiting = asyncio.ensure_future(session.row(Statement("wait", "SELECT pg_sleep(30)")))
        await asyncio.sleep(0)
        with pytest.raises(asyncpg.InterfaceError):
            await session.row(ONE)
        assert not store.outage.is_on
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_check_of_a_database_that_stands_still_is_given_up_and_says_so(store: Store) -> None:
    row = await store.row(Statement("pid", "SELECT pg_backend_pid() AS pid"))
    assert row is not None
    os.kill(row["pid"], signal.SIGSTOP)
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"^it has not answered within 0\.1 s$"):
                await store.check(0.1)
    finally:
        os.kill(row["pid"], signal.SIGCONT)

    with suppress(*LOST):
        # What was asked while it stood still may still be told.
        await store.check(60)
    await store.check(60)
