"""Uploads over HTTP: files that are sent in parts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from overnight.domain.limits import MIB, PART_BYTES, Limits
from tests.api.conftest import Serve, ServedApp, request
from tests.api.test_files import FORM, TEXT, error
from tests.files.forms import CONTENT_TYPE, add_account, rows_left
from tests.files.sent_in_parts import HEAD, TAIL, begin, part_form

PIECES = [TEXT[:300_000], TEXT[300_000:300_001], TEXT[300_001:]]
UNKNOWN = "upload_" + "0" * 32


async def created(served: ServedApp, size: int = len(TEXT), **fields: Any) -> dict[str, Any]:
    given = {"bytes": size, "filename": "in.jsonl", "mime_type": "application/jsonl", "purpose": "batch", **fields}
    response = await served.http.post("/v1/uploads", json=given)
    assert response.status_code == 200, response.text
    upload: dict[str, Any] = response.json()
    return upload


async def added(served: ServedApp, upload: dict[str, Any], content: bytes) -> dict[str, Any]:
    response = await served.http.post(f"/v1/uploads/{upload['id']}/parts", files={"data": ("blob", content)})
    assert response.status_code == 200, response.text
    part: dict[str, Any] = response.json()
    return part


async def with_parts(served: ServedApp, *pieces: bytes) -> tuple[str, list[str]]:
    """The path of an upload, and the ids of its parts."""
    upload = await created(served, sum(map(len, pieces)))
    return f"/v1/uploads/{upload['id']}", [(await added(served, upload, piece))["id"] for piece in pieces]


async def test_a_file_is_sent_in_parts_and_used_like_any_other(served_app: ServedApp) -> None:
    before = int(time.time()) - 1
    upload = await created(served_app)
    created_at = upload["created_at"]
    assert before <= created_at <= time.time() + 1
    assert upload == {
        "id": upload["id"],
        "object": "upload",
        "bytes": len(TEXT),
        "created_at": created_at,
        "expires_at": created_at + 3_600,
        "filename": "in.jsonl",
        "purpose": "batch",
        "status": "pending",
        "file": None,
    }
    assert upload["id"].startswith("upload_")
    assert (await served_app.http.get(f"/v1/uploads/{upload['id']}")).json() == upload

    parts = [await added(served_app, upload, piece) for piece in PIECES]
    for part in parts:
        assert part["id"].startswith("part_")
        assert before <= part["created_at"] <= time.time() + 1
        assert part == {**part, "object": "upload.part", "upload_id": upload["id"]}
        assert len(part) == 4
    given = {"part_ids": [part["id"] for part in parts], "md5": hashlib.md5(TEXT).hexdigest().upper()}
    response = await served_app.http.post(f"/v1/uploads/{upload['id']}/complete", json=given)

    done = response.json()
    file = done["file"]
    assert done == {**upload, "status": "completed", "file": file}
    assert (await served_app.http.get(f"/v1/uploads/{upload['id']}")).json() == done
    assert (await served_app.http.get(f"/v1/files/{file['id']}")).json() == file
    assert (await served_app.http.get(f"/v1/files/{file['id']}/content")).content == TEXT
    assert (file["lines"], file["problems"], file["filename"]) == (2_000, None, "in.jsonl")
    batch = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions"}
    assert (await served_app.http.post("/v1/batches", json=batch)).status_code == 200


async def test_problems_are_told_when_the_upload_is_completed(served_app: ServedApp) -> None:
    line = json.dumps(request()).encode() + b"\n"
    path, part_ids = await with_parts(served_app, line + b"[", b"]\n" + line)

    file = (await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids})).json()["file"]

    assert [(p["code"], p["line"]) for p in file["problems"]["first"]] == [
        ("invalid_json_line", 2),
        ("duplicate_custom_id", 3),
    ]


async def test_a_life_that_the_create_call_asks_for_is_counted_from_the_completion(served_app: ServedApp) -> None:
    upload = await created(served_app, 3, expires_after={"anchor": "created_at", "seconds": 7_200})
    part = await added(served_app, upload, b"{}\n")

    path = f"/v1/uploads/{upload['id']}/complete"
    file = (await served_app.http.post(path, json={"part_ids": [part["id"]]})).json()["file"]

    assert file["expires_at"] == file["created_at"] + 7_200


async def test_completing_twice_returns_the_same_upload(served_app: ServedApp) -> None:
    path, part_ids = await with_parts(served_app, *PIECES)

    first = await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids})
    again = await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids})

    assert first.json() == again.json()
    assert first.json()["file"]["id"]
    assert len((await served_app.http.get("/v1/files")).json()["data"]) == 1


async def test_two_completes_at_once_make_one_file(served_app: ServedApp) -> None:
    path, part_ids = await with_parts(served_app, *PIECES)

    done = await asyncio.gather(
        *(served_app.http.post(f"{path}/complete", json={"part_ids": part_ids}) for _ in range(3))
    )

    [file] = (await served_app.http.get("/v1/files")).json()["data"]
    assert [response.json()["file"] for response in done] == [file] * 3


async def test_a_completed_upload_whose_file_was_deleted_has_none(served_app: ServedApp) -> None:
    path, part_ids = await with_parts(served_app, *PIECES)
    done = (await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids})).json()
    await served_app.http.delete(f"/v1/files/{done['file']['id']}")

    again = await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids})

    assert again.json() == {**done, "file": None}


async def test_a_part_sent_again_is_another_part(served_app: ServedApp) -> None:
    path, [first, again] = await with_parts(served_app, TEXT, TEXT)
    assert first != again

    shown = error(await served_app.http.post(f"{path}/complete", json={"part_ids": [first]}), 400)

    assert f"{2 * len(TEXT):,}" in shown["message"]
    assert f"{len(TEXT):,}" in shown["message"]
    assert (await served_app.http.post(f"{path}/complete", json={"part_ids": [first, again]})).status_code == 200


async def test_a_cancelled_upload_is_over(served_app: ServedApp) -> None:
    path, part_ids = await with_parts(served_app, *PIECES)

    cancelled = await served_app.http.post(f"{path}/cancel")
    again = await served_app.http.post(f"{path}/cancel")

    assert (cancelled.status_code, cancelled.json()["status"], cancelled.json()["file"]) == (200, "cancelled", None)
    assert again.json() == cancelled.json()
    for response in (
        await served_app.http.post(f"{path}/parts", files={"data": b"x"}),
        await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids}),
    ):
        shown = error(response, 400)
        assert (shown["code"], shown["type"]) == ("upload_not_pending", "invalid_request_error")
        assert "cancelled" in shown["message"]


async def test_a_completed_upload_takes_no_parts_and_is_not_cancelled(served_app: ServedApp) -> None:
    path, part_ids = await with_parts(served_app, *PIECES)
    done = (await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids})).json()

    for response in (
        await served_app.http.post(f"{path}/parts", files={"data": b"x"}),
        await served_app.http.post(f"{path}/cancel"),
    ):
        assert error(response, 400)["code"] == "upload_not_pending"
    assert (await served_app.http.get(path)).json() == done


async def test_an_upload_expires_after_an_hour(served_app: ServedApp) -> None:
    path, part_ids = await with_parts(served_app, *PIECES)
    async with served_app.store.session() as session:
        await session.connection.execute("UPDATE upload SET until = until - interval '1 hour'")

    assert (await served_app.http.get(path)).json()["status"] == "expired"
    assert (await served_app.http.post(f"{path}/cancel")).json()["status"] == "expired"
    for response in (
        await served_app.http.post(f"{path}/parts", files={"data": b"x"}),
        await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids}),
    ):
        shown = error(response, 400)
        assert shown["code"] == "upload_not_pending"
        assert "expired" in shown["message"]


async def test_unknown_and_foreign_uploads_read_the_same(served_app: ServedApp) -> None:
    other = await begin(served_app.store, 3, owner=await add_account(served_app.store, "other"))
    foreign = other.upload.public_id

    for method, path, given in (
        ("GET", "", {}),
        ("POST", "/parts", {"files": {"data": b"x"}}),
        ("POST", "/complete", {"json": {"part_ids": ["part_" + "0" * 32]}}),
        ("POST", "/cancel", {}),
    ):
        said = []
        for upload_id in (foreign, UNKNOWN, "upload_nonsense", "file-" + "0" * 32):
            url = f"/v1/uploads/{upload_id}{path}"
            shown = error(await served_app.http.request(method, url, **given), 404)
            assert shown["code"] == "upload_not_found"
            said.append(shown["message"].replace(upload_id, ""))
        assert len(set(said)) == 1


async def test_a_part_is_no_file(served_app: ServedApp) -> None:
    _, [part_id] = await with_parts(served_app, TEXT)
    as_file = part_id.replace("part_", "file-")

    assert (await served_app.http.get("/v1/files")).json()["data"] == []
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert error(await served_app.http.request(method, f"/v1/files/{as_file}{path}"), 404)
    assert error(await served_app.http.get("/v1/files", params={"after": as_file}), 400)["param"] == "after"


GOOD = {"bytes": 10, "filename": "in.jsonl", "mime_type": "application/jsonl", "purpose": "batch"}
REFUSED_CREATES: dict[str, tuple[dict[str, Any], int, str, str | None]] = {
    "no bytes": ({"bytes": None}, 400, "missing_required_parameter", "bytes"),
    "no file name": ({"filename": None}, 400, "missing_required_parameter", "filename"),
    "no type": ({"mime_type": None}, 400, "missing_required_parameter", "mime_type"),
    "no purpose": ({"purpose": None}, 400, "missing_required_parameter", "purpose"),
    "another purpose": ({"purpose": "assistants"}, 400, "invalid_parameter", "purpose"),
    "bytes as a string": ({"bytes": "10"}, 400, "invalid_parameter", "bytes"),
    "bytes as a fraction": ({"bytes": 10.0}, 400, "invalid_parameter", "bytes"),
    "bytes as a truth": ({"bytes": True}, 400, "invalid_parameter", "bytes"),
    "negative bytes": ({"bytes": -1}, 400, "invalid_parameter", "bytes"),
    "an empty file": ({"bytes": 0}, 400, "empty_file", "bytes"),
    "a byte over the limit": ({"bytes": 2 * MIB + 1}, 413, "too_large", "bytes"),
    "bytes beyond any integer": ({"bytes": 10**30}, 400, "invalid_parameter", "bytes"),
    "a long file name": ({"filename": "x" * 2_000}, 400, "invalid_parameter", "filename"),
    "a file name that is none": ({"filename": 1}, 400, "invalid_parameter", "filename"),
    "a type that is none": ({"mime_type": []}, 400, "invalid_parameter", "mime_type"),
    "an unknown field": ({"part_size": 3}, 400, "unknown_parameter", "part_size"),
    "a short life": (
        {"expires_after": {"anchor": "created_at", "seconds": 3_599}}, 400, "invalid_parameter",
        "expires_after.seconds",
    ),
    "another anchor": (
        {"expires_after": {"anchor": "now", "seconds": 3_600}}, 400, "invalid_parameter", "expires_after.anchor",
    ),
    "half a life": ({"expires_after": {"anchor": "created_at"}}, 400, "missing_required_parameter",
                    "expires_after.seconds"),
    "a body over its limit": ({"filename": "x" * 70_000}, 413, "too_large", None),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_CREATES)
async def test_a_create_that_is_refused_says_why(serve: Serve, name: str) -> None:
    fields, status, code, param = REFUSED_CREATES[name]
    served = await serve(Limits(file_bytes=2 * MIB))

    shown = error(await served.http.post("/v1/uploads", json={**GOOD, **fields}), status)

    assert (shown["code"], shown["param"]) == (code, param)


async def test_an_upload_at_the_limit_is_begun(serve: Serve) -> None:
    served = await serve(Limits(file_bytes=2 * MIB))

    assert (await created(served, 2 * MIB))["status"] == "pending"


async def test_a_file_name_is_cleaned(served_app: ServedApp) -> None:
    assert (await created(served_app, filename="../a\x00/b\u202e.jsonl"))["filename"] == "b.jsonl"


REFUSED_PARTS: dict[str, tuple[bytes, dict[str, str], int, str, str | None]] = {
    "no data": (part_form(b"x").replace(b'name="data"', b'name="file"'), FORM, 400, "missing_required_parameter",
                "data"),
    "no form": (b"{}", {"content-type": "application/json"}, 415, "unsupported_media_type", None),
    "no boundary": (part_form(b"x"), {"content-type": "multipart/form-data"}, 400, "invalid_request", None),
    "a cut form": (part_form(TEXT)[:-9], FORM, 400, "invalid_request", None),
    "a compressed form": (part_form(b"x"), {**FORM, "content-encoding": "gzip"}, 415, "unsupported_media_type", None),
    "two parts": (HEAD + b"a\r\n" + HEAD + b"b" + TAIL, FORM, 400, "invalid_parameter", "data"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_PARTS)
async def test_a_part_that_is_refused_says_why_and_leaves_nothing(served_app: ServedApp, name: str) -> None:
    body, headers, status, code, param = REFUSED_PARTS[name]
    upload = await created(served_app)

    response = await served_app.http.post(f"/v1/uploads/{upload['id']}/parts", content=body, headers=headers)

    shown = error(response, status)
    assert (shown["code"], shown["param"]) == (code, param)
    assert await rows_left(served_app.store) == (0, 0)


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_part_over_64_mib_is_refused_announced_or_not(served_app: ServedApp, is_announced: bool) -> None:
    upload = await created(served_app, 2 * PART_BYTES)
    piece = b"x" * MIB
    size = len(HEAD) + PART_BYTES + 2 * MIB + len(TAIL)

    async def body() -> AsyncIterator[bytes]:
        yield HEAD
        for _ in range(PART_BYTES // MIB + 2):
            yield piece
        yield TAIL

    headers = {"content-type": CONTENT_TYPE} | ({"content-length": str(size)} if is_announced else {})
    path = f"/v1/uploads/{upload['id']}/parts"
    shown = error(await served_app.http.post(path, content=body(), headers=headers), 413)

    assert (shown["code"], shown["param"]) == ("too_large", "data")
    assert f"{PART_BYTES:,}" in shown["message"]
    assert await rows_left(served_app.store) == (0, 0)


REFUSED_COMPLETES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no parts": ({}, "missing_required_parameter", "part_ids"),
    "an empty list": ({"part_ids": []}, "invalid_parameter", "part_ids"),
    "no list": ({"part_ids": "part_1"}, "invalid_parameter", "part_ids"),
    "no ids": ({"part_ids": [1]}, "invalid_parameter", "part_ids"),
    "an unknown id": ({"part_ids": ["part_" + "0" * 32]}, "invalid_parameter", "part_ids"),
    "no id at all": ({"part_ids": ["", "\0"]}, "invalid_parameter", "part_ids"),
    "too many": ({"part_ids": [f"part_{n:032x}" for n in range(10_001)]}, "invalid_parameter", "part_ids"),
    "an unknown field": ({"part_ids": ["a"], "sha256": "b"}, "unknown_parameter", "sha256"),
    "no md5": ({"part_ids": ["a"], "md5": "XrY7u+Ae7tCTyyK7j1rNww=="}, "invalid_parameter", "md5"),
    "an md5 that is a number": ({"part_ids": ["a"], "md5": 1}, "invalid_parameter", "md5"),
}


@pytest.mark.parametrize("name", REFUSED_COMPLETES)
async def test_a_complete_that_is_refused_says_why(served_app: ServedApp, name: str) -> None:
    given, code, param = REFUSED_COMPLETES[name]
    path, _ = await with_parts(served_app, TEXT)

    shown = error(await served_app.http.post(f"{path}/complete", json=given), 400)

    assert (shown["code"], shown["param"]) == (code, param)
    assert (await served_app.http.get(path)).json()["status"] == "pending"


async def test_a_complete_that_does_not_fit_the_upload_is_refused_and_may_be_corrected(served_app: ServedApp) -> None:
    path, part_ids = await with_parts(served_app, *PIECES)
    _, foreign = await with_parts(served_app, TEXT)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"part_ids": part_ids[:2]}, "part_ids"),
        ({"part_ids": [*part_ids, part_ids[0]]}, "part_ids"),
        ({"part_ids": foreign}, "part_ids"),
        ({"part_ids": part_ids, "md5": "0" * 32}, "md5"),
        ({"part_ids": part_ids[::-1], "md5": hashlib.md5(TEXT).hexdigest()}, "md5"),
    ]

    for given, param in wrong:
        shown = error(await served_app.http.post(f"{path}/complete", json=given), 400)
        assert (shown["code"], shown["param"]) == ("invalid_parameter", param)
    assert (await served_app.http.get("/v1/files")).json()["data"] == []

    done = await served_app.http.post(f"{path}/complete", json={"part_ids": part_ids})
    assert done.json()["file"]["sha256"] == hashlib.sha256(TEXT).hexdigest()


async def test_the_longest_list_of_parts_fits_into_a_complete(served_app: ServedApp) -> None:
    path, _ = await with_parts(served_app, TEXT)
    part_ids = [f"part_{n:032x}" for n in range(10_000)]

    shown = error(await served_app.http.post(f"{path}/complete", content=json.dumps({"part_ids": part_ids}, indent=8),
                                             headers={"content-type": "application/json"}), 400)  # fmt: skip

    assert part_ids[0] in shown["message"]


async def test_a_full_disk_refuses_what_would_store_more(serve: Serve) -> None:
    roomy = await serve()
    path, part_ids = await with_parts(roomy, TEXT)
    full = await serve(disk_is_low=lambda: True)

    for response in (
        await full.http.post("/v1/uploads", json=GOOD),
        await full.http.post(f"{path}/parts", files={"data": b"x"}),
        await full.http.post(f"{path}/complete", json={"part_ids": part_ids}),
    ):
        assert error(response, 507)["code"] == "insufficient_storage"
    assert (await full.http.get(path)).json()["status"] == "pending"
    assert (await full.http.post(f"{path}/cancel")).json()["status"] == "cancelled"
