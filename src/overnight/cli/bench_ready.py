"""What `overnight bench` measures: a server of Overnight, and the model server behind it, made ready to be asked."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import httpx

from overnight.cli.inputs import Input
from overnight.cli.job import endpoint_of
from overnight.cli.measure import CHAT, Batches, Loop
from overnight.client import AsyncClient
from overnight.domain.errors import Unusable
from overnight.domain.targets import TARGETS
from overnight.settings import Settings
from overnight.upstreams.address import read_address

if TYPE_CHECKING:
    from overnight.server import Server as Process

UPSTREAM_SLOTS = 64
"""Requests at once of an upstream of which nothing else is said: the loop needs a number, and both have the same."""
LISTED_WITHIN = 20.0
"""Seconds in which a server has to say which models it serves."""
LOOKS_FOR_ITS_END = 300
"""20 looks a second for the end of the database."""
_CPU = re.compile(r"^process_cpu_seconds_total (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured. `requests` None: as many as fit into `seconds`."""

    file: Path | None
    requests: int | None
    seconds: float
    rounds: int
    words: int
    tokens: int
    name: str | None


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured: the batches, the loop where the model server can be asked directly, and what to ask for."""

    batches: Batches
    loop: Loop | None
    model: str
    url: str


@asynccontextmanager
async def ready(plan: Plan, server: str | None, settings: Settings) -> AsyncIterator[Bench]:
    """The server to measure, with a model that it serves, and the way round it."""
    if plan.file is not None and not plan.file.is_file():
        raise Unusable(f"There is no file {plan.file}.")
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="overnight-bench-", ignore_cleanup_errors=True)))
        process = None
        if server is None:
            process = await stack.enter_async_context(_own(scratch / "data", settings))
        client = await stack.enter_async_context(AsyncClient(process.url if process else server or ""))
        url = CHAT if plan.file is None else endpoint_of(Input(plan.file.name, plan.file))
        model, url = await _model(client, plan, url)
        loop = _loop(process, settings)
        if loop is not None:
            stack.push_async_callback(loop.close)
        batches = Batches(
            client,
            scratch,
            times=partial(_times, process),
            cpu=_own_cpu if process else partial(_cpu_of, client.base_url),
            goes_away=process is not None,
        )
        yield Bench(batches, loop, model, url)


@asynccontextmanager
async def _own(folder: Path, settings: Settings) -> AsyncIterator[Process]:
    from overnight.engine.errors import EngineError
    from overnight.server import running
    from overnight.store.embedded import is_running

    upstreams = tuple(replace(u, slots=u.slots or UPSTREAM_SLOTS) for u in settings.upstreams)
    chosen = replace(settings, data_dir=folder, port=0, upstreams=upstreams, grace_seconds=0.0)
    try:
        async with running(chosen) as process:
            try:
                for engine in process.engines:
                    await engine.wait_ready()
            except EngineError as e:
                raise Unusable(str(e)) from None
            yield process
    finally:
        # The database ends a moment after its last user; its folder cannot be removed before.
        for _ in range(LOOKS_FOR_ITS_END):
            if not is_running(folder / "postgres"):
                break
            await asyncio.sleep(0.05)


def _loop(process: Process | None, settings: Settings) -> Loop | None:
    if process is not None and process.engines:
        engine = process.engines[0]
        room = engine.launch.room
        slots = engine.slots if room is None else room.sure
        return Loop(f"{engine.base_url}/v1", engine.api_key, slots)
    for upstream in settings.upstreams:
        try:
            prefix = read_address(upstream.url).prefix
        except ValueError as e:
            raise Unusable(f"--upstream cannot be used: {e}") from None
        base_url = upstream.url.rstrip("/") + ("" if prefix else "/v1")
        return Loop(base_url, upstream.api_key, upstream.slots or UPSTREAM_SLOTS)
    return None


async def _model(client: AsyncClient, plan: Plan, url: str) -> tuple[str, str]:
    """The model to ask for, and the endpoint: made-up requests are for one that the model has. Raises Unusable."""
    ends = time.monotonic() + LISTED_WITHIN
    while True:
        served = await client.models()
        found = [model for model in served if plan.name in (None, model["id"], *model.get("aliases", ()))]
        if found or time.monotonic() > ends:
            break
        await asyncio.sleep(0.2)
    if plan.file is not None:
        return found[0]["id"] if len(found) == 1 else "the models of the file", url
    if not found and plan.name is None:
        raise Unusable("The server says of no model that it serves it. Name one with --name.")
    model = plan.name or found[0]["id"]
    targets = found[0].get("targets", ["chat"]) if found else ["chat"]
    return model, next((u for u, target in TARGETS.items() if target.name in targets), url)


async def _times(process: Process | None, batch_id: str) -> list[float]:
    from overnight.store.answers import list_times
    from overnight.store.batches import find_batch_no

    if process is None:
        return []
    no = await find_batch_no(process.store, batch_id)
    return [] if no is None else [ms / 1_000 for ms in await list_times(process.store, no)]


async def _own_cpu() -> float | None:
    return time.process_time()


async def _cpu_of(base_url: str) -> float | None:
    """The processor time of a running server, where it tells."""
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        try:
            found = _CPU.search((await http.get(f"{base_url}/metrics")).text)
        except httpx.HTTPError:
            return None
    return float(found[1]) if found else None
