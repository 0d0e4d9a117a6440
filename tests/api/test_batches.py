"""Batches over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from uuid import uuid4

from overnight.domain.limits import Limits
from overnight.store.pool import Store
from tests.api.conftest import Serve, ServedApp, request
from tests.batches.factory import make_factory

JSON = {"content-type": "application/json"}

NULL_AT_FIRST = (
    "errors", "error", "output_file_id", "error_file_id", "in_progress_at", "finalizing_at", "completed_at",
    "failed_at", "expired_at", "cancelling_at", "cancelled_at", "paused", "retry_of", "model", "anthropic_version",
)  # fmt: skip


async def test_a_batch_is_created_and_can_be_read_at_once(served_app: ServedApp) -> None:
    created = await served_app.create(metadata={"name": "überall"}, temperature=0.5)
    got = (await served_app.http.get(f"/v1/batches/{created['id']}")).json()
    assert got == created
    assert (got["object"], got["status"], got["completion_window"]) == ("batch", "validating", "24h")
    assert got["metadata"] == {"name": "überall"}
    assert got["temperature"] == 0.5
    assert got["request_counts"] == {"total": 1, "completed": 0, "failed": 0}
    assert got["expires_at"] - got["created_at"] == 24 * 3600
    assert {name: got[name] for name in NULL_AT_FIRST} == dict.fromkeys(NULL_AT_FIRST)


async def test_the_worker_is_woken_by_a_create_and_by_a_cancel(served_app: ServedApp) -> None:
    batch = await served_app.create()
    assert served_app.bell.rung == 1
    await served_app.http.post(f"/v1/batches/{batch['id']}/cancel")
    assert served_app.bell.rung == 2


async def test_a_refused_create_wakes_nobody_and_leaves_nothing(served_app: ServedApp) -> None:
    response = await served_app.http.post("/v1/batches", json={"endpoint": "/v1/chat/completions"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input_file_id")
    assert served_app.bell.rung == 0
    assert (await served_app.http.get("/v1/batches")).json()["data"] == []


async def test_cancelling_can_be_repeated(served_app: ServedApp) -> None:
    batch = await served_app.create()
    first = (await served_app.http.post(f"/v1/batches/{batch['id']}/cancel")).json()
    again = (await served_app.http.post(f"/v1/batches/{batch['id']}/cancel", json={"ignored": True})).json()
    assert first["status"] == "cancelling"
    assert first["cancelling_at"] is not None
    assert again == first


async def test_pages_go_through_all_batches_once_newest_first(served_app: ServedApp) -> None:
    made = [(await served_app.create())["id"] for _ in range(5)]
    seen: list[str] = []
    sizes = []
    after: dict[str, str] = {}
    while True:
        page = (await served_app.http.get("/v1/batches", params={"limit": "2", **after})).json()
        seen += [b["id"] for b in page["data"]]
        sizes.append((len(page["data"]), page["has_more"]))
        assert (page["object"], page["first_id"]) == ("list", page["data"][0]["id"])
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
        await served_app.create()
    assert seen == made[::-1]
    assert sizes == [(2, True), (2, True), (1, False)]


async def test_an_empty_page_names_no_ids(served_app: ServedApp) -> None:
    page = (await served_app.http.get("/v1/batches", params={"unknown": "ignored"})).json()
    assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_lists_can_be_narrowed_by_states_and_by_a_search(served_app: ServedApp) -> None:
    kept = await served_app.create(metadata={"name": "nightly run"})
    dropped = await served_app.create()
    await served_app.http.post(f"/v1/batches/{dropped['id']}/cancel")

    async def ids(query: str) -> list[str]:
        return [b["id"] for b in (await served_app.http.get(f"/v1/batches?{query}")).json()["data"]]

    assert await ids("status=validating") == [kept["id"]]
    assert await ids("status=validating&status=cancelling") == [dropped["id"], kept["id"]]
    assert await ids("status=completed") == []
    assert await ids("q=NIGHTLY") == [kept["id"]]
    assert await ids("endpoint=/v1/chat/completions") == [dropped["id"], kept["id"]]
    assert await ids("endpoint=/v1/embeddings") == []
    assert await ids("model=tiny") == []
    assert await ids(f"created_after={kept['created_at'] - 1}") == [dropped["id"], kept["id"]]
    assert await ids(f"created_before={kept['created_at']}") == []


WRONG = (
    ("limit=0", "limit"), ("limit=101", "limit"), ("limit=ten", "limit"), ("limit=1&limit=2", "limit"),
    ("limit=", "limit"), ("after=", "after"), ("after=batch_1", "after"), ("after=%00", "after"),
    (f"after=batch_{uuid4().hex}", "after"), ("status=running", "status"), ("status=", "status"),
    ("q=%00", "q"), ("q=" + "x" * 513, "q"), ("model=%00", "model"), ("model=a&model=b", "model"),
    ("endpoint=", "endpoint"), ("endpoint=/v1/images", "endpoint"), ("created_after=", "created_after"),
    ("created_after=-1", "created_after"), ("created_after=1.5", "created_after"),
    ("created_before=now", "created_before"),
    ("created_before=" + "9" * 18, "created_before"), ("created_before=1&created_before=2", "created_before"),
)  # fmt: skip


async def test_a_list_parameter_out_of_range_is_refused_by_name(served_app: ServedApp) -> None:
    for query, param in WRONG:
        response = await served_app.http.get(f"/v1/batches?{query}")
        error = response.json()["error"]
        expected = (query, 400, "invalid_parameter", param)
        assert (query, response.status_code, error["code"], error["param"]) == expected


async def test_unknown_ids_of_any_form_are_not_found(served_app: ServedApp) -> None:
    for name in ("batch_1", "file-" + uuid4().hex, "batch_" + uuid4().hex, "%00", "☂", "%ff", "x" * 3000):
        for method, suffix in (
            ("GET", ""),
            ("HEAD", ""),
            ("DELETE", ""),
            ("POST", "/cancel"),
            ("POST", "/pause"),
            ("POST", "/resume"),
        ):
            response = await served_app.http.request(method, f"/v1/batches/{name}{suffix}")
            assert (name, method, response.status_code) == (name, method, 404)
            assert method == "HEAD" or response.json()["error"]["code"] == "batch_not_found"


async def test_another_owners_batch_reads_like_none(serve: Serve) -> None:
    mine = await serve()
    batch = await mine.create()
    async with mine.store.session() as session:
        other = await session.connection.fetchval("INSERT INTO account (name, role) VALUES ('b', 'pro') RETURNING no")
    theirs = await serve(owner=other)
    assert (await theirs.http.get(f"/v1/batches/{batch['id']}")).status_code == 404
    assert (await theirs.http.post(f"/v1/batches/{batch['id']}/cancel")).status_code == 404
    assert (await theirs.http.get("/v1/batches")).json()["data"] == []
    response = await theirs.http.get("/v1/batches", params={"after": batch["id"]})
    assert response.json()["error"]["param"] == "after"
    assert (await mine.http.get(f"/v1/batches/{batch['id']}")).json()["status"] == "validating"


async def test_a_full_queue_says_when_to_come_again(serve: Serve) -> None:
    served = await serve(Limits(intake=3))
    await served.create()
    file = await served.upload(*[request(str(n)) for n in range(3)])
    response = await served.http.post(
        "/v1/batches", json={"input_file_id": file["id"], "endpoint": "/v1/chat/completions"}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (429, "capacity_exceeded")
    assert response.headers["retry-after"] == "30"
    assert "x-should-retry" not in response.headers


async def test_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not(serve: Serve) -> None:
    body = json.dumps({"input_file_id": "file-1"}).encode()
    served = await serve(Limits(create_body_bytes=len(body)))

    async def chunked(text: bytes) -> int:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(text), 7):
                yield text[at : at + 7]

        response = await served.http.post("/v1/batches", content=pieces(), headers=JSON)
        return response.status_code

    async def whole(text: bytes) -> int:
        return (await served.http.post("/v1/batches", content=text, headers=JSON)).status_code

    assert (await whole(body), await whole(body + b" ")) == (400, 413)
    assert (await chunked(body), await chunked(body + b" ")) == (400, 413)


async def test_a_body_that_does_not_say_it_is_json_is_refused(served_app: ServedApp) -> None:
    kinds = (None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1")
    for headers in (*[{"content-type": kind} if kind else {} for kind in kinds], {**JSON, "content-encoding": "gzip"}):
        response = await served_app.http.post("/v1/batches", content=b"{}", headers=headers)
        expected = (headers, 415, "unsupported_media_type")
        assert (headers, response.status_code, response.json()["error"]["code"]) == expected


async def test_json_may_say_that_it_is_utf_8(served_app: ServedApp) -> None:
    for kind in ("application/json", 'Application/JSON; charset="UTF-8"', "application/json;charset=utf-8"):
        response = await served_app.http.post("/v1/batches", content=b"[]", headers={"content-type": kind})
        assert (kind, response.json()["error"]["code"]) == (kind, "invalid_json")


async def test_a_batch_is_deleted_for_good(served_app: ServedApp) -> None:
    batch = await served_app.create()
    response = await served_app.http.delete(f"/v1/batches/{batch['id']}")
    assert (response.status_code, response.json()) == (
        200, {"id": batch["id"], "object": "batch.deleted", "deleted": True}
    )  # fmt: skip
    assert (await served_app.http.get(f"/v1/batches/{batch['id']}")).status_code == 404
    again = await served_app.http.delete(f"/v1/batches/{batch['id']}")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "batch_not_found")


async def test_deleting_what_runs_is_refused_in_a_way_that_no_client_repeats(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running()
    await make.lease(batch)
    response = await served_app.http.delete(f"/v1/batches/{batch.public_id}")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "batch_running")
    assert response.headers["x-should-retry"] == "false"


async def test_a_batch_is_paused_and_resumed(served_app: ServedApp) -> None:
    batch = await served_app.create()
    path = f"/v1/batches/{batch['id']}"
    paused = (await served_app.http.post(f"{path}/pause")).json()
    assert paused["paused"] == {"reason": "user", "by": None, "until": None}
    assert (await served_app.http.get(path)).json()["paused"] == paused["paused"]
    assert (await served_app.http.post(f"{path}/resume")).json()["paused"] is None
    assert served_app.bell.rung == 3
    await served_app.http.post(f"{path}/cancel")
    refused = await served_app.http.post(f"{path}/pause")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_parameter")


async def test_what_one_process_answered_the_next_call_reads_on_another(serve: Serve, store_url: str) -> None:
    second = await Store(store_url, most=4).open()
    try:
        here, there = (await serve()).http, (await serve(store=second)).http
        sent = {"file": ("in.jsonl", json.dumps(request()) + "\n")}
        file = (await here.post("/v1/files", data={"purpose": "batch"}, files=sent)).json()
        assert (await there.get(f"/v1/files/{file['id']}")).json() == file
        given = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions"}
        batch = (await there.post("/v1/batches", json=given)).json()
        path = f"/v1/batches/{batch['id']}"
        assert (await here.get(path)).json() == batch
        assert (await here.get("/v1/batches")).json()["first_id"] == batch["id"]
        paused = (await here.post(f"{path}/pause")).json()
        assert (await there.get(path)).json()["paused"] == paused["paused"] is not None
        cancelled = (await there.post(f"{path}/cancel")).json()
        assert (await here.get(path)).json() == cancelled
        await here.delete(f"/v1/files/{file['id']}")
        assert (await there.get(f"/v1/files/{file['id']}/content")).status_code == 404
        await there.delete(path)
        assert (await here.get(path)).status_code == 404
    finally:
        await second.close()
