"""`overnight serve --engine vllm`: batches on a vLLM that it starts itself, which dies under them and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.engine.drivers import write_stand_in
from tests.process import Served, chat
from tests.tiny_transformers import write_tiny_llama

SLOTS = 64


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """What stands in for vLLM dies of the first prompt with the word `die`, and only of that one."""
    folder = tmp_path_factory.mktemp("vllm")
    options = ["--model", str(write_tiny_llama(folder / "test-model")), "--vllm", str(write_stand_in(folder))]
    options += ["--engine", "vllm", "--max-context-length", "128", f"--engine-arg=--max-num-seqs={SLOTS}"]
    with Served(folder / "data", *options, env={"STAND_IN": json.dumps({"once": str(folder)})}) as served:
        yield served


def results(service: Served, ended: dict[str, Any]) -> dict[str, Any]:
    found = [*service.lines(ended["output_file_id"]), *service.lines(ended["error_file_id"])]
    return {line["custom_id"]: line for line in found}


def test_a_batch_runs_on_it_under_the_name_of_its_folder(service: Served) -> None:
    ended = service.wait(service.submit([chat("a", "hello", max_tokens=7), chat("long", "word " * 200)]))

    found = results(service, ended)
    assert found["a"]["response"]["body"]["usage"]["completion_tokens"] == 7
    assert found["a"]["response"]["body"]["model"] == "test-model"
    assert found["long"]["error"]["code"] == "context_length_exceeded"
    assert found["long"]["error"]["message"] == "Prompt length 200 exceeds model context 128"


def test_a_field_that_it_drops_refuses_the_batch_by_its_name(service: Served) -> None:
    ended = service.wait(service.submit([chat("a", "hello", guided_json={"type": "object"})]))

    assert ended["status"] == "failed"
    assert "guided_json" in ended["errors"]["data"][0]["param"]


def test_it_dies_with_64_requests_and_every_one_is_answered(service: Served) -> None:
    lines = [chat(f"r-{i}", "wait a moment", max_tokens=3) for i in range(4 * SLOTS)]
    lines[SLOTS] = chat(f"r-{SLOTS}", "die", max_tokens=3)

    batch = service.submit(lines)
    health = httpx.get(f"{service.url}/health")
    while health.status_code == 200:
        health = httpx.get(f"{service.url}/health")
    ended = service.wait(batch)

    # It is down for half a second only, then it loads again.
    assert health.json()["reason"] == "loading" or "CUDA out of memory" in health.json()["reason"]
    facts = [json.loads(line) for line in service.log.read_text().splitlines() if '"engine_down"' in line]
    assert [fact["event_name"] for fact in facts] == ["engine_down"]
    assert "CUDA out of memory" in facts[0]["reason"]
    assert ended["request_counts"] == {"total": len(lines), "completed": len(lines), "failed": 0}
    assert results(service, ended).keys() == {line["custom_id"] for line in lines}
    while health.status_code == 503:
        health = httpx.get(f"{service.url}/health")
    assert health.json() == {"status": "healthy"}
