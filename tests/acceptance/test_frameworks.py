"""Tools that bring their own reader of batches: each does here, over plain HTTP, what it is known to do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.acceptance.test_files_cases import lines
from tests.process import ENDED, Served, chat
from tests.witness import Witness

CHAT = "/v1/chat/completions"
Body = dict[str, Any]


@pytest.fixture
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{service.url}/v1", timeout=60, trust_env=False, follow_redirects=False) as client:
        yield client


def ok(response: httpx.Response) -> Body:
    assert response.status_code == 200, response.text
    body: Body = response.json()
    return body


def send(http: httpx.Client, content: bytes, name: str = "batch.jsonl", **fields: str) -> Body:
    """Upload with the type that such tools name, which no registry knows."""
    files = {"file": (name, content, "application/jsonl")}
    return ok(http.post("/files", data={"purpose": "batch"} | fields, files=files))


def create(http: httpx.Client, file: str, **more: Any) -> Body:
    given = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h", **more}
    return ok(http.post("/batches", json=given))


def poll(http: httpx.Client, batch: str, look: Callable[[Body], None]) -> Body:
    """Ask for a batch until it has ended, and look at each answer."""
    deadline = time.monotonic() + 180
    while True:
        seen = ok(http.get(f"/batches/{batch}"))
        look(seen)
        if seen["status"] in ENDED:
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def rows(http: httpx.Client, file: str | None) -> list[Body]:
    if file is None:
        return []
    response = http.get(f"/files/{file}/content")
    assert response.status_code == 200, response.text
    return [json.loads(row) for row in response.text.split("\n") if row]


def counted(batch: Body) -> None:
    """What a strict reader of the counts asks of each answer."""
    counts = batch["request_counts"]
    assert all(isinstance(counts[name], int) for name in ("total", "completed", "failed"))
    assert counts["completed"] + counts["failed"] <= counts["total"]
    known = ("validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled")
    assert batch["status"] in known
    for name in ("output_file_id", "error_file_id"):
        assert batch[name] is None or batch[name].startswith("file-")


def readable(line: Body) -> None:
    """What a reader that validates each line asks of it."""
    assert isinstance(line["custom_id"], str)
    if line["error"] is None:
        assert isinstance(line["response"]["status_code"], int)
        assert isinstance(line["response"]["body"], dict)
    else:
        assert line["response"] is None
        assert isinstance(line["error"]["code"], str)
        assert isinstance(line["error"]["message"], str)


def test_a_reader_of_both_files_finds_every_request_once(http: httpx.Client) -> None:
    life = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "172800"}
    names = [f"r-{i}" for i in range(6)]
    file = send(http, lines(*(chat(n, "[status 400] no" if i % 2 else n) for i, n in enumerate(names))), **life)
    assert file["expires_at"] - file["created_at"] == 172_800

    ended = poll(http, create(http, file["id"])["id"], counted)

    found = [line for name in ("output_file_id", "error_file_id") for line in rows(http, ended[name])]
    for line in found:
        readable(line)
    assert sorted(line["custom_id"] for line in found) == names
    assert sum(line["error"] is None for line in found) == ended["request_counts"]["completed"] == 3
    assert {line["error"]["code"] for line in found if line["error"]} == {"invalid_request"}


def test_a_reader_that_knows_why_a_request_never_ran_finds_the_code(http: httpx.Client, witness: Witness) -> None:
    content = lines(*(chat(f"n-{i}", f"[held never] {i}") for i in range(300)))
    before = sum(witness.seen.values())
    batch = create(http, send(http, content)["id"])
    witness.wait_for(before + 1)
    assert ok(http.post(f"/batches/{batch['id']}/cancel"))["cancelling_at"]
    witness.let("never")

    ended = poll(http, batch["id"], counted)

    found = [line for name in ("output_file_id", "error_file_id") for line in rows(http, ended[name])]
    for line in found:
        readable(line)
    assert len(found) == len({line["custom_id"] for line in found}) == 300
    assert {line["error"]["code"] for line in found if line["error"]} <= {"batch_cancelled"}
    assert sum(line["error"] is None for line in found) == ended["request_counts"]["completed"]


def test_a_tool_that_asks_at_once_and_cleans_up_afterwards(http: httpx.Client, sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=lines(chat("a", "curated")), purpose="batch")
    assert sdk.files.wait_for_processing(file.id).id == file.id
    made = create(http, file.id, metadata={"request_file": "/tmp/requests_0.jsonl"})
    assert ok(http.get(f"/batches/{made['id']}"))["metadata"] == {"request_file": "/tmp/requests_0.jsonl"}
    ended = poll(http, made["id"], counted)
    (line,) = rows(http, ended["output_file_id"])
    assert line["response"]["status_code"] == 200
    for gone in (file.id, ended["output_file_id"]):
        assert ok(http.delete(f"/files/{gone}"))["deleted"] is True
    assert ok(http.get(f"/batches/{made['id']}"))["status"] == "completed"


def test_a_hundred_operations_at_once_are_all_answered(http: httpx.Client) -> None:
    def operate(n: int) -> str:
        file = send(http, lines(chat(f"p-{n}", f"parallel {n}")))
        assert ok(http.get(f"/files/{file['id']}")) == file
        if n % 4:
            return str(ok(http.delete(f"/files/{file['id']}"))["deleted"])
        batch = create(http, file["id"])
        assert ok(http.get(f"/batches/{batch['id']}"))["id"] == batch["id"]
        return str(batch["id"])

    with ThreadPoolExecutor(100) as pool:
        made = [became for became in pool.map(operate, range(100)) if became != "True"]
    ends = [poll(http, batch, counted)["request_counts"] for batch in made]
    assert ends == [{"total": 1, "completed": 1, "failed": 0}] * 25


def test_a_client_that_sends_one_call_still_has_its_requests_run_side_by_side(
    http: httpx.Client, witness: Witness
) -> None:
    before = sum(witness.seen.values())
    batch = create(http, send(http, lines(*(chat(f"w-{i}", f"[held wide] {i}") for i in range(64))))["id"])
    witness.wait_for(before + 32)
    witness.let("wide")
    ended = poll(http, batch["id"], counted)
    assert ended["request_counts"]["completed"] == 64
    assert witness.most_at_once >= 32


def test_a_tool_that_resolves_results_as_they_come(http: httpx.Client, service: Served) -> None:
    content = lines(*(chat(f"f-{i}", f"future {i}") for i in range(5)))
    assert content.endswith(b"\n")
    file = send(http, content[:-1], name="batch-0b5e.jsonl")
    assert file["lines"] == 5
    ended = poll(http, create(http, file["id"])["id"], counted)
    whole = http.get(f"/files/{ended['output_file_id']}/content", params={"offset": 0})
    assert whole.headers.get("x-incomplete", "false") == "false"
    assert {json.loads(row)["custom_id"] for row in whole.text.strip().split("\n")} == {f"f-{i}" for i in range(5)}
    rest = http.get(f"/batches/{ended['id']}/output.jsonl", params={"offset": 3})
    assert whole.text.endswith(rest.text)
    assert rest.text.count("\n") == 2


def test_lines_for_another_endpoint_are_told_and_nothing_runs(http: httpx.Client, witness: Witness) -> None:
    other = {"custom_id": "b", "method": "POST", "url": "/v1/embeddings"}
    content = lines(chat("a", "mixed"), {**other, "body": {"model": "test-model", "input": "mixed"}})
    ended = poll(http, create(http, send(http, content)["id"])["id"], counted)
    assert ended["status"] == "failed"
    (error,) = ended["errors"]["data"]
    assert (error["code"], error["line"], error["param"]) == ("mismatched_endpoint", 2, "url")
    assert "/v1/embeddings" in error["message"]
    assert CHAT in error["message"]
    assert witness.seen["mixed"] == 0


def test_a_tool_that_reads_one_file_finds_it_under_either_name(http: httpx.Client) -> None:
    for text, name, other in (
        ("fine", "output_file_id", "error_file_id"),
        ("[status 400] no", "error_file_id", "output_file_id"),
    ):
        ended = poll(http, create(http, send(http, lines(chat("only", text)))["id"])["id"], counted)
        assert ended["status"] == "completed"
        assert ended[other] is None
        (line,) = rows(http, ended["output_file_id"] or ended["error_file_id"])
        assert (line["custom_id"], ended[name] is not None) == ("only", True)


def test_a_table_of_batches_is_one_call(http: httpx.Client) -> None:
    batch = create(http, send(http, lines(chat("a", "table")))["id"])
    listed = ok(http.get("/batches", params={"limit": 10}))["data"]
    assert 1 <= len(listed) <= 10
    assert listed[0]["id"] == batch["id"]
    for shown in listed:
        counted(shown)
        assert isinstance(shown["created_at"], int)


def test_all_results_are_one_download_in_the_order_of_the_input(http: httpx.Client) -> None:
    names = [f"o-{i}" for i in range(20)]
    content = lines(*(chat(n, f"[status 400] {n}" if i % 3 == 0 else n) for i, n in enumerate(names)))
    ended = poll(http, create(http, send(http, content)["id"])["id"], counted)
    merged = http.get(f"/batches/{ended['id']}/output.jsonl", params={"order": "submitted"})
    found = [json.loads(row) for row in merged.text.splitlines()]
    for line in found:
        readable(line)
    assert [line["custom_id"] for line in found] == names


def test_a_list_goes_on_behind_an_id_with_the_parameters_that_other_languages_send(http: httpx.Client) -> None:
    made = [create(http, upload_one(http))["id"] for _ in range(3)]
    first = ok(http.get("/batches", params={"limit": "1"}))
    rest = ok(http.get("/batches", params={"limit": "2", "after": first["last_id"]}))
    assert [b["id"] for b in (*first["data"], *rest["data"])] == made[::-1]


def upload_one(http: httpx.Client) -> str:
    return str(send(http, lines(chat("a", "one")))["id"])


def test_a_state_that_was_read_stays_as_it_was_read(http: httpx.Client) -> None:
    ended = poll(http, create(http, upload_one(http))["id"], counted)
    assert ok(http.get(f"/batches/{ended['id']}")) == ended
    assert ok(http.post(f"/batches/{ended['id']}/cancel")) == ended
