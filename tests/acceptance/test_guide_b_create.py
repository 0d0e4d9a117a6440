"""Creating a batch: all that callers of a batch gateway rely on, case by case, against the served product."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

import overnight
from tests.process import Served, chat
from tests.witness import Witness

Body = dict[str, Any]


@pytest.fixture
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as client:
        yield client


def ask(custom_id: str, text: str, **body: Any) -> Body:
    """A request of which only what is required is said."""
    line = chat(custom_id, text, **body)
    return {"custom_id": custom_id, "body": line["body"]}


def create(http: httpx.Client, *requests: Any, key: str | None = None, **given: Any) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return http.post("/v1/batches", json={"requests": requests, **given}, headers=headers)


def results(service: Served, batch: str, count: int, ending: str = "jsonl") -> dict[str, Any]:
    """Lines of the incremental file of a batch by custom id, when so many are there."""
    path = service.folder / "incremental" / f"{batch}.{ending}"
    deadline = time.monotonic() + 180
    while not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert time.monotonic() < deadline, path
        time.sleep(0.05)
    return {line["custom_id"]: line for line in map(json.loads, path.read_text("utf-8").splitlines())}


def test_the_example_runs_to_its_results(service: Served, http: httpx.Client) -> None:
    response = http.post(
        "/v1/batches",
        json={
            "requests": [
                chat("q-1", "Summarize the plot of Hamlet."),
                chat("q-2", 'Translate "good morning" into French.', max_tokens=50),
            ],
            "metadata": {"project": "eval-42"},
        },
    )
    assert response.status_code == 200, response.text
    made = response.json()
    absent = ("errors", "input_file_id", "output_file_id", "error_file_id", "in_progress_at", "finalizing_at", "error")
    assert {name: made[name] for name in absent} == dict.fromkeys(absent)
    assert (made["object"], made["endpoint"], made["status"]) == ("batch", "/v1/chat/completions", "validating")
    assert made["expires_at"] - made["created_at"] == 24 * 3600
    assert (made["completion_window"], made["metadata"]) == ("24h", {"project": "eval-42"})
    assert (made["request_counts"]["total"], made["cost_usd"], made["cost_unknown_attempts"]) == (2, 0.0, 0)

    batch = service.wait(made["id"])

    assert (batch["status"], batch["output_file_id"], batch["error_file_id"]) == ("completed", None, None)
    assert batch["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    assert batch["usage"]["total_tokens"] > 0
    found = results(service, batch["id"], 2)
    assert found["q-1"]["response"]["body"]["choices"][0]["message"]["content"] == "echo: Summarize the plot of Hamlet."


def test_method_and_url_may_be_left_out(service: Served, http: httpx.Client) -> None:
    batch = service.wait(create(http, ask("a", "short form")).json()["id"])
    assert (batch["status"], batch["endpoint"]) == ("completed", "/v1/chat/completions")


def test_embeddings_run_too(service: Served, http: httpx.Client) -> None:
    body = {"model": "test-model", "input": "a text"}
    made = create(http, {"custom_id": "e", "url": "/v1/embeddings", "body": body}).json()
    assert (made["endpoint"], service.wait(made["id"])["status"]) == ("/v1/embeddings", "completed")


def test_one_batch_may_use_several_models(service: Served, http: httpx.Client, witness: Witness) -> None:
    requests = [ask(f"m{i}", f"several {i}", model=("test-model", "other-model")[i % 2]) for i in range(10)]
    made = create(http, *requests).json()
    assert made["model"] is None
    assert service.wait(made["id"])["request_counts"] == {"total": 10, "completed": 10, "failed": 0}
    models = {body["messages"][-1]["content"]: body["model"] for body in witness.bodies if body.get("messages")}
    assert [models[f"several {i}"] for i in range(10)] == ["test-model", "other-model"] * 5


def test_failed_requests_fail_alone(service: Served, http: httpx.Client) -> None:
    made = create(http, ask("good", "fine"), ask("bad", "[status 400] no")).json()
    batch = service.wait(made["id"])
    assert (batch["status"], batch["error_file_id"]) == ("completed", None)
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert results(service, batch["id"], 1, "errors.jsonl")["bad"]["error"]["code"] == "invalid_request"


def test_a_body_reaches_the_model_as_it_was_written(service: Served, http: httpx.Client, witness: Witness) -> None:
    seed = 12345678901234567890123456789
    text = "\u00e9\n\u2028 as written"
    made = create(http, ask("a", text, seed=seed)).json()
    assert service.wait(made["id"])["status"] == "completed"
    (body,) = [b for b in witness.bodies if b.get("messages") and b["messages"][-1]["content"] == text]
    assert body["seed"] == seed


REFUSED: dict[str, tuple[Body | bytes, str, str | None]] = {
    "the body is not valid JSON": (b"{", "invalid_json", None),
    "the body is not a batch": ({"prompt": "hi"}, "unknown_parameter", "prompt"),
    "no requests": ({"requests": []}, "invalid_parameter", "requests"),
    "neither of both": ({"metadata": {}}, "missing_required_parameter", "input_file_id"),
    "both": ({"requests": [ask("a", "x")], "input_file_id": "file-1"}, "invalid_parameter", "requests"),
    "an invalid request": (
        {"requests": [ask("a", "x"), {"custom_id": "b"}]},
        "missing_required_parameter",
        "requests[1].body",
    ),
    "an unknown model": ({"requests": [ask("a", "x", model="none")]}, "model_not_found", "requests[0].body.model"),
    "an auto model": ({"requests": [ask("a", "x", model="auto")]}, "auto_model_not_allowed", "requests[0].body.model"),
    "a repeated custom_id": (
        {"requests": [ask("a", "x"), ask("a", "y")]},
        "duplicate_custom_id",
        "requests[1].custom_id",
    ),
    "a custom_id that is too long": ({"requests": [ask("x" * 513, "x")]}, "invalid_parameter", "requests[0].custom_id"),
    "a stream": ({"requests": [ask("a", "x", stream=True)]}, "streaming_not_supported", "requests[0].body.stream"),
    "two urls": (
        {"requests": [ask("a", "x"), {**ask("b", "x"), "url": "/v1/completions"}]},
        "missing_required_parameter",
        "requests[1].body.prompt",
    ),
    "two targets": (
        {
            "requests": [
                ask("a", "x"),
                {"custom_id": "b", "url": "/v1/embeddings", "body": {"model": "test-model", "input": "x"}},
            ]
        },
        "mismatched_endpoint",
        "requests[1].url",
    ),
    "a key of metadata that is too long": (
        {"requests": [ask("a", "x")], "metadata": {"k" * 65: "v"}},
        "invalid_parameter",
        "metadata",
    ),
    "an anthropic_version in the body": (
        {"requests": [ask("a", "x")], "anthropic_version": "2023-06-01"},
        "unknown_parameter",
        "anthropic_version",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_400_and_nothing_is_stored_for(http: httpx.Client, why: str) -> None:
    body, code, param = REFUSED[why]
    newest = http.get("/v1/batches", params={"limit": 1}).json()["data"]
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = http.post("/v1/batches", content=text, headers={"content-type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    assert http.get("/v1/batches", params={"limit": 1}).json()["data"] == newest


@pytest.mark.parametrize("name", ["X-On-Behalf-Of", "anthropic-beta", "anthropic-version"])
def test_400_for_the_header(http: httpx.Client, name: str) -> None:
    response = http.post("/v1/batches", json={"requests": [ask("a", "x")]}, headers={name: "2023-06-01"})
    assert response.status_code == 400


def test_the_message_names_the_request(http: httpx.Client, witness: Witness) -> None:
    response = create(http, ask("q-1", "never sent"), ask("q-2", "x", model="no-such-model"))
    assert "requests[1] (custom_id 'q-2')" in response.json()["error"]["message"]
    assert witness.seen["never sent"] == 0


def test_413_for_a_body_that_is_too_large(http: httpx.Client) -> None:
    response = create(http, ask("a", "x" * 33 * 2**20))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_a_call_may_be_repeated_under_its_key(service: Served, http: httpx.Client, witness: Witness) -> None:
    with ThreadPoolExecutor(4) as pool:
        came = list(pool.map(lambda _: create(http, ask("a", "only once"), key="once").json(), range(4)))
    assert len({batch["id"] for batch in came}) == 1
    ended = service.wait(came[0]["id"])
    assert create(http, ask("a", "only once"), key="once").json()["status"] == ended["status"] == "completed"
    assert witness.seen["only once"] == 1


def test_409_for_another_request_under_the_key(http: httpx.Client) -> None:
    create(http, ask("a", "x"), key="used")
    response = create(http, ask("a", "y"), key="used")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert response.headers["x-should-retry"] == "false"


def test_a_file_may_be_submitted_under_a_key_with_the_sdk(sdk: openai.OpenAI) -> None:
    content = (json.dumps(chat("a", "x")) + "\n").encode()
    file = sdk.files.create(file=content, purpose="batch")
    made = [
        sdk.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            extra_headers={"Idempotency-Key": "from-a-file"},
        )
        for _ in range(2)
    ]
    assert made[0].id == made[1].id


def test_the_client_submits_requests_and_waits(service: Served) -> None:
    with overnight.Client(service.url) as client:
        made = client.create_direct_batch([ask("a", "by the client")], idempotency_key="client")
        assert client.wait_for_batch(made["id"])["request_counts"]["completed"] == 1
