"""The embedded PostgreSQL as its users see it: found or started, shared, and stopped after the last of them.

A user holds a shared lock for as long as it wants the server. The server is run by a keeper, a process that
the first user starts; see `overnight.store.keeper`. Any process may be killed at any time: the kernel gives
its locks back, and `Embedded.revive` starts again what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

import asyncpg

from overnight.domain.errors import Unusable
from overnight.store.binaries import find
from overnight.store.cluster import DATABASE, OURS, USER
from overnight.store.flock import is_held_alone, open_lock, try_shared
from overnight.store.folder import PORT, Folder
from overnight.store.keeper import Orders
from overnight.store.runas import AsRoot
from overnight.store.summon import Summoned

PATIENCE = 900.0
"""Seconds to wait for a server that is starting: a recovery from a crash reads up to 4 GB of log."""

REPORT = 5.0
"""Seconds between two lines of the log that say what is waited for."""

GONE = (
    OSError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # What asyncpg says of a connection that broke in the middle of an operation.
    asyncpg.InternalClientError,
)
"""What a connection meets where the server is not there, starts, stops or has just died."""

_log = logging.getLogger(__name__)


class Embedded:
    """A hold on the embedded server of one folder. Use `ensure` to get one and `release` to end it."""

    def __init__(
        self,
        folder: Path,
        *,
        binaries: Path | None,
        settings: Mapping[str, str],
        as_root: AsRoot,
        grace: float,
    ) -> None:
        # One name for the folder, by whatever links it was reached.
        self.folder = Folder(Path(os.path.realpath(folder)))
        self._binaries = binaries
        self._settings = dict(settings)
        self._as_root = as_root
        self._grace = grace
        self._socket: Path | None = None
        self._hold: int | None = None
        self._keeper: Summoned | None = None
        self._reviving = asyncio.Lock()

    @property
    def dsn(self) -> str:
        """The address of the database as a URL for asyncpg or libpq."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """Return the address of another database on the same server."""
        parts = self.dsn_kwargs()
        query = urlencode({"host": parts["host"], "port": PORT, "user": USER}, quote_via=quote)
        return f"postgresql:///{quote(database)}?{query}"

    def dsn_kwargs(self) -> dict[str, str | int]:
        """Return the address of the database as arguments for asyncpg.connect."""
        if self._socket is None:
            raise RuntimeError("The server has not been started.")
        return {"host": str(self._socket), "port": PORT, "user": USER, "database": DATABASE}

    async def revive(self) -> None:
        """Make sure that a keeper and a server run and that it accepts connections.

        Called at first and by whoever lost its connections; several processes and tasks may call it at once.
        The address stays the same. Raises Unusable if the server cannot be run.
        """
        async with self._reviving:
            if self._keeper is not None and self._keeper.has_ended():
                # What ended it is past.
                self._keeper = None
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._hold_on()
                    await self._bring_up()
            except TimeoutError:
                raise Unusable(
                    f"PostgreSQL has not become ready in {PATIENCE:.0f} s; see {self.folder.server_log}."
                ) from None

    def release(self) -> None:
        """Stop being a user. The server stops soon after its last one. Further calls do nothing."""
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    async def _hold_on(self) -> None:
        """Take the users' lock, after a keeper that is stopping has ended."""
        if self._hold is not None:
            return
        self.folder.make()
        hold = open_lock(self.folder.users_lock)
        try:
            while not try_shared(hold):  # noqa: ASYNC110  the lock belongs to other processes
                await asyncio.sleep(0.05)
        except BaseException:
            os.close(hold)
            raise
        self._hold = hold

    async def _bring_up(self) -> None:
        loop = asyncio.get_running_loop()
        told = loop.time()
        while True:
            if not is_held_alone(self.folder.keeper_lock):
                await self._start_keeper()
            # A keeper that died meanwhile takes the server with it, so both must be there at last.
            if await self._accepts() and is_held_alone(self.folder.keeper_lock):
                return
            if loop.time() > told + REPORT:
                told = loop.time()
                _log.info("waiting for PostgreSQL to start; it says why in %s", self.folder.server_log)
            await asyncio.sleep(0.03)

    async def _start_keeper(self) -> None:
        """Start a keeper, unless the one we started is about to run. Raises Unusable if that one gave up."""
        if self._keeper is not None:
            if not self._keeper.has_ended():
                return
            self._keeper.raise_if_it_gave_up()
        self._keeper = await asyncio.to_thread(self._summon)

    def _summon(self) -> Summoned:
        binaries = find(self.folder, self._binaries)
        orders = Orders(
            folder=str(self.folder.path),
            programs=str(binaries.folder),
            major=binaries.major,
            settings=self._settings,
            as_root=self._as_root,
            grace=self._grace,
        )
        return Summoned(orders)

    async def _accepts(self) -> bool:
        """Say whether the server accepts a connection to our database."""
        socket = self.folder.read_socket_directory()
        if socket is None:
            return False
        self._socket = socket
        try:
            connection = await asyncpg.connect(**self.dsn_kwargs(), timeout=10)
            await connection.close(timeout=10)
        except asyncpg.TooManyConnectionsError:
            return True
        except GONE:
            return False
        except (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError) as error:
            raise Unusable(f"{self.folder.data} was not made by Overnight: {error}") from error
        return True


async def ensure(
    folder: Path,
    *,
    binaries: Path | None = None,
    settings: Mapping[str, str] | None = None,
    as_root: AsRoot = "auto",
    grace: float = 1.0,
) -> Embedded:
    """Become a user of the server of this folder, which is made and started if need be, and return the hold.

    `binaries` is a folder with PostgreSQL's programs, found by itself if None. `settings` are server settings;
    like `as_root` (how to run when we are root) and `grace` (seconds that the server outlives its last user)
    they count only for the process that starts the server. Raises Unusable with what to do.
    """
    settings = settings or {}
    if refused := OURS & settings.keys():
        raise Unusable(f"The setting `{min(refused)}` of the embedded server cannot be changed.")
    embedded = Embedded(folder, binaries=binaries, settings=settings, as_root=as_root, grace=grace)
    try:
        await embedded.revive()
    except BaseException:
        embedded.release()
        raise
    return embedded


def is_running(folder: Path) -> bool:
    """Say whether any process of the folder's server is alive."""
    return is_held_alone(Folder(folder).server_lock)
