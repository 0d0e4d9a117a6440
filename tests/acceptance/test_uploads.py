"""The official SDK sends files in parts, unchanged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import openai
import pytest
from openai.types import Batch

from tests.acceptance.test_sdk import ended, results, write
from tests.process import Served, chat
from tests.witness import Witness


def run(sdk: openai.OpenAI, file_id: str) -> Batch:
    created = sdk.batches.create(input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h")
    return ended(sdk, created)


def test_a_file_uploaded_in_chunks_is_checked_and_run_like_any_other(sdk: openai.OpenAI, jsonl: Path) -> None:
    content = write(jsonl, [chat(f"q-{i}", f"question {i} {'x' * 900}") for i in range(200)])

    upload = sdk.uploads.upload_file_chunked(
        file=jsonl,
        mime_type="application/jsonl",
        purpose="batch",
        part_size=50_001,
        md5=hashlib.md5(content).hexdigest(),
    )

    assert (upload.status, upload.bytes, upload.filename) == ("completed", len(content), "requests.jsonl")
    assert upload.file is not None
    assert upload.file.status == "processed"
    assert sdk.files.retrieve(upload.file.id) == upload.file
    assert sdk.files.content(upload.file.id).content == content
    batch = run(sdk, upload.file.id)
    assert batch.status == "completed"
    assert results(sdk, batch.output_file_id).keys() == {f"q-{i}" for i in range(200)}


def test_bytes_in_memory_can_be_uploaded_in_chunks_too(sdk: openai.OpenAI, jsonl: Path) -> None:
    content = write(jsonl, [chat("one", "hello")])

    upload = sdk.uploads.upload_file_chunked(
        file=content, filename="from memory.jsonl", bytes=len(content), mime_type="text/jsonl", purpose="batch"
    )

    assert upload.file is not None
    assert upload.file.filename == "from memory.jsonl"
    assert sdk.files.content(upload.file.id).content == content


def test_parts_can_be_added_out_of_order_and_an_upload_be_cancelled(sdk: openai.OpenAI, jsonl: Path) -> None:
    content = write(jsonl, [chat("one", "hello")])
    upload = sdk.uploads.create(bytes=len(content), filename="a", mime_type="application/jsonl", purpose="batch")
    last = sdk.uploads.parts.create(upload.id, data=content[10:])
    first = sdk.uploads.parts.create(upload.id, data=content[:10])
    assert (first.object, first.upload_id) == ("upload.part", upload.id)

    done = sdk.uploads.complete(upload.id, part_ids=[first.id, last.id])
    other = sdk.uploads.create(bytes=5, filename="b", mime_type="application/jsonl", purpose="batch")

    assert done.file is not None
    assert sdk.files.content(done.file.id).content == content
    assert sdk.uploads.cancel(other.id).status == "cancelled"


def test_an_md5_that_does_not_fit_is_refused_for_good(sdk: openai.OpenAI, jsonl: Path) -> None:
    write(jsonl, [chat("one", "hello")])

    with pytest.raises(openai.BadRequestError) as refused:
        sdk.uploads.upload_file_chunked(file=jsonl, mime_type="application/jsonl", purpose="batch", md5="0" * 32)

    assert refused.value.param == "md5"


def test_an_upload_survives_the_death_of_the_server(witness: Witness, tmp_path: Path, jsonl: Path) -> None:
    content = write(jsonl, [chat(f"q-{i}", f"question {i}") for i in range(50)])
    with Served(tmp_path / "data", "--upstream", witness.url) as served:
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused") as sdk:
            upload = sdk.uploads.create(
                bytes=len(content), filename="a", mime_type="application/jsonl", purpose="batch"
            )
            first = sdk.uploads.parts.create(upload.id, data=content[:2_000])
        served.kill()
        served.start()

        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused") as sdk:
            last = sdk.uploads.parts.create(upload.id, data=content[2_000:])
            done = sdk.uploads.complete(upload.id, part_ids=[first.id, last.id])

            assert done.file is not None
            assert sdk.files.content(done.file.id).content == content
