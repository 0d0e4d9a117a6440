"""What users of other batch services were left alone with: counts, reasons, progress, limits and broken downloads."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.process import ENDED, Served, chat
from tests.witness import Witness

Body = dict[str, Any]


@pytest.fixture(scope="module")
def service(witness: Witness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A deployment with little room, so that batches stand in line and limits are near."""
    options = ("--upstream", witness.url, "--max-pool-size", "4", "--max-intake-capacity", "1000")
    with Served(tmp_path_factory.mktemp("service"), *options) as served:
        yield served


@pytest.fixture(scope="module")
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{service.url}/v1", timeout=60, trust_env=False) as client:
        yield client


def shown(http: httpx.Client, batch: str) -> Body:
    found: Body = http.get(f"/batches/{batch}").raise_for_status().json()
    return found


def follow(http: httpx.Client, batch: str, there: Callable[[Body], bool]) -> Body:
    """Ask for a batch until something is true of it."""
    deadline = time.monotonic() + 180
    while not there(seen := shown(http, batch)):
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
    return seen


def watch(http: httpx.Client, batch: str, seen: list[Body]) -> Body:
    """Ask for a batch until it has ended, and keep each answer."""

    return follow(http, batch, lambda now: is_over(kept(seen, now)))


def kept(seen: list[Body], now: Body) -> Body:
    seen.append(now)
    return now


def is_over(batch: Body) -> bool:
    return batch["status"] in ENDED


def upload(http: httpx.Client, *requests: Body) -> str:
    content = "".join(json.dumps(request) + "\n" for request in requests)
    response = http.post("/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", content)})
    return str(response.raise_for_status().json()["id"])


def create(http: httpx.Client, file: str) -> httpx.Response:
    return http.post("/batches", json={"input_file_id": file, "endpoint": "/v1/chat/completions"})


def test_a_batch_that_waits_says_behind_how_many_requests(
    service: Served, http: httpx.Client, witness: Witness
) -> None:
    first = service.submit([chat(f"f-{i}", f"[held first] {i}") for i in range(12)])
    follow(http, first, lambda batch: batch["status"] == "in_progress")
    second = service.submit([chat(f"s-{i}", f"second {i}") for i in range(3)])

    behind = follow(http, second, lambda batch: batch["status"] == "in_progress")["progress"]

    assert set(behind) == {"waiting", "running", "per_minute", "estimated_finish_at", "ahead", "waiting_for"}
    assert behind["waiting"] + behind["running"] == 3
    assert 1 <= behind["ahead"] <= 12
    (row, *_) = http.get(f"/batches/{second}/results").json()["data"]
    assert row["status"] in ("queued", "running")
    witness.let("first")
    ended = follow(http, second, is_over)
    assert (ended["progress"], ended["request_counts"]["completed"]) == (None, 3)
    follow(http, first, is_over)


def test_a_running_batch_says_how_far_it_is_and_when_it_will_be_done(
    service: Served, http: httpx.Client, witness: Witness
) -> None:
    before = sum(witness.seen.values())
    batch = service.submit([chat(f"p-{i}", f"[held progress-{i}] x") for i in range(16)])
    seen: list[Body] = []
    for least in range(0, 16, 4):
        # Four run at once: these are answered when the count of those before them has been seen.
        follow(http, batch, lambda now, least=least: kept(seen, now)["request_counts"]["completed"] >= least)  # type: ignore[misc]
        witness.wait_for(before + least + 4)
        for text in list(witness.seen):
            witness.let(text.removeprefix("[held ").removesuffix("] x"))
    watch(http, batch, seen)
    running = [now for now in seen if now["status"] == "in_progress"]
    done = [now["request_counts"]["completed"] for now in running]
    assert done == sorted(done)
    assert len(set(done)) > 2, "the count stood still while requests were answered"
    for now in running:
        progress, counts = now["progress"], now["request_counts"]
        left = counts["total"] - counts["completed"] - counts["failed"]
        assert progress["waiting"] + progress["running"] == left
        assert progress["ahead"] == 0
        if counts["completed"] and left:
            assert progress["per_minute"] > 0
            assert now["created_at"] < progress["estimated_finish_at"] <= now["expires_at"]


def test_every_request_is_counted_once_and_found_once(service: Served, http: httpx.Client) -> None:
    texts = ["fine", "[status 400] no", "[latin1] no", "[once 500] then fine"]
    batch = service.submit([chat(f"c-{i}", f"{texts[i % 4]} {i}") for i in range(40)])
    seen: list[Body] = []
    ended = watch(http, batch, seen)
    for now in seen:
        counts = now["request_counts"]
        assert counts["completed"] + counts["failed"] <= counts["total"]
        assert counts["failed"] <= 20, "a request that is tried again was shown as failed"

    assert ended["request_counts"] == {"total": 40, "completed": 20, "failed": 20}
    good, bad = (service.lines(ended[name]) for name in ("output_file_id", "error_file_id"))
    rows = http.get(f"/batches/{batch}/results", params={"limit": 1000}).json()["data"]
    merged = http.get(f"/batches/{batch}/output.jsonl", params={"order": "submitted"}).text.splitlines()
    names = [f"c-{i}" for i in range(40)]
    assert [row["custom_id"] for row in rows] == [json.loads(line)["custom_id"] for line in merged] == names
    assert sorted(line["custom_id"] for line in good + bad) == sorted(names)
    assert Counter(row["status"] for row in rows) == {"completed": len(good), "failed": len(bad)}
    assert len({line["id"] for line in good + bad}) == 40


