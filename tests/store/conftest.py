"""Folders of embedded servers that a test may break."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from overnight.store.embedded import ensure
from tests.store.processes import BINARIES, SMALL, until_stopped


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data directory whose server has stopped; made once, because initdb takes its time."""
    folder = tmp_path_factory.mktemp("made") / "server"
    (await ensure(folder, binaries=BINARIES, settings=SMALL, grace=0)).release()
    await until_stopped(folder)
    for name in ("keeper.log", "postgres.log", "socket"):
        (folder / name).unlink()
    return folder


@pytest_asyncio.fixture
async def folder(made_folder: Path, tmp_path: Path) -> AsyncIterator[Path]:
    """A folder of the test's own, whose server must be gone soon after the test."""
    copy = tmp_path / "server"
    shutil.copytree(made_folder, copy)
    yield copy
    await until_stopped(copy)
