"""Results over HTTP."""

from __future__ import annotations

import json
from uuid import uuid4

import httpx
import msgspec
import pytest

from overnight.batches import create as creating
from overnight.batches.cancel import cancel
from overnight.batches.request import NewBatch
from overnight.domain import ids
from overnight.store.answers import ERROR, OUTPUT
from overnight.upkeep.validate import Validate
from tests.api.conftest import ServedApp
from tests.batches.factory import line, lines, make_factory


async def test_pages_of_results_are_lists_like_all_others(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.completed(lines(250))
    path = f"/v1/batches/{batch.public_id}/results"

    first = (await served_app.http.get(path)).json()
    rest = (await served_app.http.get(path, params={"limit": "1000", "after": first["last_id"]})).json()

    assert (len(first["data"]), first["has_more"]) == (100, True)
    assert (len(rest["data"]), rest["has_more"]) == (150, False)
    assert (first["first_id"], rest["last_id"]) == (ids.of_request(batch.id, 0), ids.of_request(batch.id, 249))
    assert [row["custom_id"] for row in first["data"] + rest["data"]] == [f"r{i}" for i in range(250)]
    assert (await served_app.http.head(path)).headers["content-type"] == "application/json"


async def test_parameters_out_of_range_are_refused_by_name(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(1))
    for query, param in (
        ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("after=", "after"),
        ("after=%00", "after"), (f"after=batch_req_{uuid4().hex}", "after"),
    ):  # fmt: skip
        response = await served_app.http.get(f"/v1/batches/{batch.public_id}/results?{query}")
        error = response.json()["error"]
        assert (query, response.status_code, error["param"]) == (query, 400, param)


async def test_results_of_no_batch_are_not_found(served_app: ServedApp) -> None:
    for name in ("batch_1", "batch_" + uuid4().hex, "%00"):
        response = await served_app.http.get(f"/v1/batches/{name}/results")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "batch_not_found")


async def test_the_output_so_far_says_that_it_is_not_all_and_where_to_go_on(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(30))
    path = f"/v1/batches/{batch.public_id}/output.jsonl"
    nothing = await served_app.http.get(path)
    assert (nothing.status_code, nothing.content) == (200, b"")
    assert (nothing.headers["x-incomplete"], nothing.headers["x-last-line"]) == ("true", "0")

    await make.answer(batch, range(20, 30))
    await make.answer(batch, [0], kind=ERROR)
    some = await served_app.http.get(path)
    assert some.headers["x-last-line"] == "10"
    assert some.content == await make.stream(batch, OUTPUT)
    assert (await served_app.http.head(path)).headers["content-length"] == str(len(some.content))

    await make.answer(batch, range(1, 20))
    ended = await make.sealed(batch)
    rest = await served_app.http.get(path, params={"offset": some.headers["x-last-line"]})
    whole = await served_app.http.get(path)
    file = await served_app.http.get(f"/v1/files/file-{ended.output_file_id.hex}/content")  # type: ignore[union-attr]
    assert some.content + rest.content == whole.content == file.content
    assert "x-incomplete" not in whole.headers
    assert "x-last-line" not in whole.headers


async def test_lines_can_be_skipped_at_every_place_of_the_output(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(40))
    for first in range(0, 40, 10):
        await make.answer(batch, range(first, first + 10))
    path = f"/v1/batches/{batch.public_id}/output.jsonl"
    whole = (await served_app.http.get(path)).content.splitlines(keepends=True)
    assert len(whole) == 40
    for offset in range(42):
        left = await served_app.http.get(path, params={"offset": offset})
        assert (offset, left.content) == (offset, b"".join(whole[offset:]))


async def test_an_interrupted_download_of_output_goes_on_by_its_etag(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(3))
    await make.answer(batch, [0, 1])
    path = f"/v1/batches/{batch.public_id}/output.jsonl"
    first = await served_app.http.get(path, params={"offset": 1})
    resume = {"range": "bytes=5-", "if-range": first.headers["etag"]}
    part = await served_app.http.get(path, params={"offset": 1}, headers=resume)
    assert (part.status_code, part.content) == (206, first.content[5:])
    await make.answer(batch, [2])
    whole = await served_app.http.get(path, params={"offset": 1}, headers=resume)
    assert whole.status_code == 200
    assert whole.content.startswith(first.content)


async def test_an_output_that_cannot_be_opened_is_an_error_and_half_of_it_no_download(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(40))
    await make.answer(batch, range(20))
    await make.answer(batch, range(20, 40))
    path = f"/v1/batches/{batch.public_id}/output.jsonl"
    whole = (await served_app.http.get(path)).content
    await make.run("UPDATE segment SET data = substring(data FOR 60) WHERE batch = $1 AND starts > 0", batch.no)

    with pytest.raises(httpx.RemoteProtocolError):
        await served_app.http.get(path)
    behind = await served_app.http.get(path, headers={"range": f"bytes={len(whole) - 5}-"})
    assert (behind.status_code, behind.json()["error"]["code"]) == (500, "internal_error")
    before = await served_app.http.get(path, headers={"range": "bytes=3-50"})
    assert (before.status_code, before.content) == (206, whole[3:51])


