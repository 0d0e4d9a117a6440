"""What many tests need: one real PostgreSQL for the run, and a fresh database for each test that asks."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from overnight.store.embedded import Embedded, ensure

BINARIES = os.environ.get("OVERNIGHT_TEST_POSTGRES")
"""A folder with PostgreSQL's programs, to run the suite on another version than the one found first."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Embedded]:
    """The server that all tests of a run share. Don't stop or break it: start your own for that."""
    folder = tmp_path_factory.mktemp("postgres")
    settings = {"shared_buffers": "64MB", "max_wal_size": "1GB"}
    async with await ensure(folder, binaries=Path(BINARIES) if BINARIES else None, settings=settings) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template_database(postgres: Embedded) -> str:
    """The name of the database that every test's own is copied from.

    Whatever all tests should find in their database is made here, once. Nobody may stay connected to it.
    """
    name = "template_overnight"
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return name


@pytest_asyncio.fixture
async def database_url(postgres: Embedded, template_database: str) -> AsyncIterator[str]:
    """The URL of a fresh database, dropped after the test even if connections are left."""
    name = f"test_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
        yield postgres.dsn_of(name)
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()