def test_usage_is_the_sum_of_what_the_lines_say(service: Served, http: httpx.Client) -> None:
    batch = service.submit([chat(f"u-{i}", "one two three " * i or "none") for i in range(5)])
    ended = follow(http, batch, is_over)
    said = [line["response"]["body"]["usage"] for line in service.lines(ended["output_file_id"])]
    usage = ended["usage"]
    assert usage["input_tokens"] == sum(one["prompt_tokens"] for one in said)
    assert usage["output_tokens"] == sum(one["completion_tokens"] for one in said)
    assert usage["total_tokens"] == sum(one["total_tokens"] for one in said) > 0


def test_a_batch_of_failures_points_to_its_reasons(service: Served, http: httpx.Client) -> None:
    texts = ["[status 400] a", "[status 400] b", "[status 403] c"]
    ended = follow(http, service.submit([chat(f"e-{i}", text) for i, text in enumerate(texts)]), is_over)
    assert (ended["status"], ended["output_file_id"]) == ("completed", None)
    assert ended["error"]["code"] == "invalid_request"
    assert "`invalid_request` (2), `forbidden` (1)" in ended["error"]["message"]
    lines = service.lines(ended["error_file_id"])
    assert {line["error"]["status"] for line in lines} == {400, 403}
    for line in lines:
        assert line["error"]["body"]["error"]["message"].startswith("told to answer")
    rows = http.get(f"/batches/{ended['id']}/results").json()["data"]
    assert [row["error"] for row in rows] == [
        line["error"] for line in sorted(lines, key=lambda line: line["custom_id"])
    ]


def test_what_one_batch_may_not_hold_is_refused_with_both_numbers(http: httpx.Client) -> None:
    made = create(http, upload(http, *(chat(f"r-{i}", "hi") for i in range(1001)))).raise_for_status().json()
    refused = follow(http, made["id"], is_over)
    (error,) = refused["errors"]["data"]
    assert (refused["status"], error["code"]) == ("failed", "too_many_requests")
    assert "1,001" in error["message"]
    assert "1,000" in error["message"]


def test_what_finds_no_room_is_refused_for_now_with_the_numbers(service: Served, http: httpx.Client) -> None:
    held = service.submit([chat(f"h-{i}", "[slow 1] holds room") for i in range(600)])
    refused = create(http, upload(http, *(chat(f"r-{i}", "hi") for i in range(450))))
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "capacity_exceeded")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers.get("x-should-retry") != "false"
    for number in ("450", "1,000"):
        assert number in refused.json()["error"]["message"]
    http.post(f"/batches/{held}/cancel").raise_for_status()
    follow(http, held, is_over)


def test_a_failed_and_a_cancelled_batch_hold_no_room(http: httpx.Client) -> None:
    for _ in range(2):
        failed = create(http, upload(http, *(chat(f"x-{i}", "hi", model="none") for i in range(600))))
        assert follow(http, failed.raise_for_status().json()["id"], is_over)["status"] == "failed"
        held = create(http, upload(http, *(chat(f"y-{i}", "[slow 1] room") for i in range(600))))
        stopped = held.raise_for_status().json()["id"]
        http.post(f"/batches/{stopped}/cancel").raise_for_status()
        assert follow(http, stopped, is_over)["status"] == "cancelled"
    fits = create(http, upload(http, *(chat(f"z-{i}", "[slow 1] room") for i in range(890))))
    assert fits.status_code == 200, fits.text
    http.post(f"/batches/{fits.json()['id']}/cancel").raise_for_status()
    follow(http, fits.json()["id"], is_over)


def test_cancelling_again_changes_nothing_at_any_moment(service: Served, http: httpx.Client, witness: Witness) -> None:
    batch = service.submit([chat(f"k-{i}", f"[held cancel-again] {i}") for i in range(30)])
    came = [http.post(f"/batches/{batch}/cancel") for _ in range(3)]
    assert [response.status_code for response in came] == [200] * 3
    assert {response.json()["cancelling_at"] for response in came} == {came[0].json()["cancelling_at"]}
    witness.let("cancel-again")
    ended = follow(http, batch, is_over)
    assert http.post(f"/batches/{batch}/cancel").json() == ended
    assert ended["status"] == "cancelled"


def test_the_published_schemas_describe_what_goes_in_and_what_comes_out(service: Served, http: httpx.Client) -> None:
    sent = [chat("in", "schema", temperature=0.5), chat("out", "[status 400] schema")]
    schema = service.get("/schemas/batch-input-line.json")
    for line in sent:
        jsonschema.validate(line, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**sent[0], "priority": 1}, schema)
    ended = follow(http, service.submit(sent), is_over)
    for name in ("output_file_id", "error_file_id"):
        for line in service.lines(ended[name]):
            jsonschema.validate(line, service.get("/schemas/batch-output-line.json"))


def test_a_large_result_comes_whole_or_in_ranges_and_outlives_its_deletion(service: Served, http: httpx.Client) -> None:
    batch = service.submit([chat(f"d-{i}", f"[big 3] {i}") for i in range(8)])
    ended = follow(http, batch, is_over)
    path = f"/files/{ended['output_file_id']}/content"
    whole = http.get(path)
    assert int(whole.headers["content-length"]) == len(whole.content) > 20 * 2**20
    etag = whole.headers["etag"]
    with http.stream("GET", path) as response:
        first = next(response.iter_bytes(2**20))
    rest = http.get(path, headers={"range": f"bytes={len(first)}-", "if-range": etag})
    assert (rest.status_code, first + rest.content == whole.content) == (206, True)
    path = f"/batches/{batch}/output.jsonl?order=submitted"
    wanted = http.get(path)
    with http.stream("GET", path) as response:
        pieces = response.iter_bytes(2**20)
        came = next(pieces)
        http.delete(f"/batches/{batch}").raise_for_status()
        assert came + b"".join(pieces) == wanted.content
    assert http.get(path).status_code == 404
