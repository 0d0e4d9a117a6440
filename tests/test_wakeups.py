"""A whole process hears what others say in the database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from overnight import current_limits
from overnight import server as composition
from overnight.server import running
from overnight.settings import Part, Settings
from overnight.store import settings as stored
from overnight.store.pool import Store

pytestmark = pytest.mark.usefixtures("collector_as_before")


async def test_a_process_hears_that_a_setting_was_changed_elsewhere(
    store: Store, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_limits, "REFRESH_EVERY", 3_600)
    monkeypatch.setattr(composition, "BEAT_EVERY", 3_600)
    settings = Settings(tmp_path, port=0, database_url=store_url, parts=frozenset({Part.API}))
    async with running(settings) as server, asyncio.timeout(60):
        # What is said before it listens is seen by its first look.
        while not server.listener.is_listening:
            await asyncio.sleep(0.01)
        await stored.change(store, {"BATCH_MAX_REQUESTS": 7})
        while settings.limits.batch_requests != 7:
            await asyncio.sleep(0.01)
