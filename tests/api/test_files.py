"""Files over HTTP, through plain calls and through the official client."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from overnight.api.app import create_app
from overnight.domain.limits import MIB, Limits
from tests.api.conftest import Serve, ServedApp, request
from tests.files.forms import BOUNDARY, CONTENT_TYPE, add_account, rows_left, send, upload_form

TEXT = "".join(json.dumps(request(f"id-{n}", user="ü" * 200), ensure_ascii=False) + "\n" for n in range(2_000)).encode()
FORM = {"content-type": CONTENT_TYPE}


async def stored(served: ServedApp, text: bytes = TEXT, name: str = "in.jsonl", **fields: str) -> dict[str, Any]:
    data = {"purpose": "batch"} | fields
    response = await served.http.post("/v1/files", data=data, files={"file": (name, text)})
    assert response.status_code == 200, response.text
    file: dict[str, Any] = response.json()
    return file


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    """Check that an answer is an error of the one shape, and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    [(key, shown)] = response.json().items()
    assert (key, set(shown)) == ("error", {"message", "type", "param", "code"})
    found: dict[str, Any] = shown
    return found


async def test_an_uploaded_file_can_be_read_at_once(served_app: ServedApp) -> None:
    file = await stored(served_app)

    assert (await served_app.http.get(f"/v1/files/{file['id']}")).json() == file
    listed = (await served_app.http.get("/v1/files")).json()
    assert listed == {
        "object": "list",
        "data": [file],
        "first_id": file["id"],
        "last_id": file["id"],
        "has_more": False,
    }
    assert (await served_app.http.get(f"/v1/files/{file['id']}/content")).content == TEXT


async def test_an_empty_list_has_no_ids(served_app: ServedApp) -> None:
    shown = (await served_app.http.get("/v1/files")).json()

    assert shown == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_a_list_is_read_page_by_page_in_both_orders(served_app: ServedApp) -> None:
    made = [(await stored(served_app, b"{}\n"))["id"] for _ in range(3)]

    for order, expected in (("desc", made[::-1]), ("asc", made)):
        query = {"limit": "2", "order": order, "purpose": "batch"}
        first = (await served_app.http.get("/v1/files", params=query)).json()
        second = (await served_app.http.get("/v1/files", params={**query, "after": first["last_id"]})).json()
        assert [f["id"] for f in first["data"] + second["data"]] == expected
        assert (first["has_more"], second["has_more"]) == (True, False)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"), ("limit=10001", "limit"), ("limit=", "limit"), ("limit=ten", "limit"),
        ("limit=-1", "limit"), ("limit=1.5", "limit"), ("limit=1&limit=2", "limit"), ("limit=%D9%A1", "limit"),
        ("order=up", "order"), ("order=", "order"), ("after=", "after"), ("after=file-" + "0" * 32, "after"),
    ],
)  # fmt: skip
async def test_a_list_parameter_out_of_range_or_unknown_is_refused(
    served_app: ServedApp, query: str, param: str
) -> None:
    shown = error(await served_app.http.get(f"/v1/files?{query}"), 400)

    assert (shown["code"], shown["param"]) == ("invalid_parameter", param)


@pytest.mark.parametrize("limit", ["1", "10000"])
async def test_the_least_and_the_most_of_a_page_are_accepted(served_app: ServedApp, limit: str) -> None:
    assert (await served_app.http.get("/v1/files", params={"limit": limit})).status_code == 200


async def test_a_download_says_all_that_its_caller_may_want_to_know(served_app: ServedApp) -> None:
    file = await stored(served_app, name="Fragen für heute.jsonl")
    expected = {
        "content-length": str(len(TEXT)),
        "etag": f'"{hashlib.sha256(TEXT).hexdigest()}"',
        "accept-ranges": "bytes",
        "content-type": "application/jsonl; charset=utf-8",
        "content-disposition": 'attachment; filename="Fragen f_r heute.jsonl"; '
        "filename*=UTF-8''Fragen%20f%C3%BCr%20heute.jsonl",
    }

    got = await served_app.http.get(f"/v1/files/{file['id']}/content", headers={"accept": "application/binary"})
    head = await served_app.http.head(f"/v1/files/{file['id']}/content", headers={"range": "bytes=0-4"})

    for response, body in ((got, TEXT), (head, b"")):
        assert response.status_code == 200
        assert {name: response.headers[name] for name in expected} == expected
        assert response.content == body


