"""What users of a batch server in front of one model were promised of that model: here a real engine runs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import overnight
from overnight.engine import supervise
from overnight.engine.watch import Pace
from overnight.server import running
from overnight.settings import Settings
from tests.acceptance.test_guide_a import parsed, write
from tests.acceptance.ways import WAYS, Body, Official, Way, ended
from tests.process import Served, chat
from tests.tiny_model import write_tiny_model
from tests.tiny_transformers import WIDTH, write_tiny_bert

pytest.importorskip("xllamacpp", reason="the engine is an extra that is not installed")

CONTEXT = 512
QUICK = Pace(look_every=0.05, answer_within=0.5, grace=5.0)
"""Sees soon that an engine hangs."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A model that chats, and one that makes vectors, as Transformers keep it."""
    folder = tmp_path_factory.mktemp("model")
    models = (write_tiny_model(folder / "test-model.gguf"), write_tiny_bert(folder / "tiny-bert"))
    flags = [word for model in models for word in ("--model", str(model))]
    flags += ["--max-context-length", str(CONTEXT), "--max-pool-size", "64"]
    with Served(tmp_path_factory.mktemp("engine"), *flags, "--max-intake-capacity", "5000") as served:
        yield served


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, engine: Served) -> Iterator[Way]:
    made = WAYS[request.param](engine.url)
    yield made
    made.close()


def run(way: Way, folder: Path, *lines: Body, **defaults: Any) -> dict[str, Body]:
    """All result lines of a batch, by custom_id."""
    done = ended(way, way.create(way.upload(write(folder, *lines))["id"], **defaults))
    assert done["status"] == "completed", done
    files = [done.get(name) for name in ("output_file_id", "error_file_id")]
    return {name: line for file in files if file for name, line in parsed(way.content(file)).items()}


def said(line: Body) -> str:
    return str(line["response"]["body"]["choices"][0]["message"]["content"])


def processes(engine: Served, model: str) -> list[psutil.Process]:
    """Those of the engine that runs a model."""
    assert engine.process is not None
    children = psutil.Process(engine.process.pid).children(recursive=True)
    lines = [(child, child.cmdline()) for child in children]
    return [c for c, words in lines if any("llama_server" in word for word in words) and model in words]


