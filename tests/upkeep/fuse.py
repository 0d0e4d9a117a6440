"""A store that crashes at the n-th step, as a process does that is killed between two statements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from overnight.store.pool import Store


class Crash(BaseException):
    """The process ends here; no handler of it runs."""


class Fuse:
    """Burns down by one at each step; there is a step before and after each statement and each commit."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self.blown = False

    def step(self) -> None:
        if self._left == 0:
            self.blown = True
            raise Crash
        self._left -= 1


class FusedStore(Store):
    """Works like another store until its fuse blows."""

    def __init__(self, store: Store, fuse: Fuse) -> None:
        super().__init__("")
        self._store = store
        self._fuse = fuse

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Any]:
        async with self._store._lent() as connection:
            yield _Connection(connection, self._fuse)


class _Connection:
    def __init__(self, connection: Any, fuse: Fuse) -> None:
        self._connection = connection
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        if name in ("is_closed", "terminate"):
            return getattr(self._connection, name)
        if name not in ("fetch", "fetchrow", "fetchval", "execute", "copy_records_to_table"):
            raise AttributeError(name)

        async def run(*given: Any, **named: Any) -> Any:
            self._fuse.step()
            found = await getattr(self._connection, name)(*given, **named)
            self._fuse.step()
            return found

        return run

    def transaction(self) -> _Transaction:
        return _Transaction(self._connection.transaction(), self._fuse)


class _Transaction:
    def __init__(self, transaction: Any, fuse: Fuse) -> None:
        self._transaction = transaction
        self._fuse = fuse

    async def start(self) -> None:
        await self._transaction.start()

    async def commit(self) -> None:
        try:
            self._fuse.step()
        except Crash:
            await self.rollback()
            raise
        await self._transaction.commit()
        self._fuse.step()

    async def rollback(self) -> None:
        """What a server does with the transaction of a client that is gone, too."""
        await self._transaction.rollback()
