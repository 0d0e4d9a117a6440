"""An engine that dies or hangs comes back, one that cannot start says why, and none outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from overnight.engine import supervise
from overnight.engine.child import LOOK_EVERY, wait_in_turns
from overnight.engine.errors import EngineError
from overnight.engine.launch import Launch
from overnight.engine.memory import kills_for_memory
from overnight.engine.pulse import Reading
from overnight.engine.supervise import LocalEngine, Phase, restart_wait
from overnight.engine.watch import Pace
from tests.engine.conftest import LIMIT, QUICK, Watch, ask, chat, gone, is_down, is_ready, linux_only, small


def saying(tiny: Path, program: str) -> Launch:
    """A launch of any program of ours in place of the engine."""
    return replace(small(tiny), command=(sys.executable, "-c", program))


def kill(engine: LocalEngine, number: signal.Signals = signal.SIGKILL) -> None:
    assert engine.pid is not None
    os.kill(engine.pid, number)


async def test_it_loads_then_is_ready_then_stopped(tiny: Path) -> None:
    engine = LocalEngine(small(tiny), pace=QUICK)
    watch = Watch(engine)

    await engine.start()
    assert engine.state.phase is Phase.LOADING
    assert (engine.base_url, engine.api_key) == (None, None)
    await engine.wait_ready()
    assert engine.base_url is not None
    await engine.stop()
    await engine.stop()

    await watch.until(lambda state: state.phase is Phase.STOPPED)
    assert [state.phase for state in watch.seen] == [Phase.LOADING, Phase.READY, Phase.STOPPED]
    assert not engine.is_ready
    assert not any((engine.base_url, engine.api_key, engine.pid))
    with pytest.raises(EngineError, match="is stopped"):
        await engine.wait_ready()


async def test_killed_it_says_so_and_comes_back_by_itself(tiny: Path) -> None:
    async with LocalEngine(small(tiny), pace=QUICK) as engine:
        await engine.wait_ready()
        watch = Watch(engine)
        first_key, first_pid = engine.api_key, engine.pid

        kill(engine)
        down = await watch.until(is_down)
        assert down.reason == "its process was ended by SIGKILL"
        assert engine.base_url is None

        await watch.until(is_ready)
        assert [state.phase for state in watch.seen] == [Phase.DOWN, Phase.LOADING, Phase.READY]
        assert watch.seen[1].reason == down.reason
        assert engine.state.starts == 2
        assert engine.pid != first_pid
        assert engine.api_key != first_key
        reply = await ask(engine, "/v1/chat/completions", chat("again", max_tokens=3))
        assert reply.status_code == 200


async def test_hung_it_is_killed_and_comes_back(tiny: Path) -> None:
    pace = Pace(look_every=0.05, answer_within=0.2, misses=3, grace=5.0)
    async with LocalEngine(small(tiny), pace=pace) as engine:
        await engine.wait_ready()
        watch = Watch(engine)

        kill(engine, signal.SIGSTOP)

        down = await watch.until(is_down)
        assert down.reason == "it did not answer 3 health checks in a row"
        await watch.until(is_ready)


async def test_a_restart_that_fails_says_why_and_is_tried_again(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "moved.gguf"
    path.write_bytes(tiny.read_bytes())
    async with LocalEngine(small(path), pace=QUICK) as engine:
        await engine.wait_ready()
        watch = Watch(engine)
        aside = path.rename(tmp_path / "aside")
        kill(engine)
        await watch.until(is_down)

        failed = await watch.until(is_down)
        assert "moved.gguf" in (failed.reason or "")
        assert "No such file" in (failed.reason or "")

        aside.rename(path)
        await watch.until(is_ready)


async def test_loading_is_no_service_after_which_restarts_wait_shortly_again(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []

    def at_once(failures: int) -> float:
        waited.append(failures)
        return 0.0

    monkeypatch.setattr(supervise, "restart_wait", at_once)
    path = tmp_path / "moved.gguf"
    path.write_bytes(tiny.read_bytes())
    async with LocalEngine(small(path), pace=replace(QUICK, ran_well=0.0)) as engine:
        await engine.wait_ready()
        watch = Watch(engine)
        path.unlink()
        kill(engine)
        for _ in range(3):
            await watch.until(is_down)

    assert waited[:3] == [1, 2, 3]


def test_restarts_wait_longer_each_time_up_to_a_limit() -> None:
    assert [restart_wait(failures) for failures in (1, 2, 3, 7, 8, 1_000)] == [0.5, 1, 2, 30, 30, 30]


async def test_a_truncated_model_ends_the_first_start_with_its_name_and_the_reason(tiny: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:300_000])

    async with LocalEngine(small(cut), pace=QUICK) as engine:
        with pytest.raises(EngineError, match=r"cut\.gguf: .*not within the file bounds"):
            await engine.wait_ready()
        assert engine.state.phase is Phase.DOWN
        assert engine.pid is None


async def test_what_an_engine_said_last_is_heard_though_the_machine_stood_still_meanwhile() -> None:
    async def follow() -> None:
        await asyncio.sleep(0)
        # All that is waited for is there afterwards, and it takes a few turns to read it.
        time.sleep(2 * LOOK_EVERY)
        for _ in range(10):
            await asyncio.sleep(0)

    following = asyncio.create_task(follow())
    await wait_in_turns(following, 2 * LOOK_EVERY)
    assert following.done()


async def test_a_model_removed_before_the_first_start_is_named(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "removed.gguf"
    path.write_bytes(tiny.read_bytes())
    launch = small(path)
    path.unlink()

    async with LocalEngine(launch, pace=QUICK) as engine:
        with pytest.raises(EngineError, match=r"removed\.gguf.*No such file"):
            await engine.wait_ready()


async def test_without_the_engine_package_the_error_says_what_to_install(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('no such thing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async with LocalEngine(small(tiny), pace=QUICK) as engine:
        with pytest.raises(EngineError, match=r"pip install 'overnight\[engine\]'"):
            await engine.wait_ready()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os; os.abort()", "was ended by SIGABRT"),
        ("raise SystemExit(3)", "exit code 3"),
        ("print('hello')", "not its ready line"),
        ("print('[1]')", "not its ready line"),
        ("print('x' * 1_000_000)", "not its ready line"),
    ],
)
async def test_a_process_that_fails_in_any_way_is_one_clear_error(tiny: Path, program: str, says: str) -> None:
    async with LocalEngine(saying(tiny, program), pace=QUICK) as engine:
        with pytest.raises(EngineError, match=says):
            await engine.wait_ready()


async def test_a_program_that_is_not_there_is_one_clear_error(tiny: Path) -> None:
    launch = replace(small(tiny), command=("/nowhere/engine",))
    async with LocalEngine(launch, pace=QUICK) as engine:
        with pytest.raises(EngineError, match="cannot be started"):
            await engine.wait_ready()


async def test_a_load_without_end_is_given_up(tiny: Path) -> None:
    pace = replace(QUICK, load_within=0.1)
    async with LocalEngine(saying(tiny, "input(); input()"), pace=pace) as engine:
        with pytest.raises(EngineError, match="did not finish loading"):
            await engine.wait_ready()


@linux_only
async def test_stopped_while_it_loads_it_leaves_no_process(tiny: Path) -> None:
    engine = LocalEngine(saying(tiny, "input(); print('x', end='', flush=True); input()"), pace=QUICK)
    await engine.start()
    while engine.pid is None:
        await asyncio.sleep(0)
    pidfd = os.pidfd_open(engine.pid)

    await engine.stop()

    assert gone(pidfd)
    assert engine.state.phase is Phase.STOPPED


@linux_only
async def test_a_process_deaf_to_sigterm_is_killed_after_the_grace(tiny: Path) -> None:
    engine = LocalEngine(small(tiny), pace=Pace(look_every=60, grace=0.1))
    await engine.start()
    await engine.wait_ready()
    assert engine.pid is not None
    pidfd = os.pidfd_open(engine.pid)
    kill(engine, signal.SIGSTOP)

    await engine.stop()

    assert gone(pidfd)


async def test_its_log_is_private_and_tells_nothing_of_the_requests(tiny: Path, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    async with LocalEngine(small(tiny), log_path=log, pace=QUICK) as engine:
        await engine.wait_ready()
        for body in (
            chat("hello", grammar="root ::= Geheimnis ("),
            chat("hello", response_format={"type": "json_schema", "json_schema": {"schema": {"type": "Geheimnis"}}}),
            chat("Geheimnis " * 100),
            {"messages": "Geheimnis"},
        ):
            assert (await ask(engine, "/v1/chat/completions", body)).status_code == 400
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.post(
                f"{engine.base_url}/v1/completions",
                content=b'{"prompt": "Geheimnis" x',
                headers={"Authorization": f"Bearer {engine.api_key}"},
            )
        key = engine.api_key

    written = log.read_text()
    assert "exceeds the available context size" in written
    assert "Geheimnis" not in written
    assert key is not None
    assert key not in written
    assert log.stat().st_mode & 0o777 == 0o600


async def test_a_log_that_cannot_be_written_does_not_end_the_engine(tiny: Path, tmp_path: Path) -> None:
    async with LocalEngine(small(tiny), log_path=tmp_path / "missing" / "engine.log", pace=QUICK) as engine:
        await engine.wait_ready()
        refused = await ask(engine, "/v1/chat/completions", chat("x" * 400))
        reply = await ask(engine, "/v1/chat/completions", chat("hello", max_tokens=3))

        assert (refused.status_code, reply.status_code) == (400, 200)
        assert engine.state.starts == 1


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGKILL, "its process was ended by SIGKILL, for lack of memory"),
        (signal.SIGTERM, "its process was ended by SIGTERM, and the system has killed processes for lack of memory"),
    ],
)
async def test_one_that_the_system_killed_for_lack_of_memory_says_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, says: str
) -> None:
    counts = iter((3, 4, 4))
    monkeypatch.setattr(supervise, "kills_for_memory", lambda: next(counts))
    async with LocalEngine(small(tiny), pace=QUICK) as engine:
        await engine.wait_ready()
        watch = Watch(engine)

        kill(engine, number)

        down = await watch.until(is_down)
        assert down.reason == says


@linux_only
def test_the_system_tells_how_many_it_killed_for_lack_of_memory() -> None:
    assert kills_for_memory() is not None


async def test_one_that_works_and_takes_no_step_is_given_up(tiny: Path) -> None:
    """As when the thread that computes hangs, while those that answer HTTP go on."""
    launch = replace(small(tiny), pulse=lambda page: Reading(1, 5.0) if "n_decode_total" in page else None)
    pace = Pace(look_every=0.01, pulse_every=0.01, still_within=0.2, answer_within=LIMIT)
    async with LocalEngine(launch, pace=pace) as engine:
        await engine.wait_ready()
        down = await Watch(engine).until(is_down)

    assert (down.reason or "").endswith("seconds without a step")
