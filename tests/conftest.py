"""What many tests need: one real PostgreSQL for the run, and a fresh database for each test that asks."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from overnight.store.embedded import Embedded, ensure
from overnight.store.migrate import migrate
from overnight.store.pool import Store

BINARIES = os.environ.get("OVERNIGHT_TEST_POSTGRES")
"""A folder with PostgreSQL's programs, to run the suite on another version than the one found first."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Embedded]:
    """The server that all tests of a run share. Don't stop or break it: start your own for that."""
    folder = tmp_path_factory.mktemp("postgres")
    # Nothing of this server outlives the run; tests of durability start their own.
    settings = {"shared_buffers": "64MB", "max_wal_size": "1GB", "fsync": "off", "full_page_writes": "off"}
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
    """The URL of a fresh, empty database, dropped after the test even if connections are left."""
    async with _copy(postgres, template_database) as url:
        yield url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def migrated_template(postgres: Embedded, template_database: str) -> str:
    """The name of a database with this version's schema, for tests to copy."""
    name = "template_migrated"
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
    finally:
        await connection.close()
    connection = await asyncpg.connect(postgres.dsn_of(name))
    try:
        await migrate(connection)
    finally:
        await connection.close()
    return name


@pytest_asyncio.fixture
async def store_url(postgres: Embedded, migrated_template: str) -> AsyncIterator[str]:
    """The URL of the database that `store` works on, for tests that open it a second time."""
    async with _copy(postgres, migrated_template) as url:
        yield url


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open store on a fresh database with this version's schema."""
    opened = await Store(store_url, most=8).open()
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def _copy(postgres: Embedded, template: str) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            yield postgres.dsn_of(name)
        finally:
            await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()


@pytest.fixture
def collector_as_before() -> Iterator[None]:
    """A process tunes the collector for itself when it starts; the run of the tests is to keep its own."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
