"""What the operator sets, as callers see it: batches turned off, limits of an owner, and which check comes first."""

from __future__ import annotations

import json
from datetime import timedelta

import httpx
import pytest

from overnight.domain.limits import Limits
from tests.api.conftest import Serve, ServedApp, request
from tests.files.forms import add_account


def refused(response: httpx.Response) -> tuple[int, str, str | None, str | None]:
    """Status, code, Retry-After, x-should-retry."""
    code = response.json()["error"]["code"]
    return response.status_code, code, response.headers.get("retry-after"), response.headers.get("x-should-retry")


async def upload(served: ServedApp, text: str) -> httpx.Response:
    return await served.http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", text)})


ROUTES = [
    ("POST", "/v1/batches"),
    ("GET", "/v1/batches"),
    ("GET", "/v1/batches/batch_0"),
    ("POST", "/v1/batches/batch_0/cancel"),
    ("DELETE", "/v1/batches/batch_0"),
    ("GET", "/v1/batches/batch_0/results"),
    ("GET", "/v1/batches/batch_0/output.jsonl"),
    ("POST", "/v1/files"),
    ("GET", "/v1/files"),
    ("HEAD", "/v1/files/file-0/content"),
    ("DELETE", "/v1/files/file-0"),
    ("POST", "/v1/uploads"),
    ("POST", "/v1/uploads/upload_0/parts"),
]


async def test_while_batches_are_turned_off_their_routes_answer_404_and_the_others_go_on(serve: Serve) -> None:
    limits = Limits()
    served = await serve(limits)
    batch = await served.create()
    limits.enabled = False
    for method, path in ROUTES:
        response = await served.http.request(method, path, json={})
        assert response.status_code == 404, (method, path)
        if method != "HEAD":
            assert response.json()["error"]["code"] == "batch_inference_off"
            assert "turned off" in response.json()["error"]["message"]
    for path in ("/health", "/v1/models", "/v1/pool/status", "/metrics"):
        assert (await served.http.get(path)).status_code == 200
    limits.enabled = True
    assert (await served.http.get(f"/v1/batches/{batch['id']}")).json()["id"] == batch["id"]


async def test_a_repeated_call_is_answered_before_any_limit_but_not_while_batches_are_off(serve: Serve) -> None:
    limits = Limits(batches_per_owner=1)
    served = await serve(limits)
    served = await serve(limits, owner=await add_account(served.store, "somebody"))
    body = {"requests": [request("a")]}
    headers = {"Idempotency-Key": "k"}
    first = await served.http.post("/v1/batches", json=body, headers=headers)
    assert first.status_code == 200, first.text
    again = await served.http.post("/v1/batches", json=body, headers=headers)
    assert again.json()["id"] == first.json()["id"]
    assert refused(await served.http.post("/v1/batches", json=body)) == (429, "active_batch_limit", "30", None)
    limits.enabled = False
    assert refused(await served.http.post("/v1/batches", json=body, headers=headers))[:2] == (
        404,
        "batch_inference_off",
    )


@pytest.mark.parametrize(
    ("limits", "came"),
    [
        (Limits(requests_per_owner=1), (429, "queued_request_limit", None, "false")),
        (Limits(requests_per_owner=3), (429, "queued_request_limit", "30", None)),
        (Limits(intake=3), (429, "capacity_exceeded", "30", None)),
    ],
)
async def test_who_may_wait_is_told_how_long_and_who_may_not_is_told_so(
    serve: Serve, limits: Limits, came: tuple[int, str, str | None, str | None]
) -> None:
    local = await serve(limits)
    served = await serve(Limits(), owner=await add_account(local.store, "somebody"))
    body = {"requests": [request("a"), request("b")]}
    assert (await served.http.post("/v1/batches", json=body)).status_code == 200
    served = await serve(limits, owner=served.deps.owner)
    assert refused(await served.http.post("/v1/batches", json=body)) == came


async def test_limits_of_uploads_are_final_refusals(serve: Serve) -> None:
    local = await serve()
    limits = Limits(uploads_per_hour=2, file_bytes_per_owner=400)
    served = await serve(limits, owner=await add_account(local.store, "somebody"))
    line = json.dumps(request()) + "\n"
    assert (await upload(served, line)).status_code == 200
    new = {"bytes": 300, "filename": "f", "mime_type": "x/y", "purpose": "batch"}
    assert refused(await served.http.post("/v1/uploads", json=new)) == (429, "file_storage_limit", None, "false")
    assert refused(await upload(served, line)) == (429, "upload_limit", None, "false")
    assert (await served.http.get("/v1/files")).status_code == 200


@pytest.mark.parametrize("window", ["none", "49h"])
async def test_a_window_beyond_the_operators_is_refused_by_name(serve: Serve, window: str) -> None:
    served = await serve(Limits(longest_window=timedelta(hours=48)))
    body = {"requests": [request("a")], "completion_window": window}
    response = await served.http.post("/v1/batches", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "completion_window"


async def test_a_batch_without_a_window_never_expires(serve: Serve) -> None:
    served = await serve(Limits(window=None))
    batch = (await served.http.post("/v1/batches", json={"requests": [request("a")]})).json()
    assert (batch["completion_window"], batch["expires_at"]) == ("none", None)
