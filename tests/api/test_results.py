"""Results over HTTP."""

from __future__ import annotations

from uuid import uuid4

from overnight.domain import ids
from tests.api.conftest import ServedApp
from tests.batches.factory import lines, make_factory


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