@pytest.mark.parametrize(
    ("wanted", "part"),
    [("bytes=0-9", slice(0, 10)), ("bytes=700000-700099", slice(700_000, 700_100)), ("bytes=-5", slice(-5, None))],
)
async def test_a_range_is_sent_as_partial_content(served_app: ServedApp, wanted: str, part: slice) -> None:
    file = await stored(served_app)

    response = await served_app.http.get(f"/v1/files/{file['id']}/content", headers={"range": wanted})

    start, stop, _ = part.indices(len(TEXT))
    assert response.status_code == 206
    assert response.content == TEXT[part]
    assert response.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(TEXT)}"
    assert response.headers["content-length"] == str(stop - start)


@pytest.mark.parametrize("wanted", ["bytes=0-1,5-6", "bytes=5-1", "lines=0-1"])
async def test_a_range_that_is_not_understood_gives_the_whole(served_app: ServedApp, wanted: str) -> None:
    file = await stored(served_app)

    response = await served_app.http.get(f"/v1/files/{file['id']}/content", headers={"range": wanted})

    assert (response.status_code, response.content) == (200, TEXT)


async def test_a_range_that_cannot_be_satisfied_says_how_long_the_file_is(served_app: ServedApp) -> None:
    file = await stored(served_app)

    response = await served_app.http.get(f"/v1/files/{file['id']}/content", headers={"range": f"bytes={len(TEXT)}-"})

    assert error(response, 416)["code"] == "range_not_satisfiable"
    assert response.headers["content-range"] == f"bytes */{len(TEXT)}"


async def test_a_range_of_bytes_that_changed_meanwhile_is_not_sent(served_app: ServedApp) -> None:
    file = await stored(served_app)
    url = f"/v1/files/{file['id']}/content"

    same = await served_app.http.get(url, headers={"range": "bytes=0-1", "if-range": f'"{file["sha256"]}"'})
    other = await served_app.http.get(url, headers={"range": "bytes=0-1", "if-range": '"other"'})

    assert (same.status_code, other.status_code) == (206, 200)
    assert other.content == TEXT


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_bytes_that_the_caller_has_are_not_sent_again(served_app: ServedApp, method: str) -> None:
    file = await stored(served_app)
    headers = {"if-none-match": f'"other", W/"{file["sha256"]}"', "range": "bytes=0-1"}

    response = await served_app.http.request(method, f"/v1/files/{file['id']}/content", headers=headers)

    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == f'"{file["sha256"]}"'


async def test_a_deleted_file_is_gone_for_every_route(served_app: ServedApp) -> None:
    file = await stored(served_app)
    url = f"/v1/files/{file['id']}"

    deleted = (await served_app.http.delete(url)).json()

    assert deleted == {"id": file["id"], "object": "file", "deleted": True}
    for response in (
        await served_app.http.get(url),
        await served_app.http.get(f"{url}/content"),
        await served_app.http.delete(url),
    ):
        assert error(response, 404)["code"] == "file_not_found"


async def test_unknown_and_foreign_ids_read_the_same(served_app: ServedApp) -> None:
    other = await add_account(served_app.store, "other")
    foreign = (await send(served_app.store, upload_form(TEXT), owner=other)).public_id

    for path in ("", "/content"):
        said = [
            error(await served_app.http.get(f"/v1/files/{file_id}{path}"), 404)["message"].replace(file_id, "")
            for file_id in (foreign, "file-" + "0" * 32)
        ]
        assert said[0] == said[1]
    assert (await served_app.http.get("/v1/files")).json()["data"] == []


