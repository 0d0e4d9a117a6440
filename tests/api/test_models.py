"""The list of models."""

from __future__ import annotations

from dataclasses import replace

from overnight.store.life import Life
from overnight.store.served import Offer, serve
from tests.api.conftest import ServedApp

BIG = Offer("org/big", ("big", "largest"), 8192, ("chat", "completions"))
BIG_ELSEWHERE = Offer("org/big", ("large",), 4096, ("chat",))
SMALL = Offer("small", (), None, ("embeddings",))
ANY = Offer("*", (), None, ("chat",), any_model=True)


async def begin(served_app: ServedApp, *offers: Offer) -> Life:
    life = Life(served_app.store)
    await life.begin()
    await serve(served_app.store, life.no, offers)
    return life


async def test_models_of_all_workers_are_listed_once(served_app: ServedApp) -> None:
    await begin(served_app, SMALL, BIG)
    await begin(served_app, BIG_ELSEWHERE, ANY)
    listed = (await served_app.http.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [m["id"] for m in listed["data"]] == ["org/big", "small"]
    big = listed["data"][0]
    assert (big["object"], big["owned_by"], big["context_length"]) == ("model", "overnight", 4096)
    assert (big["aliases"], big["targets"]) == (["big", "large", "largest"], ["chat", "completions"])
    assert big["created"] > 1_700_000_000


async def test_a_model_that_nothing_can_start_on_says_why_unless_another_worker_is_free(served_app: ServedApp) -> None:
    loading = replace(SMALL, blocked="server_loading")
    await begin(served_app, loading, replace(BIG, blocked="server_down"))
    await begin(served_app, BIG_ELSEWHERE)
    listed = (await served_app.http.get("/v1/models")).json()
    assert [(m["id"], m["waiting_for"]) for m in listed["data"]] == [("org/big", None), ("small", "server_loading")]


async def test_a_model_is_found_by_its_id_with_slashes_and_by_an_alias(served_app: ServedApp) -> None:
    await begin(served_app, SMALL, BIG)
    for name in ("org/big", "org%2Fbig", "largest"):
        response = await served_app.http.get(f"/v1/models/{name}")
        assert (name, response.status_code, response.json().get("id")) == (name, 200, "org/big")


async def test_a_model_that_nobody_serves_any_more_is_not_found(served_app: ServedApp) -> None:
    life = await begin(served_app, SMALL)
    assert (await served_app.http.get("/v1/models/small")).status_code == 200
    await life.end()
    for name in ("small", "*", "%00", "x" * 2000):
        response = await served_app.http.get(f"/v1/models/{name}")
        assert (name, response.status_code, response.json()["error"]["code"]) == (name, 404, "model_not_found")
    assert (await served_app.http.get("/v1/models")).json() == {"object": "list", "data": []}
