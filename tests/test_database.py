"""Who else uses the database of a process: known by its kind."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from overnight.database import neighbours_of
from overnight.settings import Settings
from overnight.store import neighbours


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
