"""Engines on tiny models, and a way to talk to them."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from overnight.engine.launch import Launch, llama_cpp
from overnight.engine.model import read_model
from overnight.engine.names import Engine
from overnight.engine.supervise import EngineState, LocalEngine, Phase
from overnight.engine.watch import Pace
from tests.engine.drivers import REAL_VLLM, Driver, make_driver
from tests.tiny_model import write_tiny_embedding_model, write_tiny_model

QUICK = Pace(look_every=0.05, answer_within=30.0, grace=30.0)
"""Looks often, and is patient: a busy machine must not look like a hung engine."""


LIMIT = 600.0 if REAL_VLLM else 60.0
"""How long a test waits for what must come, in seconds; it comes in a fraction of it."""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="follows a process by Linux's pidfd")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny-random.F32.gguf")


@pytest.fixture(scope="session")
def tiny_embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_embedding_model(tmp_path_factory.mktemp("model") / "tiny-embedder.gguf", context_length=1_024)


@pytest.fixture(scope="session", params=list(Engine))
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """Each engine that Overnight can start."""
    return make_driver(request.param, tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def vllm_driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(Engine.VLLM, tmp_path_factory.mktemp("driver"))


@pytest.fixture
async def engine(tiny: Path) -> AsyncIterator[LocalEngine]:
    launch = llama_cpp(read_model(tiny), slots=2, context_length=256, threads=1)
    async with LocalEngine(launch, pace=QUICK) as engine:
        await engine.wait_ready()
        yield engine


@pytest.fixture
async def embedder(tiny_embedder: Path) -> AsyncIterator[LocalEngine]:
    launch = llama_cpp(read_model(tiny_embedder), slots=2, threads=1)
    async with LocalEngine(launch, pace=QUICK) as engine:
        await engine.wait_ready()
        yield engine


async def ask(engine: LocalEngine, path: str, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    """One call of the engine's HTTP interface, with its own key unless another is given."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client:
        return await client.post(
            f"{engine.base_url}{path}", json=body, headers={"Authorization": f"Bearer {key or engine.api_key}"}
        )


async def counted(engine: LocalEngine, url: str, body: dict[str, Any], least: int = 0) -> int | None:
    """What the engine says when it is asked as `count` tells."""
    assert engine.launch.count is not None
    counting = engine.launch.count(url, json.dumps(body).encode(), least)
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client:
        try:
            wanted = next(counting)
            while True:
                headers = {"Authorization": f"Bearer {engine.api_key}", "Content-Type": "application/json"}
                reply = await client.post(f"{engine.base_url}{wanted.path}", content=wanted.body, headers=headers)
                assert reply.status_code == 200, reply.text
                wanted = counting.send(reply.content)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def chat(text: str, **more: Any) -> dict[str, Any]:
    """The body of a chat request with one message of the user."""
    return {"model": "tiny-random", "messages": [{"role": "user", "content": text}], **more}


def small(path: Path) -> Launch:
    return llama_cpp(read_model(path), slots=1, context_length=256, threads=1)


def gone(pidfd: int) -> bool:
    """Wait for the end of a process that need not be our child; whether it came."""
    try:
        return bool(select.select([pidfd], [], [], LIMIT)[0])
    finally:
        os.close(pidfd)


def has_ended(pid: int) -> bool:
    """Wait for the end of a process of any parent; whether it came. One that nobody has collected yet has ended."""
    if sys.platform != "linux":
        return psutil.Process(pid).wait(LIMIT) is None if psutil.pid_exists(pid) else True
    try:
        return gone(os.pidfd_open(pid))
    except ProcessLookupError:
        return True


class Watch:
    """Collects an engine's states and waits for one."""

    def __init__(self, engine: LocalEngine) -> None:
        self.seen: list[EngineState] = []
        self.queue: asyncio.Queue[EngineState] = asyncio.Queue()
        engine.on_change(self.queue.put_nowait)

    async def until(self, wanted: Callable[[EngineState], bool]) -> EngineState:
        async with asyncio.timeout(LIMIT):
            while True:
                state = await self.queue.get()
                self.seen.append(state)
                if wanted(state):
                    return state


def is_ready(state: EngineState) -> bool:
    return state.phase is Phase.READY


def is_down(state: EngineState) -> bool:
    return state.phase is Phase.DOWN
