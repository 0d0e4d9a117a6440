"""`overnight serve --engine vllm`: batches on a vLLM that it starts itself, which dies under them and comes back."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

from tests.engine.drivers import ARGS_OF_REAL, REAL_VLLM, write_stand_in
from tests.process import Served, chat
from tests.tiny_transformers import write_tiny_llama

SLOTS = 64
WITHIN = 600.0 if REAL_VLLM else 180.0
"""Seconds for a batch; a real vLLM takes a minute to start."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """What stands in for vLLM dies of the first prompt with the word `die`, and only of that one."""
    folder = tmp_path_factory.mktemp("vllm")
    options = ["--model", str(write_tiny_llama(folder / "test-model")), "--engine", "vllm"]
    options += ["--vllm", REAL_VLLM or str(write_stand_in(folder)), "--max-context-length", "128"]
    args = [f"--max-num-seqs={SLOTS}", *(ARGS_OF_REAL if REAL_VLLM else ())]
    options += [f"--engine-arg={arg}" for arg in args]
    wishes = {"once": str(folder), "again": str(folder / "data" / "again")}
    with Served(folder / "data", *options, env={"STAND_IN": json.dumps(wishes)}) as served:
        yield served


def results(service: Served, ended: dict[str, Any]) -> dict[str, Any]:
    found = [*service.lines(ended["output_file_id"]), *service.lines(ended["error_file_id"])]
    return {line["custom_id"]: line for line in found}


def test_a_batch_runs_on_it_under_the_name_of_its_folder(service: Served) -> None:
    lines = [chat("a", "hello", max_tokens=7, ignore_eos=True), chat("long", "word " * 200)]
    ended = service.wait(service.submit(lines), WITHIN)

    found = results(service, ended)
    assert found["a"]["response"]["body"]["usage"]["completion_tokens"] == 7
    assert found["a"]["response"]["body"]["model"] == "test-model"
    assert found["long"]["error"]["code"] == "context_length_exceeded"
    length = r"\d{3,}" if REAL_VLLM else "200"
    message = found["long"]["error"]["message"]
    assert re.fullmatch(rf"Prompt length {length} exceeds model context 128", message), message


def test_a_field_that_it_drops_refuses_the_batch_by_its_name(service: Served) -> None:
    ended = service.wait(service.submit([chat("a", "hello", guided_json={"type": "object"})]))

    assert ended["status"] == "failed"
    assert "guided_json" in ended["errors"]["data"][0]["param"]


def kill_core(service: Served) -> None:
    """Kill the process in which a real vLLM computes, while it does."""
    assert service.process is not None
    while not service.get("/v1/pool/status")["scheduling_pool_active"]:
        pass
    for process in psutil.Process(service.process.pid).children(recursive=True):
        if "EngineCore" in " ".join([process.name(), *process.cmdline()]):
            os.kill(process.pid, signal.SIGKILL)


def test_it_dies_with_64_requests_and_every_one_is_answered(service: Served) -> None:
    lines = [chat(f"r-{i}", "wait a moment", max_tokens=3) for i in range(4 * SLOTS)]
    if not REAL_VLLM:
        lines[SLOTS] = chat(f"r-{SLOTS}", "die", max_tokens=3)

    batch = service.submit(lines)
    if REAL_VLLM:
        kill_core(service)
    reasons = set()
    while (health := httpx.get(f"{service.url}/health", timeout=60)).status_code == 200:
        pass
    # Seen to be down, it may load again.
    (service.folder / "again").touch()
    while health.status_code == 503:
        reasons.add(health.json()["reason"])
        health = httpx.get(f"{service.url}/health", timeout=60)
    ended = service.wait(batch, WITHIN)

    # A real one either ends by itself, or says for seconds that it is unwell and is ended.
    why = "it" if REAL_VLLM else "CUDA out of memory"
    told = re.compile(rf"(?:engine: |loading: again, since ).*{why}")
    assert health.json() == {"status": "healthy"}
    assert reasons
    assert [reason for reason in reasons if not told.match(reason)] == []
    facts = [json.loads(line) for line in service.log.read_text().splitlines() if '"engine_down"' in line]
    assert [fact["event_name"] for fact in facts] == ["engine_down"]
    assert why in facts[0]["reason"]
    assert ended["request_counts"] == {"total": len(lines), "completed": len(lines), "failed": 0}
    assert results(service, ended).keys() == {line["custom_id"] for line in lines}
    page = service.get(f"/v1/batches/{batch}/results?limit=1000")
    # What was in flight when it died was no attempt of theirs.
    assert {one["attempts"] for one in page["data"]} == {1}


def test_how_many_requests_it_may_have_is_found_up_to_what_it_was_started_with(service: Served) -> None:
    page = httpx.get(f"{service.url}/metrics").text
    found = re.search(r'^overnight_route_allowed\{route="test-model"\} (\S+)$', page, re.M)
    assert found is not None
    assert 8 <= float(found[1]) <= SLOTS
