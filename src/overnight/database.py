"""The database of a process, and who else on this machine uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg

from overnight.domain import events
from overnight.domain.errors import Unusable
from overnight.settings import Settings
from overnight.store import embedded
from overnight.store.migrate import migrate
from overnight.store.neighbours import EVERY_MACHINE, Neighbours, this_machine
from overnight.store.pool import LOST, Store


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[Store]:
    """The database, migrated: the one that was named, or the embedded one under the data directory."""
    async with AsyncExitStack() as stack:
        if settings.database_url is None:
            database = await embedded.ensure(settings.data_dir / "postgres", binaries=settings.postgres_bin)
            stack.callback(database.release)
            store = Store(database.dsn, revive=database.revive)
        else:
            store = Store(settings.database_url)
        try:
            await store.open()
        except (*LOST, asyncpg.PostgresError, OSError, ValueError) as e:
            # The message of the server names user and database, never the password.
            why = str(e) if isinstance(e, asyncpg.PostgresError) else type(e).__name__
            raise Unusable(f"The database cannot be used ({why}). Check --database-url.") from None
        stack.push_async_callback(store.close)
        async with store.session() as session:
            done = await migrate(session.connection)
        if done:
            events.tell("migrated", applied=done)
        yield store


def neighbours_of(settings: Settings) -> Neighbours:
    """The processes that use the same data directory; an embedded database has none on other machines."""
    machine = EVERY_MACHINE if settings.database_url is None else this_machine()
    return Neighbours(settings.data_dir / "workers", machine)
