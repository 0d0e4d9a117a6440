"""Who else uses the database of a process: known by its kind."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from overnight.database import neighbours_of
from overnight.domain import events
from overnight.server import running
from overnight.settings import Part, Settings
from overnight.store import neighbours
from overnight.store.life import Life
from overnight.store.pool import Store

pytestmark = pytest.mark.usefixtures("collector_as_before")


@pytest.mark.parametrize(("url", "gone"), [(None, [7]), ("postgresql://elsewhere/overnight", [])])
def test_after_a_start_of_the_machine_only_an_embedded_database_has_lost_its_processes_for_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, gone: list[int]
) -> None:
    """Another one may have processes on other machines that share the folder and none of our locks."""
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(neighbours, "BOOT_ID", boot)
    settings = Settings(data_dir=tmp_path, database_url=url)
    boot.write_text("first")
    before = neighbours_of(settings)
    before.enter(7, datetime.now(UTC))
    before.leave(ended=False)
    boot.write_text("second")
    assert [mark.no for mark in neighbours_of(settings).gone()] == gone


@pytest.mark.parametrize("parts", [frozenset({Part.API}), frozenset({Part.UPKEEP})])
async def test_a_process_of_any_parts_finds_its_killed_neighbours(
    tmp_path: Path, store: Store, store_url: str, parts: frozenset[Part]
) -> None:
    told = events.COUNTED.labels("worker_gone")._value.get()
    settings = Settings(tmp_path, port=0, database_url=store_url, parts=parts)
    killed = Life(store, neighbours=neighbours_of(settings))
    await killed.begin()
    assert killed.neighbours is not None
    killed.neighbours.leave(ended=False)
    async with running(settings), store.session() as session, asyncio.timeout(60):
        while await session.connection.fetchval("SELECT dead_at FROM worker WHERE no = $1", killed.no) is None:
            await asyncio.sleep(0.01)
    assert events.COUNTED.labels("worker_gone")._value.get() == told + 1
