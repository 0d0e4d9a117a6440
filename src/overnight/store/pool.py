"""The connections of one process to its database, and how statements are run on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.transaction import Transaction

from overnight.domain.errors import Unusable
from overnight.store.outage import Outage
from overnight.store.statements import Statement

LOST = (
    ConnectionError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.ConnectionFailureError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    # What asyncpg says of a connection that broke in the middle of an operation.
    asyncpg.InternalClientError,
    FileNotFoundError,
    TimeoutError,
)
"""What it looks like when the database has gone away; a later try may find it again."""
_OF_US_TOO = (asyncpg.InterfaceError, asyncpg.InternalClientError)
UNDO_WITHIN = 1.0
"""Seconds that whoever uses a connection and is ended waits for the server to undo what was under way: after them the
connection is closed. A heartbeat that was not answered leaves so much of the time after which its worker counts as dead
to the next one."""
T = TypeVar("T")

Row: TypeAlias = Any
"""asyncpg's Record: read by column name."""
Revive = Callable[[], Awaitable[None]]


async def _prepare(connection: asyncpg.Connection) -> None:
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


async def _leave_as_is(connection: asyncpg.Connection) -> None:
    """Save the round trip that would reset a session given back: none is changed beyond its transaction.

    A transaction left open is rolled back all the same.
    """