REFUSED: dict[str, tuple[bytes, dict[str, str], int, str, str | None]] = {
    "an empty file": (upload_form(b""), FORM, 400, "empty_file", "file"),
    "another purpose": (upload_form(TEXT, purpose="vision"), FORM, 400, "invalid_parameter", "purpose"),
    "a wrong expiry": (
        upload_form(TEXT, **{"expires_after[anchor]": "created_at", "expires_after_seconds": "1"}),
        FORM,
        400,
        "invalid_parameter",
        "expires_after[seconds]",
    ),
    "no form": (b"{}", {"content-type": "application/json"}, 415, "unsupported_media_type", None),
    "no boundary": (upload_form(TEXT), {"content-type": "multipart/form-data"}, 400, "invalid_request", None),
    "a cut form": (upload_form(TEXT)[:-9], FORM, 400, "invalid_request", None),
    "a compressed form": (
        upload_form(TEXT),
        {**FORM, "content-encoding": "gzip"},
        415,
        "unsupported_media_type",
        None,
    ),
    "a file over the limit": (upload_form(TEXT * 3), FORM, 413, "too_large", "file"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_upload_says_why_and_leaves_nothing(serve: Serve, name: str) -> None:
    body, headers, status, code, param = REFUSED[name]
    served = await serve(Limits(file_bytes=2 * MIB))

    shown = error(await served.http.post("/v1/files", content=body, headers=headers), status)

    assert (shown["code"], shown["param"]) == (code, param)
    assert await rows_left(served.store) == (0, 0)


async def test_a_chunked_body_is_counted_while_it_arrives(serve: Serve) -> None:
    served = await serve(Limits(file_bytes=2 * MIB))

    async def body() -> AsyncIterator[bytes]:
        whole = upload_form(TEXT * 5)
        for start in range(0, len(whole), 100_000):
            yield whole[start : start + 100_000]

    response = await served.http.post("/v1/files", content=body(), headers=FORM)

    assert "content-length" not in response.request.headers
    assert f"{2 * MIB:,}" in error(response, 413)["message"]
    assert await rows_left(served.store) == (0, 0)


async def test_a_connection_that_ends_in_the_middle_of_an_upload_leaves_nothing(served_app: ServedApp) -> None:
    body = upload_form(TEXT * 5)[: -len(BOUNDARY) - 9]
    headers = [(b"host", b"localhost"), (b"content-type", CONTENT_TYPE.encode())]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/files", "raw_path": b"/v1/files", "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        nonlocal body
        if not body:
            assert (await rows_left(served_app.store))[1] > 0
            return {"type": "http.disconnect"}
        piece, body = body[:65_536], body[65_536:]
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send_message(message: Any) -> None:
        sent.append(message)

    app: Any = create_app(served_app.deps)
    await app(scope, receive, send_message)

    assert sent[0]["status"] == 499
    assert await rows_left(served_app.store) == (0, 0)


async def test_problems_are_told_with_the_upload(served_app: ServedApp) -> None:
    file = await stored(served_app, b"\xef\xbb\xbf" + json.dumps(request()).encode() + b"\r\n\r\n[]\nNaN")

    assert file["lines"] == 3
    assert file["problems"]["count"] == 2
    assert [(p["code"], p["line"]) for p in file["problems"]["first"]] == [
        ("invalid_json_line", 3),
        ("invalid_json_line", 4),
    ]


async def test_the_official_client_does_all_it_can_with_files(served_app: ServedApp) -> None:
    client = openai.AsyncOpenAI(base_url=f"{served_app.url}/v1", api_key="any", max_retries=0)
    async with client:
        files = [
            await client.files.create(
                file=TEXT, purpose="batch", expires_after={"anchor": "created_at", "seconds": 3_600}
            ),
            await client.files.create(file=("two.jsonl", TEXT), purpose="batch", extra_body={"user": "me"}),
        ]

        assert [f.filename for f in files] == ["upload", "two.jsonl"]
        assert files[0].expires_at == files[0].created_at + 3_600
        assert (await client.files.wait_for_processing(files[0].id)).status == "processed"
        assert await client.files.retrieve(files[0].id) == files[0]
        assert [f.id async for f in client.files.list(limit=1, order="asc")] == [f.id for f in files]
        assert [f.id async for f in client.files.list(purpose="batch_output")] == []
        content = await client.files.content(files[0].id)
        assert content.text == TEXT.decode()
        async with client.files.with_streaming_response.content(files[1].id) as streamed:
            assert len([line async for line in streamed.iter_lines()]) == 2_000
        assert (await client.files.delete(files[0].id)).deleted
        with pytest.raises(openai.NotFoundError) as caught:
            await client.files.retrieve(files[0].id)
        assert caught.value.code == "file_not_found"
