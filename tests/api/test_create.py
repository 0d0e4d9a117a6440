"""The create call over HTTP: direct requests, repeated calls, the order of its checks, and whatever else is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overnight.domain.limits import Limits
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.store.served import Offer
from overnight.store.served import serve as offer
from tests.api.conftest import Serve, ServedApp, request
from tests.api.test_edge import error_of

JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
async def model(store: Store) -> None:
    """A worker that serves the model `tiny`."""
    life = Life(store)
    await life.begin()
    await offer(store, life.no, [Offer("tiny", (), None, ("chat", "embeddings"))])


def direct(*names: str) -> dict[str, Any]:
    """The body of a create call with requests of these names."""
    return {"requests": [{"custom_id": name, "body": request()["body"]} for name in names]}


async def post(served: ServedApp, body: bytes | dict[str, Any], key: str | None = None) -> httpx.Response:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = JSON if key is None else {**JSON, "Idempotency-Key": key}
    return await served.http.post("/v1/batches", content=text, headers=headers)


async def kept(store: Store) -> int:
    """Rows that a create may write."""
    async with store.session() as session:
        found: int = await session.connection.fetchval(
            "SELECT (SELECT count(*) FROM batch) + (SELECT count(*) FROM block) + (SELECT count(*) FROM idempotency)"
        )
    return found


async def test_requests_in_the_call_make_a_batch(served_app: ServedApp) -> None:
    response = await post(served_app, {**direct("q-1", "q-2"), "metadata": {"project": "eval-42"}})
    assert response.status_code == 200
    batch = response.json()
    assert (batch["object"], batch["status"], batch["model"]) == ("batch", "validating", "tiny")
    assert (batch["endpoint"], batch["completion_window"]) == ("/v1/chat/completions", "24h")
    for name in ("input_file_id", "output_file_id", "error_file_id", "errors", "error"):
        assert (name, batch[name]) == (name, None)
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
    assert served_app.bell.rung == 1
    assert (await served_app.http.get(f"/v1/batches/{batch['id']}")).json() == batch
    assert (await served_app.http.get("/v1/batches")).json()["data"] == [batch]


async def test_a_wrong_request_is_named_and_nothing_is_kept(served_app: ServedApp) -> None:
    body = direct("q-1", "q-2")
    body["requests"][1]["body"]["model"] = "no-such-model"
    error = error_of(response := await post(served_app, body, key="k"))
    assert response.status_code == 400
    assert (error["code"], error["param"]) == ("model_not_found", "requests[1].body.model")
    assert error["message"].startswith("requests[1] (custom_id 'q-2'): ")
    assert [(p["code"], p["line"], p["param"]) for p in error["problems"]] == [("model_not_found", 2, "body.model")]
    assert (await kept(served_app.store), served_app.bell.rung) == (0, 0)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input_file_id"),
        ({"requests": None}, "input_file_id"),
        ({"requests": []}, "requests"),
        ({"requests": {}}, "requests"),
        ({"requests": "[]"}, "requests"),
        ({"requests": True}, "requests"),
        ({**direct("a"), "input_file_id": "file-1"}, "requests"),
        ({**direct("a"), "endpoint": "/v1/nothing"}, "endpoint"),
        ({**direct("a"), "anthropic_version": "2023-06-01"}, "anthropic_version"),
    ],
)
async def test_a_call_has_requests_or_a_file_and_nothing_unknown(
    served_app: ServedApp, body: dict[str, Any], param: str
) -> None:
    error = error_of(response := await post(served_app, body))
    assert (response.status_code, error["param"]) == (400, param)
    assert await kept(served_app.store) == 0


@pytest.mark.parametrize("name", ["X-On-Behalf-Of", "anthropic-version", "Anthropic-Beta"])
async def test_a_header_that_would_change_what_the_call_means_is_refused(served_app: ServedApp, name: str) -> None:
    response = await served_app.http.post("/v1/batches", json=direct("a"), headers={name: "2023-06-01"})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "invalid_parameter")
    assert (error["param"] or "").lower() == name.lower()
    assert await kept(served_app.store) == 0


async def test_a_key_twice_in_the_body_is_refused_wherever_it_is(served_app: ServedApp) -> None:
    one = json.dumps(direct("a"))[1:-1].encode()
    for body in (
        b"{%b,%b}" % (one, one),
        b'{%b,"r\\u0065quests":null}' % one,
        b'{"metadata":{},%b,"metadata":{}}' % one,
    ):
        assert (await post(served_app, body)).json()["error"]["code"] == "invalid_json"
    assert await kept(served_app.store) == 0


async def test_the_same_bytes_may_stand_before_the_requests(served_app: ServedApp) -> None:
    requests = json.dumps(direct("a")["requests"])
    body = (
        json.dumps({"metadata": {"copy": "x"}})[:-1].replace('"x"', json.dumps(requests))
        + f', "requests": {requests}}}'
    )
    assert (await post(served_app, body.encode())).status_code == 200


async def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(serve: Serve) -> None:
    body = json.dumps(direct("a", "b")).encode()
    served = await serve(Limits(create_body_bytes=len(body)))

    async def chunked(text: bytes) -> int:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(text), 50):
                yield text[at : at + 50]

        return (await served.http.post("/v1/batches", content=pieces(), headers=JSON)).status_code

    assert [(await post(served, body)).status_code, (await post(served, body + b" ")).status_code] == [200, 413]
    assert [await chunked(body), await chunked(body + b" ")] == [200, 413]


async def test_a_full_queue_says_when_to_come_again(serve: Serve) -> None:
    served = await serve(Limits(intake=3))
    assert (await post(served, direct("a", "b"))).status_code == 200
    response = await post(served, direct("a", "b"))
    assert (response.status_code, error_of(response)["code"]) == (429, "capacity_exceeded")
    assert response.headers["retry-after"] == "30"
    response = await post(served, direct("a", "b", "c", "d"))
    assert (response.status_code, error_of(response)["code"]) == (400, "too_many_requests")


async def test_a_repeated_call_gives_the_same_batch(served_app: ServedApp) -> None:
    first = (await post(served_app, direct("a"), "k")).json()
    spaced = json.dumps(direct("a"), indent=3).encode()
    again = await post(served_app, spaced, "k")
    assert (again.status_code, again.json()) == (200, first)
    await served_app.http.post(f"/v1/batches/{first['id']}/cancel")
    assert (await post(served_app, direct("a"), "k")).json()["status"] == "cancelling"
    assert (await post(served_app, direct("a"), "other key")).status_code == 400
    assert (await post(served_app, direct("a"), "other-key")).json()["id"] != first["id"]


async def test_another_request_under_the_key_is_refused_for_good(served_app: ServedApp) -> None:
    await post(served_app, direct("a"), "k")
    for body in (direct("b"), b"nonsense", {"input_file_id": "file-1"}):
        response = await post(served_app, body, "k")
        assert (response.status_code, error_of(response)["code"]) == (409, "idempotency_key_reused")
        assert response.headers["x-should-retry"] == "false"


async def test_the_key_of_a_deleted_batch_answers_that_it_is_gone(served_app: ServedApp) -> None:
    await post(served_app, direct("a"), "k")
    async with served_app.store.session() as session:
        await session.connection.execute("DELETE FROM batch")
    response = await post(served_app, direct("a"), "k")
    assert (response.status_code, error_of(response)["code"]) == (410, "batch_deleted")


async def test_many_calls_at_once_make_one_batch(served_app: ServedApp) -> None:
    came = await asyncio.gather(*(post(served_app, direct("a"), "k") for _ in range(6)))
    assert {response.status_code for response in came} == {200}
    assert len({response.json()["id"] for response in came}) == 1


async def test_what_was_made_before_is_found_whatever_is_full_now(serve: Serve) -> None:
    """The replay comes before the disk, the size, the body's rules, the models and the queue."""
    body = json.dumps(direct("a", "b"), indent=1).encode()
    before = await serve()
    first = (await post(before, body, "k")).json()
    async with before.store.session() as session:
        await session.connection.execute("DELETE FROM served")
    after = await serve(Limits(create_body_bytes=len(body) - 1, line_bytes=10, intake=1), disk_is_low=lambda: True)
    again = (await post(after, body, "k")).json()
    assert again["progress"].pop("waiting_for") == "no_server"
    first["progress"].pop("waiting_for")
    assert again == first
    assert (await post(after, body + b" ", "k")).status_code == 413
    assert (await post(after, b"{}", "k")).status_code == 409
    assert (await post(after, body, "new")).status_code == 507
    assert (await post(after, body)).status_code == 507