def _is_closed(connection: asyncpg.Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        # The pool has taken back one that broke.
        return True


async def _undo(connection: asyncpg.Connection, transaction: Transaction) -> None:
    """Roll back. Without a connection there is nothing left to undo, and one that does not answer soon is closed.

    Nothing of that is raised: what ended the transaction goes on, and of a task that was told to stop it is all that
    says so.
    """
    close = asyncio.get_running_loop().call_later(UNDO_WITHIN, connection.terminate)
    try:
        with suppress(*LOST):
            await transaction.rollback()
    finally:
        close.cancel()


def _silent(seconds: float) -> TimeoutError:
    return TimeoutError(f"it has not answered within {seconds:g} s")


def _note(ended: asyncio.Task[None]) -> None:
    """Take note of how a task ended that nobody may wait for any more."""
    if not ended.cancelled():
        ended.exception()


class Session:
    """One connection, inside a transaction where `Store.transaction` gave it.

    Its calls raise DatabaseLost, one of LOST, where the database has gone away.
    """

    def __init__(self, connection: asyncpg.Connection, outage: Outage) -> None:
        self.connection = connection
        self._outage = outage

    async def rows(self, statement: Statement, **given: Any) -> list[Row]:
        """Run a statement and return all its rows; statements bound their own number."""
        rows: list[Row] = await self.ask(self.connection.fetch, statement.sql, *statement.arguments(given))
        return rows

    async def row(self, statement: Statement, **given: Any) -> Row | None:
        """Run a statement and return its first row."""
        return await self.ask(self.connection.fetchrow, statement.sql, *statement.arguments(given))

    async def ask(self, call: Callable[..., Awaitable[T]], *given: Any, **named: Any) -> T:
        """Do a call of the connection, and take note of whether its database is there."""
        try:
            done = await call(*given, **named)
        except LOST as e:
            # Of a connection that is open it is our own use of it that is wrong.
            if isinstance(e, _OF_US_TOO) and not _is_closed(self.connection):
                raise
            raise self._outage.lost(e) from e
        self._outage.over()
        return done

    async def run(self, statement: Statement, **given: Any) -> int:
        """Run a statement and return how many rows it changed."""
        tag: str = await self.ask(self.connection.execute, statement.sql, *statement.arguments(given))
        return int(tag.rpartition(" ")[2]) if tag[-1].isdigit() else 0


class Store:
    """A pool of connections. With an embedded database, `revive` starts it again when it has gone away."""

    def __init__(self, dsn: str, *, most: int = 16, revive: Revive | None = None, name: str = "overnight") -> None:
        self._dsn = dsn
        self._most = most
        self._revive = revive
        self._name = name
        self._pool: asyncpg.Pool | None = None
        self._ping: asyncio.Task[None] | None = None
        self.outage = Outage()

    async def open(self) -> Store:
        """Connect; raises one of LOST or asyncpg.PostgresError where that fails."""
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self._most,
            init=_prepare,
            reset=_leave_as_is,
            command_timeout=60,
            timeout=10,
            server_settings=self._settings(self._name),
        )
        return self

    @property
    def _opened(self) -> asyncpg.Pool:
        if self._pool is None:
            raise asyncpg.InterfaceError("the store is not open")
        return self._pool

    async def close(self) -> None:
        if self._ping is not None:
            self._ping.cancel()
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), 5)
            except TimeoutError:
                pool.terminate()

    @staticmethod
    def _settings(name: str) -> dict[str, str]:
        return {
            "application_name": name,
            "timezone": "UTC",
            "jit": "off",
            "idle_in_transaction_session_timeout": "60s",
        }

    async def connect(self, name: str) -> Session:
        """Open a connection of its own, outside the pool, that shows itself to the server as `name`."""
        try:
            connection = await asyncpg.connect(
                self._dsn, timeout=10, command_timeout=60, server_settings=self._settings(name)
            )
            await _prepare(connection)
        except LOST as e:
            raise self.outage.lost(e) from e
        return Session(connection, self.outage)

    async def revive(self) -> None:
        """Bring an embedded database back; nothing to do for a server of somebody else's.

        Raises ConnectionError, one of LOST, where it cannot be started now: a later try may find, say, more disk.
        """
        if self._revive is None:
            return
        try:
            await self._revive()
        except Unusable as e:
            raise ConnectionError(str(e)) from None

    async def check(self, seconds: float) -> None:
        """Return where the database answers within so many seconds; raises one of LOST where it does not.

        A statement that has no answer holds its connection for longer, until the server has let go of it: nobody
        waits for that here, and those who ask meanwhile wait for the same answer.
        """
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(self._asked(seconds))
            self._ping.add_done_callback(_note)
        if not (await asyncio.wait([self._ping], timeout=seconds))[0]:
            raise _silent(seconds)
        self._ping.result()

    async def _asked(self, seconds: float) -> None:
        try:
            async with self._lent() as connection:
                await connection.fetchval("SELECT 1", timeout=seconds)
        except TimeoutError:
            raise _silent(seconds) from None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Lend a connection; statements on it commit one by one."""
        async with self._lent() as connection:
            yield Session(connection, self.outage)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Lend a connection in a transaction that commits when the block ends well."""
        async with self._lent() as connection:
            session, transaction = Session(connection, self.outage), connection.transaction()
            await session.ask(transaction.start)
            try:
                yield session
            except BaseException:
                await _undo(connection, transaction)
                raise
            await session.ask(transaction.commit)

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await self._acquired()
        pool = self._opened
        try:
            yield connection
        except BaseException:
            with suppress(*LOST):
                await pool.release(connection, timeout=UNDO_WITHIN)
            raise
        try:
            await pool.release(connection)
        except LOST as e:
            raise self.outage.lost(e) from e

    async def _acquired(self) -> asyncpg.Connection:
        pool = self._opened
        try:
            return await pool.acquire(timeout=30)
        except LOST as e:
            lost = self.outage.lost(e)
            if self._revive is None:
                raise lost from e
        try:
            await self.revive()
            return await self._opened.acquire(timeout=30)
        except LOST as e:
            raise self.outage.lost(e) from e

    async def rows(self, statement: Statement, **given: Any) -> list[Row]:
        """Run one statement on a lent connection and return its rows."""
        async with self.session() as session:
            return await session.rows(statement, **given)

    async def row(self, statement: Statement, **given: Any) -> Row | None:
        """Run one statement on a lent connection and return its first row."""
        async with self.session() as session:
            return await session.row(statement, **given)

    async def run(self, statement: Statement, **given: Any) -> int:
        """Run one statement on a lent connection and return how many rows it changed."""
        async with self.session() as session:
            return await session.run(statement, **given)
