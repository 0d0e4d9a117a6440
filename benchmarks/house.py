"""A database of its own with a process that serves one model, for benchmarks that run inside it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from overnight.domain import events
from overnight.store.embedded import ensure
from overnight.store.life import Life
from overnight.store.migrate import migrate
from overnight.store.pool import Store
from overnight.store.served import Offer, serve


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Store, Life]]:
    """A migrated database below `folder`, and a life in it that offers the model `mock` for chats."""
    async with await ensure(folder) as database:
        store = await Store(database.dsn).open()
        async with store.session() as session:
            await migrate(session.connection)
        life = Life(store)
        await life.begin()
        await serve(store, life.no, [Offer("mock", (), None, ("chat",))])
        yield store, life
        await life.end()
        await store.close()


async def well() -> str | None:
    """A process that is always well."""
    await asyncio.sleep(0)
    return None


def run(measure: Callable[[Path], Awaitable[None]]) -> None:
    """Measure in a fresh folder."""
    events.set_up_logging("error")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        uvloop.run(_await(measure(Path(folder))))


async def _await(measured: Awaitable[None]) -> None:
    await measured
