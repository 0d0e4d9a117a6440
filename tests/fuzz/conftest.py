"""The application in this process, over a real database, with what moves batches on."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from overnight.api.app import Deps, create_app
from overnight.domain import plan
from overnight.domain.limits import KIB, Limits
from overnight.loops import Bell
from overnight.store.pool import Store
from overnight.upkeep import ingest
from overnight.upkeep.validate import Validate
from tests.api import described
from tests.batches.factory import Factory, make_factory
from tests.fuzz.jsonl import LONGEST_LINE

LIMITS = Limits(line_bytes=LONGEST_LINE, file_bytes=48 * KIB, create_body_bytes=48 * KIB, intake=100)


@dataclass
class House:
    """The application and what is behind it."""

    http: httpx.AsyncClient
    make: Factory

    async def upload(self, data: bytes) -> httpx.Response:
        return await self.http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", data)})

    async def create(self, **given: Any) -> httpx.Response:
        return await self.http.post("/v1/batches", json=given)

    async def validated(self, batch_id: str) -> dict[str, Any]:
        """Do what upkeep does with new batches, and look at one."""
        while await Validate(self.make.deps).round():
            pass
        found: dict[str, Any] = (await self.http.get(f"/v1/batches/{batch_id}")).json()
        return found

    async def left(self) -> dict[str, int]:
        """How many rows there are of what batches and uploads leave."""
        tables = ("batch", "block", "roll", "attempt", "segment", "answer", "file", "file_chunk")
        counts = ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in tables)
        async with self.make.store.session() as session:
            return dict(await session.connection.fetchrow(f"SELECT {counts}"))

    async def clear(self) -> None:
        await self.make.run("DELETE FROM block; DELETE FROM roll; DELETE FROM batch; DELETE FROM file_chunk")
        await self.make.run("DELETE FROM file")


@pytest_asyncio.fixture
async def house(store: Store) -> AsyncIterator[House]:
    async with _house(store, LIMITS) as made:
        yield made


@pytest_asyncio.fixture
async def roomy_house(store: Store) -> AsyncIterator[House]:
    """One where lines may be as long as a call."""
    async with _house(store, dataclasses.replace(LIMITS, line_bytes=LIMITS.create_body_bytes)) as made:
        yield made


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files have several blocks, and these are stored before the last line is read."""
    monkeypatch.setattr(plan, "BLOCK_LINES", 2)
    monkeypatch.setattr(ingest, "GROUP_BLOCKS", 1)


@asynccontextmanager
async def _house(store: Store, limits: Limits) -> AsyncIterator[House]:
    make = await make_factory(store)
    make.limits = limits
    app = create_app(Deps(store, limits, make.owner, _well, Bell()))
    hooks = {"response": [described.check]}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", event_hooks=hooks) as http:
        yield House(http, make)


async def _well() -> str | None:
    return None
