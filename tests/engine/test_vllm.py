"""What is vLLM's own: how it is started, what its log tells, how it ends; a stand-in process plays its part."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from overnight.domain.bodies.carry import first_lacking
from overnight.domain.concurrency.state import Bounds
from overnight.engine import child
from overnight.engine.errors import EngineError
from overnight.engine.lacks import VLLM
from overnight.engine.launch import Launch
from overnight.engine.model import ModelFile, read_folder
from overnight.engine.supervise import LocalEngine, Phase
from overnight.engine.vllm import vllm
from overnight.engine.watch import Pace
from tests.domain.bodies.test_carry import line
from tests.engine.conftest import LIMIT, QUICK, Watch, ask, gone, has_ended, is_down, is_ready, linux_only
from tests.engine.drivers import REAL_VLLM, Driver

pytestmark = pytest.mark.skipif(REAL_VLLM is not None, reason="these play faults that a real vLLM has only by chance")

Plan = Callable[..., None]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Tells the stand-in how to behave."""
    return lambda **wishes: monkeypatch.setenv("STAND_IN", json.dumps(wishes))


@pytest.fixture
def model(vllm_driver: Driver) -> ModelFile:
    return read_folder(vllm_driver.model)


def made(driver: Driver, *args: str, **more: Any) -> Launch:
    return vllm(read_folder(driver.model), command=driver.command, args=args, **more)


def test_its_command_line_has_all_that_overnight_decides_after_what_the_user_passes(vllm_driver: Driver) -> None:
    launch = made(vllm_driver, "--tensor-parallel-size=2", "--dtype", "half", slots=32, context_length=10_000)

    at = launch.command.index("--")
    assert launch.command[at + 1 :] == (
        *(str(vllm_driver.command), "serve", str(vllm_driver.model)),
        *("--tensor-parallel-size=2", "--dtype", "half"),
        *("--served-model-name", "tiny", "--max-num-seqs", "32", "--max-model-len", "512"),
        *("--generation-config", "vllm", "--override-generation-config", '{"temperature": 0.0}'),
    )


@pytest.mark.parametrize(
    ("args", "slots", "sure", "most"),
    [
        ((), None, 256, 1_024),
        ((), 12, 12, 12),
        (("--max-num-seqs=64",), None, 64, 64),
        (("--max-num-seqs", "64"), 12, 64, 64),
        (("--max_num_seqs=64", "--data-parallel-size=4"), None, 256, 256),
        (("-dp", "2"), None, 512, 2_048),
        (("-dp=2",), 12, 24, 24),
        (("--max-num-seqs=many", "-tp", "2"), None, 256, 1_024),
    ],
)
def test_it_is_given_as_many_at_once_as_its_flags_let_it_bear(
    vllm_driver: Driver, args: tuple[str, ...], slots: int | None, sure: int, most: int
) -> None:
    launch = made(vllm_driver, *args, slots=slots)

    assert launch.room == Bounds(sure, most)
    assert launch.slots == most


def test_without_vllm_the_error_says_what_to_install(model: ModelFile, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"pip install 'overnight\[vllm\]'"):
        vllm(model)
    with pytest.raises(EngineError, match="There is no vLLM at /nowhere/vllm"):
        vllm(model, command=Path("/nowhere/vllm"))


def test_headless_is_for_the_other_machines(vllm_driver: Driver) -> None:
    with pytest.raises(EngineError, match="--headless cannot be passed to vLLM: the engine of a model must answer"):
        made(vllm_driver, "--headless")


def test_what_it_drops_is_known_and_what_it_takes_is_not_refused() -> None:
    for dropped in ({"guided_json": {"type": "object"}}, {"grammar": "root ::= x"}, {"repeat_penalty": 1.1}):
        assert first_lacking(line(dropped), VLLM) is not None
    for taken in (
        {"structured_outputs": {"json": {"type": "object"}}},
        {"response_format": {"type": "json_object"}},
        {"repetition_penalty": 1.1, "min_tokens": 2, "stop_token_ids": [1], "prompt_logprobs": 1},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
    ):
        assert first_lacking(line(taken), VLLM) is None


async def test_while_it_loads_it_is_loading_however_long_that_takes(vllm_driver: Driver, plan: Plan) -> None:
    """It is not there, then it answers 503, then it is ready."""
    plan(load_seconds=0.3, busy=3)
    async with LocalEngine(made(vllm_driver), pace=QUICK) as engine:
        assert engine.state.phase is Phase.LOADING
        assert engine.base_url is None
        await engine.wait_ready()
        assert (engine.slots, engine.context_length) == (1_024, 512)


