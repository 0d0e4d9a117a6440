"""What holds for every call: ids, headers, the shape of errors, whom the server talks to."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest

from overnight.domain import events
from overnight.domain.limits import Limits
from tests.api.conftest import Serve, ServedApp, request

OWN_ID = re.compile(r"req_[0-9a-f]{32}")


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer, having checked that it has the one shape that errors have."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) - {"problems"} == {"message", "type", "param", "code"}
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    assert isinstance(error["message"], str)
    assert isinstance(error["code"], str)
    assert error["message"]
    return error


async def test_every_answer_carries_a_request_id(served_app: ServedApp) -> None:
    file = await served_app.upload(request())
    for path in ("/health", "/metrics", "/v1/nothing", "/v1/batches/batch_1", f"/v1/files/{file['id']}/content"):
        response = await served_app.http.get(path)
        assert OWN_ID.fullmatch(response.headers["x-request-id"]), path
    refused = await served_app.http.get("/health", headers={"host": "evil.example"})
    assert OWN_ID.fullmatch(refused.headers["x-request-id"])


async def test_a_callers_request_id_is_kept_where_it_is_visible_ascii(served_app: ServedApp) -> None:
    for given in ("a", "x" * 128, "trace/1:~!"):
        response = await served_app.http.get("/v1/nothing", headers={"x-request-id": given})
        assert response.headers["x-request-id"] == given
    for given_bytes in (b"", b"x" * 129, b"two words", b"caf\xe9", b"tab\there"):
        response = await served_app.http.get("/health", headers=[(b"x-request-id", given_bytes)])
        assert OWN_ID.fullmatch(response.headers["x-request-id"]), given_bytes


async def test_browsers_are_told_to_take_nothing_for_a_page(served_app: ServedApp) -> None:
    file = await served_app.upload(request())
    for path in (f"/v1/files/{file['id']}/content", "/v1/nothing"):
        headers = (await served_app.http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_an_unknown_address_is_the_error_shape(served_app: ServedApp) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/v1/batches/a/b/c", "/openapi", "/schema", "/v1/responses"):
        response = await served_app.http.get(path)
        assert (path, response.status_code, error_of(response)["code"]) == (path, 404, "not_found")


async def test_a_wrong_method_says_which_are_right(served_app: ServedApp) -> None:
    for method, path, allowed in (
        ("PUT", "/v1/batches", {"GET", "HEAD", "POST", "OPTIONS"}),
        ("DELETE", "/health", {"GET", "HEAD", "OPTIONS"}),
        ("GET", "/v1/batches/batch_1/cancel", {"POST", "OPTIONS"}),
    ):
        response = await served_app.http.request(method, path)
        assert (response.status_code, error_of(response)["code"]) == (405, "method_not_allowed")
        assert set(response.headers["allow"].split(", ")) == allowed


async def test_head_answers_as_get_without_a_body(served_app: ServedApp) -> None:
    file = await served_app.upload(request())
    batch = await served_app.create()
    paths = (
        "/health", "/v1/models", "/v1/pool/status", "/v1/batches", f"/v1/batches/{batch['id']}", "/v1/files",
        f"/v1/files/{file['id']}", f"/v1/files/{file['id']}/content", "/v1/nothing",
    )  # fmt: skip
    for path in paths:
        head, get = [await served_app.http.request(method, path) for method in ("HEAD", "GET")]
        assert (path, head.status_code, head.content) == (path, get.status_code, b"")
        for name in ("content-type", "content-length", "etag"):
            if (path, name) == ("/v1/pool/status", "content-length"):
                continue  # it tells how many seconds the oldest request waits: a moment later that may be a digit more
            assert (path, name, head.headers.get(name)) == (path, name, get.headers.get(name))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", "localhost.evil.example", "["]
)
async def test_a_name_that_is_not_ours_is_refused(served_app: ServedApp, host: str) -> None:
    for method in ("GET", "POST"):
        response = await served_app.http.request(method, "/v1/batches", headers={"host": host})
        assert (response.status_code, error_of(response)["code"]) == (403, "forbidden")


async def test_loopback_names_and_configured_ones_are_ours(serve: Serve) -> None:
    served = await serve(hosts=frozenset({"overnight.internal"}))
    for host in (
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:10900",
        "127.8.8.8",
        "[::1]:80",
        "app.localhost",
        "Overnight.Internal:9",
    ):
        assert (host, (await served.http.get("/health", headers={"host": host})).status_code) == (host, 200)


async def test_web_pages_of_other_sites_can_change_nothing(served_app: ServedApp) -> None:
    batch = await served_app.create()
    cancel = f"/v1/batches/{batch['id']}/cancel"
    foreign = (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "file://"},
        {"origin": "http://localhost.evil.example"},
        {"sec-fetch-site": "cross-site"},
    )
    for headers in foreign:
        response = await served_app.http.post(cancel, headers=headers)
        assert (headers, response.status_code, error_of(response)["code"]) == (headers, 403, "forbidden")
        upload = await served_app.http.post(
            "/v1/files", data={"purpose": "batch"}, files={"file": b"{}\n"}, headers=headers
        )
        assert (headers, upload.status_code) == (headers, 403)
    assert (await served_app.http.get(f"/v1/batches/{batch['id']}")).json()["status"] == "validating"
    own = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}
    assert (await served_app.http.post(cancel, headers=own)).status_code == 200


async def test_any_key_is_accepted_while_none_is_asked_for(served_app: ServedApp) -> None:
    for headers in ({"authorization": "Bearer sk-anything"}, {"x-api-key": "anything"}, {"authorization": "nonsense"}):
        assert (await served_app.http.get("/v1/batches", headers=headers)).status_code == 200


async def test_a_zero_character_is_refused_in_every_parameter(served_app: ServedApp) -> None:
    for path, name in (
        ("files", "purpose"),
        ("files", "order"),
        ("files", "limit"),
        ("files", "after"),
        ("batches", "q"),
    ):
        response = await served_app.http.get(f"/v1/{path}?{name}=a%00")
        assert (name, response.status_code, error_of(response)["param"]) == (name, 400, name)


async def test_an_unexpected_fault_is_told_with_its_id_and_shows_no_detail(
    served_app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Any, dict[str, Any]]] = []
    monkeypatch.setattr(events, "tell", lambda event, error=None, /, **facts: told.append((event, error, facts)))

    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("the secret is 42")

    monkeypatch.setattr("overnight.batches.find.get", fail)
    response = await served_app.http.get("/v1/batches/batch_1", headers={"x-request-id": "mine"})
    error = error_of(response)
    assert (response.status_code, error["code"], error["type"]) == (500, "internal_error", "server_error")
    assert "mine" in error["message"]
    assert "42" not in response.text
    assert "ZeroDivision" not in response.text
    [(event, raised, facts)] = told
    assert (event, type(raised), facts["request"]) == ("request_failed", ZeroDivisionError, "mine")


async def test_a_lost_database_is_service_unavailable_and_may_be_tried_again(serve: Serve) -> None:
    served = await serve()
    batch = await served.create()
    await served.store.close()
    for method, path in (
        ("GET", f"/v1/batches/{batch['id']}"),
        ("GET", "/v1/files"),
        ("POST", f"/v1/batches/{batch['id']}/cancel"),
    ):
        response = await served.http.request(method, path)
        assert (response.status_code, error_of(response)["code"]) == (503, "service_unavailable")
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert "x-should-retry" not in response.headers
    await served.store.open()
    assert (await served.http.get(f"/v1/batches/{batch['id']}")).status_code == 200


async def test_a_fault_after_the_answer_began_cuts_the_connection(
    served_app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await served_app.upload(*[request(str(n)) for n in range(100)])

    async def broken(*_: Any, **__: Any) -> Any:
        yield b"half"
        raise ConnectionResetError

    told: list[str] = []
    monkeypatch.setattr(events, "tell", lambda event, *_, **__: told.append(event))
    monkeypatch.setattr("overnight.files.content.stream", broken)
    with pytest.raises(httpx.RemoteProtocolError):
        await served_app.http.get(f"/v1/files/{file['id']}/content")
    assert told == ["database_lost"]


async def test_a_caller_that_falls_silent_is_given_up(serve: Serve) -> None:
    served = await serve(stalled_seconds=0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    writer.write(
        b"POST /v1/batches HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{"
    )
    answer = await reader.read()
    writer.close()
    assert b"upload_interrupted" in answer
    assert b"connection: close" in answer


async def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(serve: Serve) -> None:
    served = await serve(Limits(create_body_bytes=100))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    writer.write(
        b"POST /v1/batches HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 101\r\nexpect: 100-continue\r\n\r\n"
    )
    first = await reader.readline()
    writer.close()
    assert first.startswith(b"HTTP/1.1 413 ")


async def test_uploads_and_creates_are_refused_for_good_while_the_disk_is_almost_full(serve: Serve) -> None:
    full = False
    app = await serve(disk_is_low=lambda: full)
    file = await app.upload(request())
    full = True

    upload = await app.http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", "{}")})
    create = await app.http.post("/v1/batches", json={"input_file_id": file["id"], "endpoint": "/v1/chat/completions"})
    listed = await app.http.get("/v1/files")

    assert [upload.status_code, create.status_code] == [507, 507]
    assert upload.json()["error"]["code"] == "insufficient_storage"
    assert upload.headers["x-should-retry"] == "false"
    assert len(listed.json()["data"]) == 1
