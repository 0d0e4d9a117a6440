"""What every engine promises: it starts, answers, is watched, comes back, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from overnight.engine.errors import EngineError
from overnight.engine.names import Engine
from overnight.engine.supervise import LocalEngine, Phase
from tests.engine.conftest import Watch, ask, counted, gone, has_ended, is_down, is_ready, linux_only
from tests.engine.drivers import CONTEXT, Driver
from tests.upstreams.judge import judge


@pytest.fixture
async def running(driver: Driver) -> AsyncIterator[LocalEngine]:
    async with LocalEngine(driver.launch(), pace=driver.pace()) as engine:
        await engine.wait_ready()
        yield engine


def family(engine: LocalEngine) -> list[int]:
    """Its process and all that this one started."""
    assert engine.pid is not None
    first = psutil.Process(engine.pid)
    return [first.pid, *(child.pid for child in first.children(recursive=True))]


async def test_it_starts_answers_whoever_has_its_key_and_stops(driver: Driver, running: LocalEngine) -> None:
    body = {"model": running.model.id, "prompt": "go on", "max_tokens": 3}

    reply = await ask(running, "/v1/completions", body)
    refused = await ask(running, "/v1/completions", body, key="wrong")
    counted = await ask(running, "/tokenize", {"prompt" if driver.engine is Engine.VLLM else "content": "go on"})
    pids = family(running)
    await running.stop()

    assert reply.json()["usage"]["completion_tokens"] == 3
    assert reply.json()["model"] == running.model.id
    assert refused.status_code == 401
    assert counted.status_code == 200
    assert running.state.phase is Phase.STOPPED
    assert all(has_ended(pid) for pid in pids)


async def test_it_says_how_long_a_request_may_be_and_refuses_a_longer_one_with_both_numbers(
    driver: Driver, running: LocalEngine
) -> None:
    one = await ask(running, "/v1/completions", {"prompt": "x ", "max_tokens": 1})
    fits = await ask(running, "/v1/completions", {"prompt": "x " * 100, "max_tokens": 1})
    each = (fits.json()["usage"]["prompt_tokens"] - one.json()["usage"]["prompt_tokens"]) // 99
    long = await ask(running, "/v1/completions", {"prompt": "x " * (300 // each), "max_tokens": 1})

    assert running.context_length == CONTEXT
    found = judge(long.content, long.status_code, local=True)
    assert found.code == "context_length_exceeded"
    # vLLM stops counting there.
    length = 300 // each * each if driver.engine is Engine.LLAMA_CPP else f"of at least {CONTEXT + 1}"
    assert found.message == f"Prompt length {length} exceeds model context {CONTEXT}"


async def test_it_counts_a_prompt_before_it_runs_as_when_it_runs(running: LocalEngine) -> None:
    system, user = {"role": "system", "content": "be brief"}, {"role": "user", "content": "hello there, wörld 你好"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": [system, user]}),
        ("/v1/chat/completions", {"messages": [user], "seed": 1, "chat_template_kwargs": {"enable_thinking": False}}),
        ("/v1/completions", {"prompt": "go on and on"}),
    ]
    for url, body in asked:
        reply = await ask(running, url, {**body, "max_tokens": 1})
        assert await counted(running, url, body) == reply.json()["usage"]["prompt_tokens"]
    # It counts to the end, also where the prompt is too long to be run.
    each = await counted(running, "/v1/completions", {"prompt": "x "}) or 0
    assert (await counted(running, "/v1/completions", {"prompt": "x " * 2_000}) or 0) > 1_000 * each


async def test_killed_it_says_so_and_comes_back_with_another_key(driver: Driver, running: LocalEngine) -> None:
    watch = Watch(running)
    first_key, first = running.api_key, family(running)

    # That of vLLM is the child of the one that we started.
    os.kill(first[1 if driver.engine is Engine.VLLM else 0], signal.SIGKILL)

    down = await watch.until(is_down)
    assert (down.reason or "").startswith("its process was ended by SIGKILL")
    await watch.until(is_ready)
    assert running.api_key != first_key
    assert all(has_ended(pid) for pid in first)
    reply = await ask(running, "/v1/completions", {"prompt": "again", "max_tokens": 2})
    assert reply.status_code == 200


async def test_hung_it_is_killed_with_all_that_it_started_and_comes_back(driver: Driver) -> None:
    async with LocalEngine(driver.launch(), pace=driver.pace(patient=False)) as engine:
        await engine.wait_ready()
        watch = Watch(engine)
        first = family(engine)
        assert engine.pid is not None

        os.killpg(engine.pid, signal.SIGSTOP)

        down = await watch.until(is_down)
        assert down.reason == "it did not answer 3 health checks in a row"
        await watch.until(is_ready)
        assert all(has_ended(pid) for pid in first)


async def test_a_model_that_cannot_be_loaded_ends_the_start_with_one_sentence(driver: Driver, tmp_path: Path) -> None:
    launch = driver.launch()
    moved = tmp_path / "gone"
    command = tuple(str(moved) if part == str(launch.model.path) else part for part in launch.command)
    launch = replace(launch, command=command, model=replace(launch.model, path=moved))

    async with LocalEngine(launch, pace=driver.pace()) as engine:
        with pytest.raises(EngineError) as told:
            await engine.wait_ready()

    assert str(told.value).startswith(f"The engine cannot serve {moved}: ")
    assert str(told.value).count("\n") == 0
    assert "gone" in str(told.value).partition(": ")[2] or "No such file" in str(told.value)


@pytest.mark.parametrize("flag", ["--port=1", "--host=0.0.0.0", "--api-key=x", "--api-k=x", "--model=x"])
def test_flags_that_overnight_sets_itself_are_refused(driver: Driver, flag: str) -> None:
    with pytest.raises(EngineError, match=f"--engine-arg={flag.partition('=')[0]} cannot be passed to "):
        driver.launch(args=[flag])


async def test_a_flag_that_the_engine_does_not_have_ends_the_start_with_its_name(driver: Driver) -> None:
    async with LocalEngine(driver.launch(args=["--no-such-flag=1"]), pace=driver.pace()) as engine:
        with pytest.raises(EngineError, match="--no-such-flag"):
            await engine.wait_ready()


PARENT = """
import asyncio, sys
from pathlib import Path
import psutil, uvloop
from overnight.engine.names import Engine
from overnight.engine.supervise import LocalEngine
from tests.engine.drivers import Driver

async def main():
    driver = Driver(Engine(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    async with LocalEngine(driver.launch()) as engine:
        await engine.wait_ready()
        first = psutil.Process(engine.pid)
        print(first.pid, *(child.pid for child in first.children(recursive=True)), flush=True)
        await asyncio.Event().wait()

uvloop.run(main())
"""


@linux_only
def test_when_its_parent_is_killed_all_of_it_goes_too(driver: Driver) -> None:
    command = [sys.executable, "-c", PARENT, driver.engine, str(driver.model)]
    command += [str(driver.command)] if driver.command else []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()

    assert len(pids) >= (1 if driver.engine is Engine.LLAMA_CPP else 2)
    assert all(gone(pid) for pid in pids)