async def test_results_come_in_the_order_of_submission_once_the_batch_has_ended(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(1_100))
    path = f"/v1/batches/{batch.public_id}/output.jsonl?order=submitted"
    early = await served_app.http.get(path)
    assert (early.status_code, early.json()["error"]["param"]) == (400, "order")

    held = await make.lease(batch)
    await make.answer(batch, range(1_099, 500, -1))
    await make.answer(batch, range(500, 200, -1), kind=ERROR)
    await cancel(make.store, make.owner, batch.public_id)
    await make.let_go(held)
    ended = await make.sealed(batch)

    whole = await served_app.http.get(path)
    found = [json.loads(line) for line in whole.content.splitlines()]
    output, errors = await make.results(ended)
    assert found == [{**output, **errors}[f"r{i}"] for i in range(1_100)]
    assert (await served_app.http.head(path)).headers["content-length"] == str(len(whole.content))
    for offset in (1, 700, 1_099, 1_100, 5_000):
        left = await served_app.http.get(f"{path}&offset={offset}")
        assert (offset, left.content.splitlines()) == (offset, whole.content.splitlines()[offset:])


async def test_output_parameters_out_of_range_are_refused_by_name(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.completed(lines(1))
    for query, param in (("offset=-1", "offset"), ("offset=x", "offset"), ("order=random", "order")):
        response = await served_app.http.get(f"/v1/batches/{batch.public_id}/output.jsonl?{query}")
        assert (query, response.status_code, response.json()["error"]["param"]) == (query, 400, param)
    for query in ("", "?order=submitted"):
        response = await served_app.http.get(f"/v1/batches/batch_{uuid4().hex}/output.jsonl{query}")
        assert response.json()["error"]["code"] == "batch_not_found"


async def test_what_is_left_can_be_fetched_and_run_again(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    sent = lines(4)
    batch = await make.running(sent)
    held = await make.lease(batch)
    await make.answer(batch, [1, 2])
    await make.answer(batch, [0, 3], kind=ERROR)
    path = f"/v1/batches/{batch.public_id}"
    early = await served_app.http.post(f"{path}/retry")
    assert (early.status_code, early.json()["error"]["code"]) == (400, "invalid_parameter")
    assert "in_progress" in early.json()["error"]["message"]
    await make.let_go(held, done=True)
    await make.sealed(batch)

    unfinished = await served_app.http.get(f"{path}/unfinished.jsonl")
    again = (await served_app.http.post(f"{path}/retry")).json()

    rows = sent.splitlines(keepends=True)
    assert unfinished.content == rows[0] + rows[3]
    assert unfinished.headers["content-disposition"].startswith("attachment")
    assert (again["status"], again["retry_of"]) == ("validating", batch.public_id)
    file = await served_app.http.get(f"/v1/files/{again['input_file_id']}/content")
    assert file.content == unfinished.content
    assert served_app.bell.rung == 1
    assert (await served_app.http.get(path)).json()["retry_of"] is None


async def test_verbs_on_no_batch_are_not_found(served_app: ServedApp) -> None:
    for method, name in (("GET", "unfinished.jsonl"), ("POST", "retry")):
        response = await served_app.http.request(method, f"/v1/batches/batch_{uuid4().hex}/{name}")
        assert (name, response.json()["error"]["code"]) == (name, "batch_not_found")


async def test_requests_in_the_call_have_their_output_as_lines_too(served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    new = NewBatch(None, None, requests=[msgspec.Raw(line(f"r{i}")) for i in range(3)])
    batch = await creating.create(make.store, make.limits, make.owner, new)
    while await Validate(make.deps).round():
        pass
    held = await make.lease(batch)
    await make.answer(batch, [2, 0])
    await make.answer(batch, [1], kind=ERROR)
    path = f"/v1/batches/{batch.public_id}"
    assert (await served_app.http.get(f"{path}/output.jsonl")).headers["x-last-line"] == "2"
    assert (await served_app.http.get(f"{path}/unfinished.jsonl")).content == line("r1") + b"\n"
    await make.let_go(held, done=True)
    ended = await make.sealed(batch)

    finished = await served_app.http.get(f"{path}/output.jsonl")
    submitted = await served_app.http.get(f"{path}/output.jsonl", params={"order": "submitted"})
    assert [json.loads(one)["custom_id"] for one in finished.content.splitlines()] == ["r2", "r0"]
    assert [json.loads(one)["custom_id"] for one in submitted.content.splitlines()] == ["r0", "r1", "r2"]
    assert (ended.output_file_id, ended.error_file_id) == (None, None)
