"""What users of a batch server in front of one model were promised of that model: here a real engine runs it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.test_guide_a import parsed, write
from tests.acceptance.ways import WAYS, Body, Way, ended
from tests.process import Served, chat
from tests.tiny_model import write_tiny_model

pytest.importorskip("xllamacpp", reason="the engine is an extra that is not installed")

CONTEXT = 512


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = write_tiny_model(tmp_path_factory.mktemp("model") / "test-model.gguf")
    flags = ("--model", str(model), "--max-context-length", str(CONTEXT), "--max-pool-size", "64")
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
    batch = engine.submit([chat(f"r-{i}", f"go on {i}", max_tokens=200, ignore_eos=True) for i in range(64)])
    while not (counts := engine.get(f"/v1/batches/{batch}")["request_counts"])["completed"]:
        time.sleep(0.02)
    assert counts["completed"] < 64
    assert engine.process is not None
    children = psutil.Process(engine.process.pid).children(recursive=True)
    (model,) = [child for child in children if any("llama_server" in part for part in child.cmdline())]
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
    assert [model["context_length"] for model in engine.get("/v1/models")["data"]] == [CONTEXT]
