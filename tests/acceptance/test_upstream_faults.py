"""What a model server can do wrong ends in the right answer for that request, and in nothing else."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.process import Served, chat
from tests.witness import Witness

AT_ONCE = {
    "400": ("[status 400] x", "invalid_request", 400),
    "404": ("[status 404] x", "model_not_found", 404),
    "422": ("[status 422] x", "invalid_request", 422),
    "403": ("[status 403] x", "forbidden", 403),
    "504": ("[status 504] x", "timeout", 504),
    "not UTF-8": ("[latin1] x", "upstream_error", 502),
    "not a number": ("[nan] x", "upstream_error", 502),
    "20 MB": ("[big 20] x", "result_too_large", None),
}


@pytest.fixture(scope="module")
def answers(service: Served) -> dict[str, dict[str, Any]]:
    """One batch with every fault that ends a request at once, and one request that is fine."""
    lines = [chat(name, text) for name, (text, _, _) in AT_ONCE.items()]
    ended = service.wait(service.submit([*lines, chat("fine", "hello")]))
    assert ended["request_counts"] == {"total": len(AT_ONCE) + 1, "completed": 1, "failed": len(AT_ONCE)}
    return {line["custom_id"]: line for line in service.lines(ended["error_file_id"])}


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_fault_that_no_other_try_would_change_is_answered_after_one(
    answers: dict[str, dict[str, Any]], witness: Witness, name: str
) -> None:
    text, code, status = AT_ONCE[name]
    error = answers[name]["error"]

    assert error["code"] == code
    assert error.get("status") == status
    assert error["message"]
    assert witness.seen[text] == 1


RETRIED = {
    "429": "[once 429] a",
    "500": "[once 500] b",
    "503": "[once 503] c",
}


def test_what_may_pass_is_tried_again_and_then_answered(service: Served, witness: Witness) -> None:
    batch = service.wait(service.submit([chat(name, text) for name, text in RETRIED.items()]))

    assert batch["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    assert [witness.seen[text] for text in RETRIED.values()] == [2, 2, 2]


NEVER = {
    "429 for ever": "[status 429 after 1] n",
    "503 for ever": "[status 503] n",
    "closes without a word": "[silent] n",
    "closes in the middle": "[cut] n",
    "no HTTP": "[garbage] n",
    "200 with an error": "[error200] n",
}


def test_what_never_passes_waits_without_holding_up_others_and_can_be_cancelled(service: Served) -> None:
    # Between any two of them are requests that are fine: too many failures in a row would open the route's circuit.
    lines = [
        chat(f"{name} {i}", text if i == 0 else f"others {name} {i}") for name, text in NEVER.items() for i in range(20)
    ]
    fine = len(lines) - len(NEVER)
    batch = service.submit(lines)
    found = service.get(f"/v1/batches/{batch}")
    deadline = time.monotonic() + 180
    while found["request_counts"]["completed"] < fine and time.monotonic() < deadline:
        found = service.get(f"/v1/batches/{batch}")

    assert found["status"] == "in_progress"
    assert found["request_counts"] == {"total": len(lines), "completed": fine, "failed": 0}
    httpx.post(f"{service.url}/v1/batches/{batch}/cancel").raise_for_status()
    ended = service.wait(batch)
    assert ended["status"] == "cancelled"
    left = {line["custom_id"]: line["error"]["code"] for line in service.lines(ended["error_file_id"])}
    assert left == {f"{name} 0": "batch_cancelled" for name in NEVER}
