"""Direct requests are checked whole, planned and stored in one transaction, or refused and leave nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from overnight.batches import create as creating
from overnight.batches.request import read_create
from overnight.batches.shape import BatchView
from overnight.domain.errors import CapacityExceeded, RequestsRefused, TooManyRequests
from overnight.domain.limits import BLOCK_LINES, MOST_MODELS
from overnight.domain.states import Status
from overnight.store import blocks
from overnight.store.served import Offer, serve
from tests.batches.factory import CHAT, Factory

EMBEDDINGS = "/v1/embeddings"


def a_request(custom_id: str = "a", model: str = "m", **more: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "body": {"model": model, "messages": [{"role": "user", "content": "hi"}]}, **more}


def embedding(custom_id: str, **more: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "url": EMBEDDINGS, "body": {"model": "m", "input": "x"}, **more}


async def create(make: Factory, *requests: Any, **given: Any) -> BatchView:
    return await create_of(make, json.dumps({"requests": requests, **given}).encode())


async def create_of(make: Factory, body: bytes) -> BatchView:
    return await creating.create(make.store, make.limits, make.owner, read_create(body))


async def stored(make: Factory, batch: BatchView) -> dict[int, tuple[str, bytes]]:
    """Line → model and request of all blocks."""
    async with make.store.session() as session:
        rows = await session.connection.fetch("SELECT * FROM block WHERE batch = $1 ORDER BY seq", batch.no)
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    found: dict[int, tuple[str, bytes]] = {}
    for row in rows:
        assert (row["state"], row["count"]) == ("ready", len(row["lines"]))
        for number, request in zip(row["lines"], blocks.unpack(row["data"]), strict=True):
            assert number not in found
            found[number] = (row["model"], request)
    return found


async def refused(make: Factory, *requests: Any, **given: Any) -> RequestsRefused:
    with pytest.raises(RequestsRefused) as raised:
        await create(make, *requests, **given)
    assert await make.value("SELECT count(*) FROM batch") == 0
    assert await make.value("SELECT count(*) FROM block") == 0
    return raised.value


async def test_the_batch_and_its_requests_are_there_at_once(make: Factory) -> None:
    batch = await create(make, *[a_request(f"r{i}") for i in range(3)], metadata={"k": "v"}, top_k=3)
    assert (batch.status, batch.endpoint, batch.model) == (Status.VALIDATING, CHAT, "m")
    assert (batch.input_file_id, batch.counts.total) == (None, 3)
    assert (batch.metadata, batch.defaults, batch.completion_window) == ({"k": "v"}, {"top_k": 3}, "24h")
    found = await stored(make, batch)
    assert sorted(found) == [0, 1, 2]
    for i, (model, line) in found.items():
        assert (model, json.loads(line)) == ("m", {**a_request(f"r{i}"), "method": "POST", "url": CHAT})


async def test_requests_are_kept_byte_for_byte(make: Factory) -> None:
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"\\u00e9\\u2028 \xc3\xa9"}],'
        b'"top_p":0.90000000000000000000000001,"temperature":1.50}'
    )
    batch = await create_of(make, b'{ "requests" : [\n {"custom_id":"a", "body":\n' + body + b"}\n]\n}")
    ((_, line),) = (await stored(make, batch)).values()
    assert body in line


async def test_many_requests_fill_many_blocks(make: Factory) -> None:
    count = BLOCK_LINES * 40 + 7
    batch = await create(make, *[a_request(str(i)) for i in range(count)])
    assert sorted(await stored(make, batch)) == list(range(count))
    assert await make.value("SELECT max(count) FROM block") == BLOCK_LINES


async def test_requests_may_use_several_models_each_in_blocks_of_its_own(make: Factory) -> None:
    batch = await create(make, *[a_request(str(i), ("m", "other", "nick")[i % 3]) for i in range(9)])
    assert batch.model is None
    found = await stored(make, batch)
    assert [found[i][0] for i in range(9)] == ["m", "other", "m"] * 3
    assert {json.loads(line)["body"]["model"] for _, line in found.values()} == {"m", "other", "nick"}


async def test_a_name_and_its_alias_are_one_model(make: Factory) -> None:
    assert (await create(make, a_request("a", "nick"), a_request("b", "m"))).model == "m"


async def test_more_models_than_a_batch_may_use_are_refused(make: Factory) -> None:
    await serve(make.store, make.life.no, [Offer("*", (), None, ("chat",), any_model=True)])
    good = [a_request(str(i), f"model {i}") for i in range(MOST_MODELS)]
    error = await refused(make, *good, a_request("x", "one more"))
    assert (error.code, error.param) == ("invalid_parameter", f"requests[{MOST_MODELS}].body.model")
    assert (await create(make, *good)).counts.total == MOST_MODELS


async def test_the_first_url_says_what_the_batch_is_for(make: Factory) -> None:
    assert (await create(make, embedding("a"), embedding("b"))).endpoint == EMBEDDINGS
    assert (await create(make, embedding("a"), endpoint=EMBEDDINGS)).endpoint == EMBEDDINGS
    assert (await create(make, a_request(url=CHAT), a_request("b"), endpoint=CHAT)).endpoint == CHAT


@pytest.mark.parametrize(
    ("requests", "given", "where"),
    [
        ([a_request("a"), embedding("b")], {}, 1),
        ([embedding("a"), a_request("b")], {}, 1),
        ([embedding("a")], {"endpoint": CHAT}, 0),
        ([a_request("a")], {"endpoint": EMBEDDINGS}, 0),
    ],
)
async def test_a_url_for_another_target_is_refused(
    make: Factory, requests: list[Any], given: dict[str, Any], where: int
) -> None:
    error = await refused(make, *requests, **given)
    assert (error.code, error.param) == ("mismatched_endpoint", f"requests[{where}].url")


WRONG: list[tuple[Any, str, str]] = [
    (a_request(model="gone"), "model_not_found", ".body.model"),
    (a_request(model="auto"), "auto_model_not_allowed", ".body.model"),
    (a_request(model="auto-fast"), "auto_model_not_allowed", ".body.model"),
    (a_request(url="/v1/chat/completions/"), "invalid_url", ".url"),
    (a_request(url=None), "invalid_url", ".url"),
    (a_request(method="post"), "invalid_method", ".method"),
    (a_request(method=None), "invalid_method", ".method"),
    (a_request(""), "invalid_parameter", ".custom_id"),
    (a_request("x" * 513), "invalid_parameter", ".custom_id"),
    (a_request(extra=1), "invalid_parameter", ".extra"),
    ({"custom_id": "a"}, "missing_required_parameter", ".body"),
    ({"body": {}}, "missing_required_parameter", ".custom_id"),
    ({}, "missing_required_parameter", ".custom_id"),
    ({"custom_id": "a", "body": {"model": "m"}}, "missing_required_parameter", ".body.messages"),
    (5, "invalid_json_line", ""),
    (None, "invalid_json_line", ""),
    ([], "invalid_json_line", ""),
]


@pytest.mark.parametrize(("request_", "code", "param"), WRONG)
async def test_a_wrong_request_refuses_the_whole_batch_by_its_place(
    make: Factory, request_: Any, code: str, param: str
) -> None:
    error = await refused(make, a_request("good"), request_, a_request("also good"))
    assert (error.status, error.code, error.param) == (400, code, f"requests[1]{param}")
    assert error.message.startswith("requests[1]")
    assert "more problem" not in error.message


async def test_what_a_models_servers_cannot_carry_is_refused_with_its_place(make: Factory) -> None:
    await serve(make.store, make.life.no, [Offer("m", (), None, ("chat",), lacks=("guided_json",))])
    chat = a_request("b")["body"]
    raised = await refused(make, a_request(), {"custom_id": "b", "body": chat | {"guided_json": {}}})
    assert (raised.code, raised.param) == ("invalid_parameter", "requests[1].body.guided_json")


async def test_the_message_names_the_request_and_counts_the_other_problems(make: Factory) -> None:
    error = await refused(make, a_request("a"), a_request("q-2", "no-such"), a_request("c", "gone"), a_request("a"), 5)
    assert error.message.startswith("requests[1] (custom_id 'q-2'): ")
    assert "no-such" in error.message
    assert error.message.endswith(" 3 more problems were found.")
    assert [(p["code"], p["line"], p["param"]) for p in error.problems] == [
        ("model_not_found", 2, "body.model"),
        ("model_not_found", 3, "body.model"),
        ("duplicate_custom_id", 4, "custom_id"),
        ("invalid_json_line", 5, None),
    ]


async def test_a_custom_id_is_used_once(make: Factory) -> None:
    error = await refused(make, a_request("a"), a_request("b"), a_request("\u0061"))
    assert (error.code, error.param) == ("duplicate_custom_id", "requests[2].custom_id")
    assert "requests[0]" in error.message


async def test_a_request_is_no_longer_than_a_line_may_be(make: Factory) -> None:
    good = json.dumps({**a_request(), "method": "POST", "url": CHAT}).encode()
    make.limits = dataclasses.replace(make.limits, line_bytes=len(good))
    assert await create_of(make, b'{"requests":[' + good + b"]}")
    with pytest.raises(RequestsRefused) as raised:
        await create_of(make, b'{"requests":[' + good.replace(b"hi", b"hi!") + b"]}")
    assert (raised.value.code, raised.value.param) == ("line_too_long", "requests[0]")


async def test_what_is_no_strict_json_is_refused_with_its_place(make: Factory) -> None:
    good = json.dumps(a_request("good")).encode()
    for broken in (b'"seed":1e999', b'"a":{"b":1,"b":2}', b'"a":"\xff"', b'"a":' + b"[" * 130 + b"]" * 130):
        request_ = b'{"custom_id":"a","body":{"model":"m","messages":[{"role":"user","content":"x"}],' + broken + b"}}"
        with pytest.raises(RequestsRefused) as raised:
            await create_of(make, b'{"requests":[' + good + b", " + request_ + b"]}")
        assert raised.value.code in ("invalid_json_line", "invalid_utf8")
        assert raised.value.param == "requests[1]"


async def test_the_queue_has_room_for_all_requests_or_none_get_in(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=10)
    with pytest.raises(TooManyRequests) as raised:
        await create(make, *[a_request(str(i)) for i in range(11)])
    assert (raised.value.code, raised.value.param) == ("too_many_requests", "requests")
    await create(make, *[a_request(str(i)) for i in range(6)])
    with pytest.raises(CapacityExceeded):
        await create(make, *[a_request(str(i)) for i in range(5)])
    assert await make.value("SELECT sum(total) FROM batch") == 6
    assert await make.value("SELECT sum(count) FROM block") == 6
    assert await create(make, *[a_request(str(i)) for i in range(4)])


async def test_the_queue_is_never_filled_beyond_its_capacity(make: Factory) -> None:
    make.limits = dataclasses.replace(make.limits, intake=50)
    nine = [a_request(str(i)) for i in range(9)]
    came = await asyncio.gather(*(create(make, *nine) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(batch, BatchView) for batch in came) == 5
    assert sum(isinstance(e, CapacityExceeded) for e in came) == 3


async def test_where_no_model_is_served_names_are_taken_as_they_are(make: Factory) -> None:
    await serve(make.store, make.life.no, [])
    batch = await create(make, a_request("a", "nick"), a_request("b", "whatever"))
    assert batch.model is None
    assert {model for model, _ in (await stored(make, batch)).values()} == {"nick", "whatever"}
