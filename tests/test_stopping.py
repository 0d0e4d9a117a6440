"""A whole process is told to stop while people wait for their answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from overnight.api import listen
from overnight.server import Server, running
from overnight.settings import Settings
from overnight.settings import Upstream as Address
from tests.scripted_upstream import Asked, Gate, Say, Upstream, serving
from tests.worker.rig import CHAT

pytestmark = pytest.mark.usefixtures("collector_as_before")


@dataclass
class House:
    """A process before a model server that holds each request until its gate is opened."""

    upstream: Upstream
    server: Server
    told: asyncio.Event
    process: asyncio.Task[None]
    gates: dict[str, Gate] = field(default_factory=lambda: defaultdict(Gate))

    async def answer(self, asked: Asked) -> Say:
        return await self.gates[asked.name](asked)

    async def ask(self) -> httpx.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": "call"}]}
        async with httpx.AsyncClient(base_url=self.server.url, trust_env=False, timeout=60) as http:
            return await http.post(CHAT, json=body)

    async def tell_to_stop(self) -> None:
        """Return once it has begun to stop."""
        self.told.set()
        while self.server.http is None or not self.server.http.should_exit:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def house(store_url: str, folder: Path, grace: float) -> AsyncIterator[House]:
    begun: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
    told = asyncio.Event()

    async def run(upstream: Upstream) -> None:
        address = Address(upstream.url, slots=2)
        settings = Settings(folder, port=0, database_url=store_url, upstreams=(address,), grace_seconds=grace)
        async with running(settings) as server:
            begun.set_result(server)
            await told.wait()

    async with asyncio.timeout(120), serving() as upstream:
        process = asyncio.create_task(run(upstream))
        made = House(upstream, await begun, told, process)
        upstream.script = made.answer
        yield made
        told.set()
        await process


async def test_a_call_under_way_has_the_grace_that_batches_have(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "LEAST_GRACE", 0.0)
    async with house(store_url, tmp_path, grace=600) as process:
        calling = asyncio.create_task(process.ask())
        await process.upstream.until_in_flight(1)
        await process.tell_to_stop()
        process.gates["call"].open()
        assert (await calling).status_code == 200
        await process.process


@pytest.mark.parametrize(("grace", "is_hurried"), [(0.0, False), (600.0, True)])
async def test_a_call_whose_grace_is_over_is_told_so(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace: float, is_hurried: bool
) -> None:
    monkeypatch.setattr(listen, "LEAST_GRACE", 0.0)
    async with house(store_url, tmp_path, grace) as process:
        calling = asyncio.create_task(process.ask())
        await process.upstream.until_in_flight(1)
        await process.tell_to_stop()
        if is_hurried:
            process.server.hurry()
        answered = await calling
        assert (answered.status_code, answered.json()["error"]["code"]) == (503, "service_unavailable")
        await process.process