async def test_the_checks_of_a_new_call_come_in_their_order(serve: Serve) -> None:
    bad = json.dumps(direct("a", "a")).encode()
    served = await serve(Limits(create_body_bytes=len(bad), intake=1))
    assert (await post(served, bad + b" ", "k")).status_code == 413
    assert (await post(served, bad, "k")).status_code == 400
    assert (await post(served, direct("a"), "k")).status_code == 200
    assert (await post(served, direct("b"), "l")).status_code == 429
    assert (await post(served, json.dumps(direct("a", "a")).encode(), "l")).status_code == 400


GOOD = json.dumps(direct("a", "b", "ç")["requests"], ensure_ascii=False).encode()
PIECES = (
    b"", b",", b"[", b"]", b"{", b"}", b'"', b"null", b"1e999", b"NaN", b"\xff", b"\\ud800", b"\0", b"\n", b"[" * 200,
    b'"url":"/v1/embeddings",', b'"custom_id":"a",', b'"stream":true,', b'"n":' + b"9" * 400 + b",",
)  # fmt: skip
CUTS = st.lists(
    st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=3
)


@given(cuts=CUTS, key=st.sampled_from([None, "k"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_mangled_requests_are_refused_whole_or_taken_whole(
    served_app: ServedApp, cuts: list[tuple[int, int, bytes]], key: str | None
) -> None:
    requests = GOOD
    for at, gone, junk in cuts:
        requests = requests[:at] + junk + requests[at + gone :]
    before = await kept(served_app.store)

    response = await post(served_app, b'{"requests":%b}' % requests, key)

    assert response.status_code in (200, 400, 409), response.text
    if response.status_code != 200:
        assert error_of(response)["message"]
        assert await kept(served_app.store) == before
