"""What `overnight run` says of a server that takes nothing more now."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from overnight.cli.progress import bars
from overnight.cli.run_ import _reached
from overnight.client import ConnectionFailed
from overnight.settings import Settings
from tests.client.scripted import reply, scripted


async def _at_once(_: float) -> None:
    pass


async def test_a_run_says_that_its_server_is_full_however_little_it_logs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", logging.ERROR)
    full = reply(429, {"error": {"message": "The queue is full.", "code": "capacity_exceeded"}})
    async with scripted(full, reply(200, {"id": "batch_2"})) as script:
        with bars() as line:
            async with _reached(script.url, Settings(tmp_path), line) as (client, _):
                monkeypatch.setattr(client._edge, "sleep", _at_once)
                assert await client.retry_batch("batch_1") == {"id": "batch_2"}

    said = capfd.readouterr().err
    assert said.count("The queue is full.") == 1
    assert "Trying again in 1 s." in said


async def test_of_a_server_that_is_away_the_line_tells_and_not_each_try(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with bars() as line:
        async with _reached("http://127.0.0.1:9", Settings(tmp_path), line) as (client, _):
            monkeypatch.setattr(client._edge, "sleep", _at_once)
            with pytest.raises(ConnectionFailed):
                await client.wait_for_batch("batch_1")

    assert "Trying again" not in capfd.readouterr().err
