"""Hears from other processes that there is something to do. Rounds come round by themselves; this makes them prompt."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from overnight.loops import Bell, repeat
from overnight.store.pool import LOST, Session, Store

WORK = "overnight_work"
"""Requests may have become free to start, or must not start any more."""
TIDY = "overnight_tidy"
"""A batch may have to be checked, closed or sealed."""
SETTINGS = "overnight_settings"
"""A setting was changed."""

NAME = "overnight listening"

CHECK_EVERY = 30.0
"""Seconds between two looks whether the connection still answers: one that was cut without a word says nothing."""
CHECK_WITHIN = 5.0
AGAIN_AFTER = 1.0


class Listener:
    """One connection that listens on some channels and rings the bell of each; opened again when it breaks.

    The statements that change something send the notification themselves, so it comes with their commit.
    """

    def __init__(self, store: Store, bells: Mapping[str, Bell]) -> None:
        """`bells` are those of the channels."""
        self._store = store
        self._bells = bells
        self._session: Session | None = None
        self._lost = Bell()

    @property
    def is_listening(self) -> bool:
        """Whether a connection is open."""
        return self._session is not None and not self._session.connection.is_closed()

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            await repeat(
                "listen",
                self.round,
                every=lambda: CHECK_EVERY if self.is_listening else AGAIN_AFTER,
                bell=self._lost,
            )
        finally:
            self.close()

    async def round(self) -> bool:
        """Listen, or look whether the connection answers. Without a database it is tried again, and nothing is lost."""
        try:
            if self.is_listening:
                await self._check()
            else:
                await self._open()
        except LOST:
            self.close()
        return False

    def close(self) -> None:
        """Listen no more."""
        session, self._session = self._session, None
        if session is not None:
            session.connection.terminate()

    async def _open(self) -> None:
        self.close()
        session = await self._store.connect(NAME)
        try:
            session.connection.add_termination_listener(lambda _: self._lost.ring())
            for channel in self._bells:
                await session.connection.add_listener(channel, self._heard)
        except BaseException:
            session.connection.terminate()
            raise
        self._session = session
        # What was said before is not heard any more.
        for bell in self._bells.values():
            bell.ring()

    async def _check(self) -> None:
        assert self._session is not None
        await self._session.connection.execute("SELECT 1", timeout=CHECK_WITHIN)

    def _heard(self, _connection: asyncpg.Connection, _process: int, channel: str, _payload: object) -> None:
        self._bells[channel].ring()
