"""The one connection on which a worker writes; opened again when it breaks."""

from __future__ import annotations

import asyncio

from overnight.store.life import Life, end_lost
from overnight.store.pool import LOST, Session, Store

_CLOSE_WITHIN = 2.0


class Connection:
    """All fenced writes go over one connection, one after the other.

    Two connections that lock the worker's row at once would make the server keep a list of lockers for it, again
    and again. The connection bears the name of the worker's life, so that whoever declares it dead can end it.
    """

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life
        self._session: Session | None = None
        self._name = ""
        self._pids: list[int] = []
        """Of the server's processes for it and for those before that may still be at work."""
        self.is_new = False
        """The connection has not been used: what was under way on the one before may or may not have happened."""

    async def session(self) -> Session:
        """The open connection. Raises one of LOST while the database cannot be reached."""
        if self._session is not None and self._name != self._life.session_name:
            await self.close()
        if self._session is None or self._session.connection.is_closed():
            self._name = self._life.session_name
            self._session = await self._store.connect(self._name)
            self.is_new = True
            self._pids.append(self._session.connection.get_server_pid())
        if len(self._pids) > 1:
            # Else it might commit something after it was looked whether that happened.
            await end_lost(self._session, self._name, self._pids[:-1])
            del self._pids[:-1]
        return self._session

    async def lose(self, error: BaseException) -> None:
        """Give up a connection that broke, and wake an embedded database where it died."""
        self._store.outage.lost(error)
        if self._session is not None:
            self._session.connection.terminate()
            self._session = None
        try:
            await self._store.revive()
        except LOST:
            # It is tried again with the next round.
            return

    async def close(self) -> None:
        """Close the connection, however the server is."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                await session.connection.close()
        except LOST:
            session.connection.terminate()