async def test_a_load_without_end_is_given_up_and_leaves_no_process(
    vllm_driver: Driver, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"

    class Reads:
        """Gets on until it has started all that it has."""

        def __init__(self, group: int) -> None:
            pass

        def is_made(self) -> bool:
            return not pids.exists() or len(pids.read_text().split()) < 2

    monkeypatch.setattr(child, "Progress", Reads)
    plan(children=str(pids), never_loads=True)
    pace = replace(QUICK, load_within=0.1, grace=0.1)
    async with LocalEngine(made(vllm_driver), pace=pace) as engine:
        with pytest.raises(EngineError, match="did not finish loading"):
            await engine.wait_ready()
    assert all(has_ended(int(pid)) for pid in pids.read_text().split())


@linux_only
async def test_the_processes_of_all_its_gpus_go_when_it_is_killed(
    vllm_driver: Driver, plan: Plan, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    plan(children=str(pids))
    async with LocalEngine(made(vllm_driver), pace=QUICK) as engine:
        await engine.wait_ready()
        watch = Watch(engine)
        first = [os.pidfd_open(int(pid)) for pid in pids.read_text().split()]

        with pytest.raises(httpx.TransportError):
            await ask(engine, "/v1/completions", {"prompt": "vanish"})

        down = await watch.until(is_down)
        assert down.reason == "its process was ended by SIGKILL"
        assert all(gone(pid) for pid in first)


async def test_a_dead_engine_answers_its_requests_says_why_and_comes_back(
    vllm_driver: Driver, plan: Plan, tmp_path: Path
) -> None:
    plan(once=str(tmp_path), beside=8)
    # It says that it is unwell before it ends.
    pace = replace(QUICK, misses=1_000)
    async with LocalEngine(made(vllm_driver), log_path=tmp_path / "log", pace=pace) as engine:
        await engine.wait_ready()
        watch = Watch(engine)

        replies = await asyncio.gather(
            *(ask(engine, "/v1/completions", {"prompt": "wait a moment"}) for _ in range(8)),
            ask(engine, "/v1/completions", {"prompt": "die"}),
        )

        assert {reply.status_code for reply in replies} == {500}
        down = await watch.until(is_down)
        why = "CUDA out of memory. Tried to allocate 2.00 GiB"
        assert down.reason == f"its process ended with exit code 1: {why}"
        await watch.until(is_ready)
        again = await ask(engine, "/v1/completions", {"prompt": "die"})
        assert again.status_code == 200
    assert "EngineCore encountered a fatal error" in (tmp_path / "log").read_text()


async def test_one_that_says_it_is_dead_and_stays_is_given_up(vllm_driver: Driver, plan: Plan, tmp_path: Path) -> None:
    plan(once=str(tmp_path), lingers=True)
    async with LocalEngine(made(vllm_driver), pace=replace(QUICK, grace=0.1)) as engine:
        await engine.wait_ready()
        watch = Watch(engine)

        await ask(engine, "/v1/completions", {"prompt": "die"})

        down = await watch.until(is_down)
        assert (down.reason or "").startswith("it answered 503 to 3 health checks in a row: CUDA out of memory")
        await watch.until(is_ready)


async def test_one_that_takes_requests_and_never_answers_is_given_up(
    vllm_driver: Driver, plan: Plan, tmp_path: Path
) -> None:
    plan(once=str(tmp_path))
    pace = Pace(look_every=0.02, pulse_every=0.05, still_within=0.4, answer_within=LIMIT)
    async with LocalEngine(made(vllm_driver), pace=pace) as engine:
        await engine.wait_ready()
        watch = Watch(engine)

        asked = asyncio.create_task(ask(engine, "/v1/completions", {"prompt": "hang"}))
        down = await watch.until(is_down)
        await asyncio.wait([asked])

        assert (down.reason or "").endswith("seconds without a step")
        assert asked.exception() is not None
        await watch.until(is_ready)


async def test_one_that_rests_is_left_alone(vllm_driver: Driver) -> None:
    pace = Pace(look_every=0.01, pulse_every=0.01, still_within=0.1, answer_within=LIMIT)
    async with LocalEngine(made(vllm_driver), pace=pace) as engine:
        await engine.wait_ready()
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert engine.state.starts == 1
        assert engine.is_ready


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            [
                "(EngineCore pid=1) ERROR 11-29 20:41:23 [core.py:953] Traceback (most recent call last):",
                "(EngineCore pid=1) ERROR 11-29 20:41:23 [core.py:953] torch.OutOfMemoryError: CUDA out of memory.",
                "RuntimeError: Engine core initialization failed. See root cause above.",
            ],
            "CUDA out of memory.",
        ),
        (
            [
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
                "  Value error, Model architectures ['Odd'] are not supported [type=value_error, input_value=…]",
            ],
            "Model architectures ['Odd'] are not supported",
        ),
        (["usage: vllm serve [-h]", "vllm: error: unrecognized arguments: --odd"], "unrecognized arguments: --odd"),
        (["INFO 11-29 20:41:23 [core.py:1] Error: none"], None),
    ],
)
def test_the_cause_of_a_failed_start_is_found_in_its_log(vllm_driver: Driver, log: list[str], says: str | None) -> None:
    launch = made(vllm_driver)

    assert next((cause for cause in map(launch.cause, log) if cause), None) == says


async def test_its_log_tells_nothing_of_the_requests(vllm_driver: Driver, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    async with LocalEngine(made(vllm_driver), log_path=log, pace=QUICK) as engine:
        await engine.wait_ready()
        await ask(engine, "/v1/completions", {"prompt": "invalid Geheimnis"})
        key = engine.api_key

    written = log.read_text()
    assert "Avg prompt throughput" in written
    assert "Geheimnis" not in written
    assert key is not None
    assert key not in written
    assert key not in " ".join(engine.launch.command)
