"""What users and clients of other batch services met with files, uploads and downloads, and what is right here."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.acceptance.test_sdk import ended, results, run, write
from tests.process import Served, chat
from tests.witness import Witness

CHUNK = 2**20


@pytest.fixture
def http(service: Served) -> Iterator[httpx.Client]:
    """A plain client that follows no redirect: what is there is served where it was asked for."""
    with httpx.Client(base_url=service.url, timeout=60, follow_redirects=False) as client:
        yield client


def lines(*requests: dict[str, Any]) -> bytes:
    return "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests).encode()


def upload(http: httpx.Client, content: bytes, name: str = "batch.jsonl", **fields: str) -> dict[str, Any]:
    files = {"file": (name, content, "application/jsonl")}
    response = http.post("/v1/files", data={"purpose": "batch"} | fields, files=files)
    assert response.status_code == 200, response.text
    file: dict[str, Any] = response.json()
    return file


def test_a_form_as_frameworks_send_it_is_accepted(http: httpx.Client) -> None:
    content = lines(chat("a", "hi"))
    fields = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "172800"}

    file = upload(http, content, **fields)

    assert (file["filename"], file["status"], file["status_details"]) == ("batch.jsonl", "processed", None)
    assert file["expires_at"] == file["created_at"] + 172_800


def test_headers_that_sdks_add_change_nothing(service: Served) -> None:
    headers = {"x-stainless-retry-count": "1", "x-stainless-read-timeout": "600", "accept": "application/binary"}
    client = openai.OpenAI(
        base_url=f"{service.url}/v1",
        api_key="sk-any",
        organization="org-1",
        project="proj-1",
        default_headers=headers,
    )
    with client:
        file = client.files.create(file=("a.jsonl", lines(chat("a", "hi"))), purpose="batch")
        assert client.files.content(file.id).content == lines(chat("a", "hi"))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nowhere", 404),
        ("GET", "/v1/files//content", 404),
        ("GET", "/v1/files/null/content", 404),
        ("GET", "/v1/uploads/null", 404),
        ("PUT", "/v1/files", 405),
        ("GET", "/v1/uploads", 405),
        ("POST", "/v1/files", 415),
        ("POST", "/v1/uploads", 415),
        ("GET", "/v1/files?limit=0", 400),
    ],
)
def test_every_refusal_has_the_shape_and_the_request_id_that_sdks_read(
    http: httpx.Client, method: str, path: str, status: int
) -> None:
    response = http.request(method, path)

    assert response.status_code == status
    assert response.headers["x-request-id"]
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_a_final_refusal_is_not_sent_again_by_the_sdk(service: Served) -> None:
    sent: list[str] = []
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="x", max_retries=2) as client:
        for call in (
            lambda: client.files.create(file=b"", purpose="batch"),
            lambda: client.files.create(file=b"x", purpose="vision"),
            lambda: client.uploads.create(bytes=2**40, filename="a", mime_type="b", purpose="batch"),
            lambda: client.uploads.complete("upload_" + "0" * 32, part_ids=["part_" + "0" * 32]),
        ):
            with pytest.raises(openai.APIStatusError) as refused:
                call()
            sent.append(refused.value.response.request.headers["x-stainless-retry-count"])

    assert sent == ["0"] * 4


def test_what_is_too_large_is_refused_with_the_limit_and_the_size(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        sdk.uploads.create(bytes=2**40, filename="a", mime_type="application/jsonl", purpose="batch")

    assert refused.value.status_code == 413
    assert f"{2**40:,}" in refused.value.message
    assert f"{16 * 2**30:,}" in refused.value.message


def test_files_are_listed_without_any_parameter_and_to_the_end(http: httpx.Client, sdk: openai.OpenAI) -> None:
    made = [upload(http, lines(chat(f"l-{i}", "hi")))["id"] for i in range(3)]

    listed = http.get("/v1/files").json()

    assert [f["id"] for f in listed["data"][:3]] == made[::-1]
    assert listed["has_more"] is False
    assert (listed["first_id"], listed["last_id"]) == (listed["data"][0]["id"], listed["data"][-1]["id"])
    assert [f.id for f in sdk.files.list(limit=2)] == [f["id"] for f in listed["data"]]
    last = http.get("/v1/files", params={"after": listed["last_id"]}).json()
    assert (last["data"], last["has_more"], last["first_id"], last["last_id"]) == ([], False, None, None)


def test_an_upload_tells_its_bad_lines_at_once_and_not_hours_later(http: httpx.Client) -> None:
    long_id, too_long = "x" * 512, "x" * 513
    content = lines(chat(long_id, "fine"), chat(too_long, "bad"), chat("b", "hi", stream=True)) + b"{not json\n"

    problems = upload(http, content)["problems"]

    assert problems["count"] == 3
    assert [(p["line"], p["code"], p["param"]) for p in problems["first"]] == [
        (2, "invalid_parameter", "custom_id"),
        (3, "streaming_not_supported", "body.stream"),
        (4, "invalid_json_line", None),
    ]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"", b"\n\n  \n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_file_of_any_editor_is_kept_as_it_is_and_understood(http: httpx.Client, start: bytes, ending: bytes) -> None:
    content = start + lines(chat("a", "hi"))[:-1] + ending

    file = upload(http, content)

    assert (file["lines"], file["problems"]) == (1, None)
    assert http.get(f"/v1/files/{file['id']}/content").content == content


def test_whatever_json_allows_in_a_text_comes_back_in_the_results(sdk: openai.OpenAI, jsonl: Path) -> None:
    texts = {
        f"t-{i}": text for i, text in enumerate(["\u2028 \u2029 \x85 \x0b \x0c \x1c", "😀 \\ud83d", "漢字", "\t\"'\\"])
    }
    write(jsonl, [chat(name, text) for name, text in texts.items()])

    batch = run(sdk, jsonl)

    assert batch.output_file_id is not None
    content = sdk.files.content(batch.output_file_id).text
    assert len(content.splitlines()) == len(texts)
    found = {line["custom_id"]: line for line in map(json.loads, content.splitlines())}
    for name, text in texts.items():
        assert found[name]["response"]["body"]["choices"][0]["message"]["content"] == f"echo: {text}"


def test_a_broken_download_goes_on_where_it_broke(http: httpx.Client) -> None:
    content = lines(*(chat(f"d-{i}", "x" * 1_000) for i in range(3_000)))
    path = f"/v1/files/{upload(http, content)['id']}/content"
    head = http.head(path)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(content)))
    with http.stream("GET", path) as response:
        came = next(response.iter_bytes(CHUNK))

    rest = http.get(path, headers={"range": f"bytes={len(came)}-", "if-range": head.headers["etag"]})

    assert rest.status_code == 206
    assert rest.headers["content-range"] == f"bytes {len(came)}-{len(content) - 1}/{len(content)}"
    assert came + rest.content == content
    assert head.headers["etag"] == f'"{hashlib.sha256(content).hexdigest()}"'


def test_a_download_under_way_finishes_though_the_file_is_deleted(http: httpx.Client) -> None:
    content = lines(*(chat(f"d-{i}", "x" * 4_000) for i in range(5_000)))
    file = upload(http, content)
    with http.stream("GET", f"/v1/files/{file['id']}/content") as response:
        pieces = response.iter_bytes(CHUNK)
        came = next(pieces)
        assert http.delete(f"/v1/files/{file['id']}").json()["deleted"] is True
        came += b"".join(pieces)

    assert came == content
    assert http.get(f"/v1/files/{file['id']}/content").status_code == 404


def test_results_are_files_like_any_other_with_ids_short_enough_for_every_route(
    sdk: openai.OpenAI, http: httpx.Client, jsonl: Path
) -> None:
    write(jsonl, [chat("good", "fine"), chat("bad", "[status 400] no")])

    batch = run(sdk, jsonl)

    for file_id, names in ((batch.output_file_id, {"good"}), (batch.error_file_id, {"bad"})):
        assert file_id is not None
        assert len(file_id) <= 40
        file = sdk.files.retrieve(file_id)
        assert (file.purpose, file.status) == ("batch_output", "processed")
        assert file_id in [f.id for f in sdk.files.list(purpose="batch_output")]
        assert results(sdk, file_id).keys() == names
        assert http.get(f"/v1/files/{file_id}/content").content.endswith(b"}\n")
        assert sdk.files.delete(file_id).deleted
        assert http.get(f"/v1/files/{file_id}").status_code == 404
    after = sdk.batches.retrieve(batch.id)
    assert (after.status, after.request_counts) == (batch.status, batch.request_counts)


def test_a_result_file_is_named_only_when_it_is_whole_and_null_until_then(
    http: httpx.Client, sdk: openai.OpenAI, jsonl: Path, witness: Witness
) -> None:
    write(jsonl, [chat(f"w-{i}", f"[slow 0.{i}] whole {i}") for i in range(8)])
    file = sdk.files.create(file=jsonl.open("rb"), purpose="batch")
    before, listed = sum(witness.seen.values()), http.get("/v1/files?purpose=batch_output").json()["data"]
    created = sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    witness.wait_for(before + 1)

    deadline = time.monotonic() + 180
    shown = http.get(f"/v1/batches/{created.id}").json()
    while shown["status"] != "completed":
        assert time.monotonic() < deadline, shown
        assert shown["output_file_id"] is None
        assert shown["error_file_id"] is None
        shown = http.get(f"/v1/batches/{created.id}").json()

    assert shown["error_file_id"] is None
    output = http.get(f"/v1/files/{shown['output_file_id']}").json()
    assert output["lines"] == 8
    content = http.get(f"/v1/files/{output['id']}/content").content
    assert (len(content), hashlib.sha256(content).hexdigest()) == (output["bytes"], output["sha256"])
    now = http.get("/v1/files?purpose=batch_output").json()["data"]
    assert [f["id"] for f in now] == [output["id"], *(f["id"] for f in listed)]


def test_deleting_the_input_of_a_running_batch_takes_nothing_from_it(
    sdk: openai.OpenAI, jsonl: Path, witness: Witness
) -> None:
    write(jsonl, [chat(f"i-{i}", f"[held input] {i}") for i in range(10)])
    file = sdk.files.create(file=jsonl.open("rb"), purpose="batch")
    before = sum(witness.seen.values())
    batch = sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    witness.wait_for(before + 1)

    assert sdk.files.delete(file.id).deleted
    witness.let("input")
    batch = ended(sdk, batch)

    assert batch.status == "completed"
    assert len(results(sdk, batch.output_file_id)) == 10
    assert batch.input_file_id == file.id


def test_a_hundred_clients_at_once_each_find_their_own_file(service: Served, http: httpx.Client) -> None:
    def there_and_back(n: int) -> bool:
        with httpx.Client(base_url=service.url, timeout=60) as client:
            content = lines(chat(f"p-{n}", "x" * 1_000 * (n % 7)))
            file = upload(client, content)
            path = f"/v1/files/{file['id']}"
            return client.get(path).json() == file and client.get(f"{path}/content").content == content

    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(there_and_back, range(100)))


def test_a_large_upload_and_download_take_no_more_memory_than_a_small_one(service: Served, http: httpx.Client) -> None:
    assert service.process is not None
    process = psutil.Process(service.process.pid)
    content = b"".join(lines(chat(f"m-{i}", "x" * 8_000)) for i in range(12_000))
    before = process.memory_info().rss

    path = f"/v1/files/{upload(http, content)['id']}/content"
    uploaded = process.memory_info().rss
    digest = hashlib.sha256()
    with http.stream("GET", path) as response:
        for piece in response.iter_bytes(CHUNK):
            digest.update(piece)
    downloaded = process.memory_info().rss

    assert len(content) > 90 * 2**20
    assert digest.digest() == hashlib.sha256(content).digest()
    assert max(uploaded, downloaded) - before < 48 * 2**20


def test_what_one_process_answered_every_other_process_knows(
    database_url: str, witness: Witness, tmp_path: Path
) -> None:
    options = ("--database-url", database_url, "--upstream", witness.url, "--parts", "api")
    content = lines(chat("a", "hi"))
    with Served(tmp_path / "one", *options) as one, Served(tmp_path / "two", *options) as two:
        here = openai.OpenAI(base_url=f"{one.url}/v1", api_key="x", max_retries=0)
        there = openai.OpenAI(base_url=f"{two.url}/v1", api_key="x", max_retries=0)
        with here, there:
            for _ in range(5):
                file = here.files.create(file=content, purpose="batch")
                assert there.files.retrieve(file.id) == file
                assert there.files.content(file.id).content == content
                assert next(iter(there.files.list())).id == file.id
                assert there.files.delete(file.id).deleted
                with pytest.raises(openai.NotFoundError):
                    here.files.retrieve(file.id)
            parts = here.uploads.create(bytes=len(content), filename="a", mime_type="b", purpose="batch")
            first = there.uploads.parts.create(parts.id, data=content[:9])
            last = here.uploads.parts.create(parts.id, data=content[9:])
            done = there.uploads.complete(parts.id, part_ids=[first.id, last.id])
            assert here.uploads.complete(parts.id, part_ids=[first.id, last.id]) == done
            assert done.file is not None
            assert here.files.content(done.file.id).content == content