def numbers(line: Body) -> list[int]:
    """What the message of an error says in numbers."""
    return [int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", line["error"]["message"])]


def test_decoding_is_greedy_when_nothing_is_set(way: Way, tmp_path: Path) -> None:
    asked = chat("a", "say something", max_tokens=12)
    first, second = (said(run(way, tmp_path, asked)["a"]) for _ in range(2))
    greedy = said(run(way, tmp_path, {**asked, "body": {**asked["body"], "temperature": 0}})["a"])
    assert first == second == greedy


def test_a_sampling_default_of_the_batch_takes_effect(way: Way, tmp_path: Path) -> None:
    lines = [chat(f"r-{i}", "say something", max_tokens=12, seed=i) for i in range(8)]
    hot = {said(line) for line in run(way, tmp_path, *lines, temperature=2.0).values()}
    narrow = {said(line) for line in run(way, tmp_path, *lines, temperature=2.0, top_p=0.0001).values()}
    few = {said(line) for line in run(way, tmp_path, *lines, temperature=2.0, top_k=1).values()}
    assert len(hot) > 1
    assert len(narrow) == len(few) == 1


def test_a_prompt_too_long_in_the_middle_of_a_batch_is_its_own_error_with_the_right_numbers(
    way: Way, tmp_path: Path
) -> None:
    lines = [chat(f"r-{i}", "word", max_tokens=4) for i in range(6)]
    lines.insert(3, chat("long", "word " * 3_000, max_tokens=4))
    found = run(way, tmp_path, *lines)
    assert [name for name, line in found.items() if line["error"]] == ["long"]
    assert found["long"]["response"] is None
    assert found["long"]["error"]["code"] == "context_length_exceeded"
    prompt, context = numbers(found["long"])
    assert prompt > 3_000
    assert context == CONTEXT
    assert len(found) == 7


def test_a_request_without_any_limit_ends_with_the_context(way: Way, tmp_path: Path) -> None:
    line = run(way, tmp_path, chat("free", "go on"))["free"]
    assert line["response"]["body"]["usage"]["total_tokens"] <= CONTEXT


def test_the_output_limit_of_the_batch_is_the_fallback(way: Way, tmp_path: Path) -> None:
    lines = [chat("own", "go on", max_tokens=3), chat("free", "go on")]
    found = run(way, tmp_path, *lines, max_decoding_length=7)
    tokens = {name: line["response"]["body"]["usage"]["completion_tokens"] for name, line in found.items()}
    assert tokens["own"] <= 3
    assert 3 < tokens["free"] <= 7


def test_two_batches_at_once_have_each_its_own_context_length(way: Way, tmp_path: Path) -> None:
    lines = [chat(f"r-{i}", "word " * 20, max_tokens=8) for i in range(20)]
    batches = [way.create(way.upload(write(tmp_path, *lines))["id"], max_context_length=most) for most in (40, 400)]
    short, long = (ended(way, batch) for batch in batches)
    assert (long["request_counts"]["completed"], long.get("error_file_id")) == (20, None)
    assert short["request_counts"] == {"total": 20, "completed": 0, "failed": 20}
    lengths = {
        name: line["response"]["body"]["usage"]["prompt_tokens"]
        for name, line in parsed(way.content(long["output_file_id"])).items()
    }
    for name, line in parsed(way.content(short["error_file_id"])).items():
        assert line["error"]["code"] == "context_length_exceeded"
        assert numbers(line) == [lengths[name], 40]


def test_prompt_and_answer_together_end_with_the_context_of_the_batch(way: Way, tmp_path: Path) -> None:
    lines = [chat("free", "go on"), chat("generous", "go on", max_tokens=5_000), chat("modest", "go on", max_tokens=3)]
    found = run(way, tmp_path, *lines, max_context_length=60)
    totals = {name: line["response"]["body"]["usage"]["total_tokens"] for name, line in found.items()}
    reasons = {name: line["response"]["body"]["choices"][0]["finish_reason"] for name, line in found.items()}
    assert max(totals.values()) <= 60
    assert {totals[name] for name, reason in reasons.items() if reason == "length" and name != "modest"} <= {60}


def test_an_engine_that_is_killed_under_64_requests_loses_none_and_no_try_of_theirs(engine: Served) -> None:
    (model,) = processes(engine, "test-model")
    # Frozen it has them all until it is killed, however slow this test is.
    model.suspend()
    batch = engine.submit([chat(f"r-{i}", f"go on {i}", max_tokens=200, ignore_eos=True) for i in range(64)])
    while engine.get("/v1/pool/status")["scheduling_pool_active"] == 0:
        time.sleep(0.02)
    with contextlib.suppress(psutil.NoSuchProcess):
        model.kill()

    done = engine.wait(batch)

    assert done["request_counts"] == {"total": 64, "completed": 64, "failed": 0}
    found = engine.get(f"/v1/batches/{batch}/results?limit=100")["data"]
    assert {result["custom_id"] for result in found} == {f"r-{i}" for i in range(64)}
    assert {result["attempts"] for result in found} == {1}


def test_the_model_of_a_request_is_checked_against_the_one_that_is_loaded(way: Way, tmp_path: Path) -> None:
    done = ended(way, way.create(way.upload(write(tmp_path, chat("a", "x", model="Kimi-K2.5")))["id"]))
    assert done["status"] == "failed"
    assert [e["code"] for e in done["errors"]["data"]] == ["model_not_found"]


def test_the_flags_of_the_limits_are_heard(engine: Served) -> None:
    pool = engine.get("/v1/pool/status")
    assert (pool["intake_pool_capacity"], pool["scheduling_pool_capacity"]) == (5000, 64)
    lengths = {model["id"]: model["context_length"] for model in engine.get("/v1/models")["data"]}
    assert lengths["test-model"] == CONTEXT


def test_fields_that_the_engine_knows_take_effect(way: Way, tmp_path: Path) -> None:
    plain = said(run(way, tmp_path, chat("a", "say something", max_tokens=12))["a"])
    hot = {"max_tokens": 12, "temperature": 2.0}
    lines = [
        chat("several", "say something", n=3, **hot),
        chat("stopped", "say something", max_tokens=12, stop=[plain[2:4]]),
        *(chat(name, "say something", seed=seed, **hot) for name, seed in (("seed", 7), ("same", 7), ("other", 8))),
        chat("likely", "say something", max_tokens=3, logprobs=True, top_logprobs=2),
        chat("shaped", "say something", max_tokens=12, grammar='root ::= "yes" | "no"'),
    ]
    found = run(way, tmp_path, *lines)

    several = found["several"]["response"]["body"]["choices"]
    assert sorted(choice["index"] for choice in several) == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in several}) > 1
    assert said(found["stopped"]) == plain[: plain.index(plain[2:4])]
    assert found["stopped"]["response"]["body"]["choices"][0]["finish_reason"] == "stop"
    assert said(found["seed"]) == said(found["same"]) != said(found["other"])
    likely = found["likely"]["response"]["body"]["choices"][0]["logprobs"]["content"]
    assert [len(token["top_logprobs"]) for token in likely] == [2] * 3
    assert all(token["logprob"] <= 0 for token in likely)
    assert said(found["shaped"]) in ("yes", "no")


