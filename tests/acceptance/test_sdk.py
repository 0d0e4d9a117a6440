"""The official OpenAI SDK, unchanged, does the whole file flow."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Batch

from tests.process import Served, chat
from tests.witness import Witness

FINAL = ("completed", "failed", "expired", "cancelled")


def write(path: Path, lines: list[dict[str, Any]]) -> bytes:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path.read_bytes()


def ended(sdk: openai.OpenAI, batch: Batch, within: float = 180) -> Batch:
    deadline = time.monotonic() + within
    while batch.status not in FINAL:
        assert time.monotonic() < deadline, batch
        time.sleep(0.1)
        batch = sdk.batches.retrieve(batch.id)
    return batch


def run(sdk: openai.OpenAI, path: Path, endpoint: Any = "/v1/chat/completions") -> Batch:
    file = sdk.files.create(file=path.open("rb"), purpose="batch")
    return ended(sdk, sdk.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h"))


def results(sdk: openai.OpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    assert file_id is not None
    lines = [json.loads(line) for line in sdk.files.content(file_id).iter_lines()]
    return {line["custom_id"]: line for line in lines}


def test_chat_completions_run_from_upload_to_output_file(sdk: openai.OpenAI, jsonl: Path) -> None:
    write(jsonl, [chat(f"q-{i}", f"question {i}", temperature=0.5) for i in range(20)])

    batch = run(sdk, jsonl)

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 20, "completed": 20, "failed": 0}
    assert batch.error_file_id is None
    assert batch.errors is None
    found = results(sdk, batch.output_file_id)
    assert found.keys() == {f"q-{i}" for i in range(20)}
    for i in range(20):
        line = found[f"q-{i}"]
        assert line["error"] is None
        assert line["id"].startswith("batch_req_")
        assert line["response"]["status_code"] == 200
        assert line["response"]["request_id"].startswith("req_")
        assert line["response"]["body"]["choices"][0]["message"]["content"] == f"echo: question {i}"


def test_completions_and_embeddings_run_too(sdk: openai.OpenAI, jsonl: Path) -> None:
    body = {"model": "test-model", "prompt": "once upon"}
    write(jsonl, [{"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": body}])
    completions = run(sdk, jsonl, "/v1/completions")
    body = {"model": "test-model", "input": "a text"}
    write(jsonl, [{"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": body}])
    embeddings = run(sdk, jsonl, "/v1/embeddings")

    text = results(sdk, completions.output_file_id)["c"]["response"]["body"]["choices"][0]["text"]
    vector = results(sdk, embeddings.output_file_id)["e"]["response"]["body"]["data"][0]["embedding"]
    assert text == "echo: once upon"
    assert vector == [0.25, -0.5]


def test_files_can_be_waited_for_listed_read_and_deleted(sdk: openai.OpenAI, jsonl: Path) -> None:
    content = write(jsonl, [chat("only", "hello")])

    file = sdk.files.create(file=jsonl.open("rb"), purpose="batch")

    assert sdk.files.wait_for_processing(file.id, poll_interval=0.1).status == "processed"
    assert file.bytes == len(content)
    assert file.filename == "requests.jsonl"
    assert file.purpose == "batch"
    assert sdk.files.retrieve(file.id) == file
    assert file.id in [f.id for f in sdk.files.list(purpose="batch")]
    assert sdk.files.content(file.id).read() == content
    assert sdk.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        sdk.files.retrieve(file.id)


def test_bytes_without_a_name_can_be_uploaded_with_an_expiry(sdk: openai.OpenAI) -> None:
    content = json.dumps(chat("only", "hello")).encode()

    file = sdk.files.create(file=content, purpose="batch", expires_after={"anchor": "created_at", "seconds": 172_800})

    assert file.filename == "upload"
    assert file.expires_at == file.created_at + 172_800


def test_the_pager_of_the_sdk_walks_every_batch_once(sdk: openai.OpenAI, jsonl: Path) -> None:
    made = []
    for i in range(5):
        write(jsonl, [chat(f"page-{i}", "hi")])
        made.append(run(sdk, jsonl).id)

    seen = [batch.id for batch in sdk.batches.list(limit=2)]

    assert [b for b in seen if b in made] == made[::-1]
    assert len(seen) == len(set(seen))


def test_failed_requests_are_in_the_error_file_and_the_others_go_on(sdk: openai.OpenAI, jsonl: Path) -> None:
    write(jsonl, [chat("good", "fine"), chat("bad", "[status 400] no"), chat("lost", "[status 404] no")])

    batch = run(sdk, jsonl)

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 1, "failed": 2}
    assert results(sdk, batch.output_file_id).keys() == {"good"}
    errors = results(sdk, batch.error_file_id)
    assert errors["bad"]["response"] is None
    assert errors["bad"]["error"]["code"] == "invalid_request"
    assert errors["bad"]["error"]["status"] == 400
    assert errors["bad"]["error"]["body"]["error"]["message"] == "told to answer 400"
    assert errors["lost"]["error"]["code"] == "model_not_found"


def test_a_refused_batch_lists_all_its_problems_with_their_lines(sdk: openai.OpenAI, jsonl: Path) -> None:
    lines = [chat("a", "one"), chat("b", "two", model="no-such-model"), chat("a", "three"), chat("c", "x", stream=True)]
    write(jsonl, lines)

    batch = run(sdk, jsonl)

    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    found = {(e.code, e.line) for e in batch.errors.data}
    assert {("duplicate_custom_id", 3), ("streaming_not_supported", 4)} <= found
    assert batch.output_file_id is None


def test_an_unknown_model_refuses_the_batch_before_anything_runs(
    sdk: openai.OpenAI, jsonl: Path, witness: Witness
) -> None:
    write(jsonl, [chat("a", "must not run"), chat("b", "nor this", model="no-such-model")])

    batch = run(sdk, jsonl)

    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [(e.code, e.line, e.param) for e in batch.errors.data] == [("model_not_found", 2, "body.model")]
    assert witness.seen["must not run"] == 0


def test_a_cancelled_batch_keeps_what_ran_and_starts_nothing_more(
    sdk: openai.OpenAI, service: Served, jsonl: Path, witness: Witness
) -> None:
    write(jsonl, [chat(f"s-{i}", f"[held cancel] {i}") for i in range(200)])
    file = sdk.files.create(file=jsonl.open("rb"), purpose="batch")
    before = sum(witness.seen.values())
    batch = sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    witness.wait_for(before + 10)

    cancelled = sdk.batches.cancel(batch.id)
    witness.let("cancel")
    batch = ended(sdk, cancelled)

    assert cancelled.cancelling_at is not None
    assert batch.status == "cancelled"
    assert batch.cancelling_at == cancelled.cancelling_at
    ran = sum(n for text, n in witness.seen.items() if text.startswith("[held cancel]"))
    assert batch.request_counts is not None
    assert 10 <= batch.request_counts.completed == ran < 200
    assert len(results(sdk, batch.output_file_id)) == ran
    never_ran = results(sdk, batch.error_file_id)
    assert len(never_ran) == 200 - ran
    assert {line["error"]["code"] for line in never_ran.values()} == {"batch_cancelled"}
    assert sdk.batches.cancel(batch.id).status == "cancelled"


def test_an_output_file_is_the_same_bytes_each_time_and_the_incremental_file(
    sdk: openai.OpenAI, service: Served, jsonl: Path
) -> None:
    write(jsonl, [chat(f"n-{i}", f"text {i}\u2028 with \u0085 separators") for i in range(50)])
    batch = run(sdk, jsonl)
    assert batch.output_file_id is not None

    first = sdk.files.content(batch.output_file_id)
    second = sdk.files.content(batch.output_file_id)

    assert first.content == second.content
    assert first.response.headers["etag"] == f'"{hashlib.sha256(first.content).hexdigest()}"'
    assert len(first.text.splitlines()) == 50
    incremental = service.folder / "incremental" / f"{batch.id}.jsonl"
    deadline = time.monotonic() + 180
    while not (incremental.exists() and incremental.read_bytes() == first.content) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert incremental.read_bytes() == first.content


def test_unknown_ids_read_as_not_found_with_a_request_id(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as batch:
        sdk.batches.retrieve("batch_" + "0" * 32)
    with pytest.raises(openai.NotFoundError) as file:
        sdk.files.content("file-nonsense")

    assert batch.value.code == "batch_not_found"
    assert batch.value.request_id
    assert file.value.code == "file_not_found"


def test_a_second_batch_of_a_file_that_is_still_running_is_refused_for_good(
    sdk: openai.OpenAI, jsonl: Path, witness: Witness
) -> None:
    write(jsonl, [chat("slow", "[held twice] x")])
    file = sdk.files.create(file=jsonl.open("rb"), purpose="batch")
    first = sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")

    with pytest.raises(openai.BadRequestError) as refused:
        sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")

    assert refused.value.code == "duplicate_batch"
    assert first.id in refused.value.message
    witness.let("twice")
    ended(sdk, first)
