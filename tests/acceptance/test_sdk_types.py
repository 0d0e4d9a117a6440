"""Everything that the served product says is of the types that the official SDK declares, field by field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from openai.pagination import SyncCursorPage, SyncPage
from openai.types import Batch, Completion, CreateEmbeddingResponse, FileDeleted, FileObject, Model, Upload
from openai.types.chat import ChatCompletion
from openai.types.uploads import UploadPart
from pydantic import BaseModel

from tests.process import Served, chat
from tests.sdk_types import Refused, strictly

BODIES: dict[str, tuple[type[BaseModel], Callable[[str], dict[str, Any]]]] = {
    "/v1/chat/completions": (ChatCompletion, lambda text: {"messages": [{"role": "user", "content": text}]}),
    "/v1/completions": (Completion, lambda text: {"prompt": text}),
    "/v1/embeddings": (CreateEmbeddingResponse, lambda text: {"input": text}),
}
CONTENT = (json.dumps(chat("a", "hello")) + "\n").encode()


@pytest.fixture(scope="module")
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as client:
        yield client


def upload(http: httpx.Client, content: bytes = CONTENT) -> httpx.Response:
    return http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", content)})


def test_files_are_the_sdks_files(http: httpx.Client) -> None:
    file = strictly(FileObject, upload(http).content)
    bad = strictly(FileObject, upload(http, b"{not json\n").content)
    page = strictly(SyncCursorPage[FileObject], http.get("/v1/files?limit=2").content)
    deleted = strictly(FileDeleted, http.delete(f"/v1/files/{file.id}").content)

    assert [f.id for f in page.data] == [bad.id, file.id]
    assert page.has_more is not None
    assert deleted.id == file.id
    assert strictly(SyncCursorPage[FileObject], http.get(f"/v1/files?after={file.id}").content).has_more is False


def test_uploads_and_parts_are_the_sdks(http: httpx.Client) -> None:
    given = {"bytes": len(CONTENT), "filename": "a", "mime_type": "b", "purpose": "batch"}
    begun = strictly(Upload, http.post("/v1/uploads", json=given).content)
    sent = http.post(f"/v1/uploads/{begun.id}/parts", files={"data": ("part", CONTENT)})
    part = strictly(UploadPart, sent.content)
    done = strictly(Upload, http.post(f"/v1/uploads/{begun.id}/complete", json={"part_ids": [part.id]}).content)
    other = strictly(Upload, http.post("/v1/uploads", json=given).content)
    given_up = strictly(Upload, http.post(f"/v1/uploads/{other.id}/cancel").content)

    assert (begun.status, done.status, given_up.status) == ("pending", "completed", "cancelled")
    assert done.file is not None


def test_models_are_the_sdks_models(http: httpx.Client) -> None:
    page = strictly(SyncPage[Model], http.get("/v1/models").content)
    assert strictly(Model, http.get(f"/v1/models/{page.data[0].id}").content) == page.data[0]


@pytest.mark.parametrize("endpoint", BODIES)
def test_batches_and_the_lines_of_their_results_are_as_declared(
    service: Served, http: httpx.Client, endpoint: str
) -> None:
    kind, body = BODIES[endpoint]
    texts = {"good": "hello", "bad": "[status 400] no"}
    lines = [
        {"custom_id": name, "method": "POST", "url": endpoint, "body": {"model": "test-model", **body(text)}}
        for name, text in texts.items()
    ]
    batch = service.submit(lines, endpoint)
    service.wait(batch)

    ended = strictly(Batch, http.get(f"/v1/batches/{batch}").content)
    page = strictly(SyncCursorPage[Batch], http.get("/v1/batches?limit=1").content)
    assert page.data == [ended]
    rows = [row for file in (ended.output_file_id, ended.error_file_id) for row in _rows(http, file)]
    schema = http.get("/schemas/batch-output-line.json").json()
    for row in rows:
        jsonschema.validate(row, schema)
    assert [row["custom_id"] for row in rows] == ["good", "bad"]
    strictly(kind, json.dumps(rows[0]["response"]["body"]).encode(), whole=False)


def _rows(http: httpx.Client, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(row) for row in http.get(f"/v1/files/{file_id}/content").text.splitlines()]


@pytest.mark.parametrize(
    ("method", "path", "given", "status"),
    [
        ("GET", "/v1/batches/none", None, 404),
        ("GET", "/v1/batches?after=none", None, 400),
        ("GET", "/v1/batches?limit=none", None, 400),
        ("GET", "/v1/files/none/content", None, 404),
        ("GET", "/nowhere", None, 404),
        ("PATCH", "/v1/batches", None, 405),
        ("POST", "/v1/batches", b"{", 400),
        ("POST", "/v1/batches", b'{"input_file_id":"file-none","endpoint":"/v1/embeddings"}', 400),
        ("POST", "/v1/batches", b"x" * (33 * 2**20), 413),
        ("POST", "/v1/files", b"{}", 415),
        ("POST", "/v1/uploads", b'{"bytes":1e400}', 400),
    ],
)
def test_every_refusal_is_the_sdks_error(
    http: httpx.Client, method: str, path: str, given: bytes | None, status: int
) -> None:
    response = http.request(method, path, content=given, headers={"content-type": "application/json"})

    assert response.status_code == status
    error = strictly(Refused, response.content).error
    assert error.message
    assert error.code
    assert response.headers["x-request-id"]
    assert response.headers.get("x-should-retry", "false") == "false"