@pytest.mark.usefixtures("collector_as_before")
async def test_an_engine_that_hangs_under_its_requests_is_replaced_and_each_is_answered_once(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "Pace", lambda: QUICK)
    model = str(write_tiny_model(tmp_path / "test-model.gguf"))
    settings = Settings(tmp_path / "data", port=0, database_url=database_url, models=(model,), context_length=CONTEXT)
    async with (
        asyncio.timeout(300),
        running(settings) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as http,
        overnight.AsyncClient(server.url) as client,
    ):
        (engine,) = server.engines
        await engine.wait_ready()
        lines = [chat(f"r-{i}", f"go on {i}", max_tokens=200, ignore_eos=True) for i in range(40)]
        batch = (await client.create_batch((await client.upload_file(write(tmp_path, *lines)))["id"]))["id"]
        assert server.worker is not None
        while not server.worker.running:
            await asyncio.sleep(0)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGSTOP)
        while (health := await http.get("/health")).status_code == 200:
            await asyncio.sleep(0.01)

        assert health.status_code == 503
        assert health.json()["status"] == "unhealthy"
        assert health.json()["reason"].startswith("engine: it did not answer 3 health checks in a row")
        assert await client.health_check() is False
        done = await client.wait_for_batch(batch, poll_interval=0.1)
        found = [result async for result in client.results(batch)]
    assert done["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
    assert sorted(result["custom_id"] for result in found) == sorted(line["custom_id"] for line in lines)
    assert {result["attempts"] for result in found} == {1}


def vector(way: Way, folder: Path) -> list[float]:
    """What the embedding model makes of a text, in a batch."""
    body = {"model": "tiny-bert", "input": "you that is"}
    line = {"custom_id": "v", "method": "POST", "url": "/v1/embeddings", "body": body}
    done = ended(way, way.create(way.upload(write(folder, line))["id"], endpoint="/v1/embeddings"))
    assert done["status"] == "completed", done
    (found,) = parsed(way.content(done["output_file_id"])).values()
    return [round(number, 4) for number in found["response"]["body"]["data"][0]["embedding"]]


def test_an_embedding_model_is_converted_once_and_after_a_restart_found_in_the_cache(
    engine: Served, tmp_path: Path
) -> None:
    """The last test of the module: it starts the server anew."""
    before = {name: vector(make(engine.url), tmp_path) for name, make in WAYS.items()}
    assert {len(made) for made in before.values()} == {WIDTH}
    (made,) = (engine.folder / "models").iterdir()
    was = made.stat()

    engine.stop()
    engine.start()

    assert vector(Official(engine.url), tmp_path) == before["sdk"] == before["curl"] == before["client"]
    (found,) = (engine.folder / "models").iterdir()
    now = found.stat()
    assert (found, now.st_ino, now.st_mtime_ns) == (made, was.st_ino, was.st_mtime_ns)
