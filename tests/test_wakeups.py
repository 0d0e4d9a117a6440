"""A whole process hears what others say in the database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from overnight.server import running
from overnight.settings import Part, Settings
from overnight.store.listen import SETTINGS


async def test_a_process_hears_that_a_setting_was_changed_elsewhere(database_url: str, tmp_path: Path) -> None:
    settings = Settings(tmp_path, port=0, database_url=database_url, parts=frozenset({Part.API}))
    async with running(settings) as server:
        # It rings once when it begins to listen.
        await asyncio.wait_for(server.configuring.wait(3_600), 10)
        async with server.store.session() as session:
            await session.connection.execute(f"NOTIFY {SETTINGS}")
        await asyncio.wait_for(server.configuring.wait(3_600), 10)
