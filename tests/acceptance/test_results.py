"""The served product: results at any time, and what can be done with a batch on its way and at its end."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from tests.process import Served, chat
from tests.witness import Witness


def call(service: Served, method: str, path: str) -> httpx.Response:
    return httpx.request(method, f"{service.url}/v1/batches/{path}", timeout=60)


def results(service: Served, batch: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call(service, "GET", f"{batch}/results?limit=1000").json()["data"]
    return found


def test_results_are_there_while_the_batch_runs_and_the_same_at_its_end(service: Served, witness: Witness) -> None:
    lines = [chat(f"quick-{i}", f"quick {i}") for i in range(30)] + [chat("slow", "[held result] x")]
    batch = service.submit(lines)
    deadline = time.monotonic() + 180
    rows: list[dict[str, Any]] = []
    while sum(row["status"] == "completed" for row in rows) < 30:
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
        rows = results(service, batch)
    early = call(service, "GET", f"{batch}/output.jsonl")
    assert [row["custom_id"] for row in rows] == [line["custom_id"] for line in lines]
    assert (rows[30]["status"], rows[30]["response"], rows[30]["attempts"]) == ("running", None, 1)
    assert early.headers["x-incomplete"] == "true"
    assert early.headers["x-last-line"] == "30"
    refused = call(service, "DELETE", batch)
    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")

    witness.let("result")
    ended = service.wait(batch)
    rest = call(service, "GET", f"{batch}/output.jsonl?offset=30")
    assert [row["status"] for row in results(service, batch)] == ["completed"] * 31
    assert results(service, batch)[:30] == rows[:30]
    assert (early.content + rest.content).count(b"\n") == 31
    assert service.lines(ended["output_file_id"]) == [
        json.loads(row) for row in (early.content + rest.content).splitlines()
    ]
    ordered = call(service, "GET", f"{batch}/output.jsonl?order=submitted").content.splitlines()
    assert [json.loads(row)["custom_id"] for row in ordered] == [line["custom_id"] for line in lines]


def test_a_request_that_waits_to_be_retried_shows_its_last_error(service: Served, witness: Witness) -> None:
    batch = service.submit([chat("never", "[status 503] shown")])
    deadline = time.monotonic() + 180
    # While it is tried once more it runs; then it waits again.
    while not (rows := results(service, batch)) or rows[0]["error"] is None or rows[0]["status"] != "queued":
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
    assert rows[0]["attempts"] >= 1
    assert (rows[0]["error"]["code"], rows[0]["error"]["status"]) == ("service_unavailable", 503)
    call(service, "POST", f"{batch}/cancel")
    service.wait(batch)
    assert results(service, batch)[0]["status"] == "cancelled"


def test_nothing_of_a_paused_batch_is_sent_until_it_is_resumed(service: Served, witness: Witness) -> None:
    held = "[status 503 after 1] until resumed"
    batch = service.submit([chat("held", held), chat("other", "fine while paused")])
    paused = call(service, "POST", f"{batch}/pause")
    assert paused.json()["paused"] == {"reason": "user", "by": None, "until": None}
    # What was on its way is back when a batch that came later has ended; the second one outlasts the wait to be tried.
    service.wait(service.submit([chat("later", "[slow 1] later")]))
    sent = witness.seen[held]
    service.wait(service.submit([chat("longer", "[slow 3] longer")]))
    assert witness.seen[held] == sent
    call(service, "POST", f"{batch}/resume")
    deadline = time.monotonic() + 180
    while witness.seen[held] == sent:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    call(service, "POST", f"{batch}/cancel")
    service.wait(batch)


def test_what_a_batch_has_left_is_run_again_by_a_retry_and_nothing_else(service: Served, witness: Witness) -> None:
    lines = [chat("done", "answered once"), chat("bad", "[status 400] each time")]
    batch = service.submit(lines)
    service.wait(batch)
    left = call(service, "GET", f"{batch}/unfinished.jsonl")
    assert [json.loads(row) for row in left.content.splitlines()] == [lines[1]]

    again = call(service, "POST", f"{batch}/retry").json()
    ended = service.wait(again["id"])

    assert (again["retry_of"], ended["request_counts"]) == (batch, {"total": 1, "completed": 0, "failed": 1})
    assert (witness.seen["answered once"], witness.seen["[status 400] each time"]) == (1, 2)
    assert call(service, "GET", batch).json()["status"] == "completed"


def test_a_deleted_batch_is_gone_with_its_results(service: Served, witness: Witness) -> None:
    batch = service.submit([chat("one", "to be deleted")])
    ended = service.wait(batch)
    assert call(service, "DELETE", batch).json() == {"id": batch, "object": "batch.deleted", "deleted": True}
    for path in (batch, f"{batch}/results", f"{batch}/output.jsonl", f"{batch}/unfinished.jsonl"):
        assert (path, call(service, "GET", path).status_code) == (path, 404)
    content = httpx.get(f"{service.url}/v1/files/{ended['output_file_id']}/content")
    assert content.json()["error"]["code"] == "file_not_found"
