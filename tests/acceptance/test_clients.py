"""What the official SDKs and plain HTTP clients build on, promise by promise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import openai
import pytest

from tests.acceptance.test_files_cases import lines, upload
from tests.acceptance.test_sdk import ended
from tests.process import Served, chat
from tests.witness import Witness

CHAT: Final = "/v1/chat/completions"
Body = dict[str, Any]


@pytest.fixture
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False, follow_redirects=False) as client:
        yield client


def create(http: httpx.Client, file: str, **more: Any) -> Body:
    given = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h", **more}
    response = http.post("/v1/batches", json=given)
    assert response.status_code == 200, response.text
    batch: Body = response.json()
    return batch


@pytest.fixture(scope="module")
def finished(service: Served) -> Body:
    """A batch with an answered and a failed request."""
    return service.wait(service.submit([chat("good", "fine"), chat("bad", "[status 400] no")]))


CALLS: dict[str, Callable[[Any, Body], Any]] = {
    "files.create": lambda sdk, _: sdk.files.create(file=lines(chat("a", "hi")), purpose="batch"),
    "files.retrieve": lambda sdk, batch: sdk.files.retrieve(batch["input_file_id"]),
    "files.list": lambda sdk, _: sdk.files.list(purpose="batch", limit=1, order="asc"),
    "batches.retrieve": lambda sdk, batch: sdk.batches.retrieve(batch["id"]),
    "batches.list": lambda sdk, _: sdk.batches.list(limit=1),
    "batches.cancel": lambda sdk, batch: sdk.batches.cancel(batch["id"]),
    "uploads.create": lambda sdk, _: sdk.uploads.create(bytes=1, filename="a", mime_type="b", purpose="batch"),
    "models.list": lambda sdk, _: sdk.models.list(),
    "models.retrieve": lambda sdk, _: sdk.models.retrieve("test-model"),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_method_gives_the_same_plainly_raw_and_streamed(sdk: openai.OpenAI, finished: Body, name: str) -> None:
    call = CALLS[name]
    plain = call(sdk, finished)
    raw = call(sdk.with_raw_response, finished)
    with call(sdk.with_streaming_response, finished) as streamed:
        parsed = streamed.parse()

    assert type(plain) is type(raw.parse()) is type(parsed)
    assert raw.headers["x-request-id"] != streamed.headers["x-request-id"]
    assert raw.headers["content-type"] == "application/json"
    if "create" not in name:
        assert plain.to_dict() == raw.parse().to_dict() == parsed.to_dict()


def test_an_asynchronous_client_does_the_same(service: Served) -> None:
    import asyncio

    async def flow() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="unused") as client:
            file = await client.files.create(file=("a.jsonl", lines(chat("a", "async"))), purpose="batch")
            batch = await client.batches.create(
                input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata=None, extra_headers={"a": "b"}
            )
            while batch.status != "completed":
                assert batch.status in ("validating", "in_progress", "finalizing"), batch
                await asyncio.sleep(0.05)
                batch = await client.batches.retrieve(batch.id)
            content = await client.files.content(str(batch.output_file_id))
            return [line async for line in await content.aiter_lines()]

    (line,) = asyncio.run(flow())
    assert json.loads(line)["custom_id"] == "a"


def test_the_pager_asks_for_no_page_that_is_not_there(service: Served, sdk: openai.OpenAI, http: httpx.Client) -> None:
    file = upload(http, lines(chat("a", "hi")))
    for _ in range(6):
        upload(http, lines(chat("a", "hi")))
    asked: Counter[bool] = Counter()
    page = sdk.files.list(purpose="batch", limit=3, order="asc", after=file["id"])
    while True:
        assert page.data, "a page without a file was promised"
        asked[page.has_next_page()] += 1
        if not page.has_next_page():
            break
        page = page.get_next_page()

    assert asked == {True: 1, False: 1}
    assert service.get(f"/v1/files?after={page.data[-1].id}&order=asc")["has_more"] is False


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches", "/v1/batches/{id}/results"])
def test_every_list_has_both_ids_and_says_whether_there_is_more(
    service: Served, http: httpx.Client, finished: Body, path: str
) -> None:
    path = path.replace("{id}", finished["id"])
    whole = http.get(path).json()
    assert set(whole) >= {"object", "data", "first_id", "last_id", "has_more"}
    walked: list[str] = []
    more, after = True, ""
    while more:
        page = http.get(path, params={"limit": 1} | ({"after": after} if after else {})).json()
        assert len(page["data"]) == 1
        after = page["data"][-1]["id"]
        assert page["object"] == "list"
        assert page["first_id"] == page["last_id"] == after
        walked.append(after)
        more = page["has_more"]
        assert isinstance(more, bool)
    assert walked == [item["id"] for item in whole["data"]]
    behind = http.get(path, params={"after": after}).json()
    assert (behind["data"], behind["has_more"], behind["first_id"], behind["last_id"]) == ([], False, None, None)
    wrong = http.get(path, params={"after": "nobody"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "after")


def test_results_are_served_where_they_were_asked_for_and_can_be_streamed(
    sdk: openai.OpenAI, http: httpx.Client, finished: Body
) -> None:
    file = finished["output_file_id"]
    direct = http.get(f"/v1/files/{file}/content", headers={"accept": "application/binary"})
    assert direct.status_code == 200
    assert direct.headers["content-length"] == str(len(direct.content))
    assert direct.headers["content-type"] == "application/jsonl; charset=utf-8"
    assert direct.headers["content-disposition"].startswith('attachment; filename="batch_')
    content = sdk.files.content(file)
    assert (content.text.encode(), content.read()) == (direct.content, direct.content)
    with sdk.files.with_streaming_response.content(file) as streamed:
        assert b"".join(streamed.iter_bytes()) == direct.content
    with sdk.files.with_streaming_response.content(file) as streamed:
        assert [json.loads(line)["custom_id"] for line in streamed.iter_lines()] == ["good"]


def test_no_way_to_read_lines_splits_one(service: Served, sdk: openai.OpenAI, http: httpx.Client) -> None:
    apart = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
    content = lines(chat(f"ok{apart}", f"text{apart}"), chat(f"bad{apart}", f"[status 400] {apart}"))
    batch = service.wait(create(http, upload(http, content)["id"])["id"])

    base = f"/v1/batches/{batch['id']}"
    files = [f"/v1/files/{batch[name]}/content" for name in ("output_file_id", "error_file_id")]
    for path, count in [*((file, 1) for file in files), (f"{base}/output.jsonl?order=submitted", 2)]:
        assert len(http.get(path).text.splitlines()) == count, path
    left = http.get(f"{base}/unfinished.jsonl").text
    assert [json.loads(line)["custom_id"] for line in left.splitlines()] == [f"bad{apart}"]
    for name in ("output_file_id", "error_file_id"):
        (line,) = sdk.files.content(batch[name]).iter_lines()
        assert json.loads(line)["custom_id"].endswith(apart)


def test_a_batch_is_whole_from_its_first_answer_on(service: Served, http: httpx.Client) -> None:
    for metadata, echoed in ((None, {}), ({}, {}), ({"request_file": "requests_0.jsonl"},) * 2):
        batch = create(http, upload(http, lines(chat("a", "hi")))["id"], metadata=metadata)
        assert batch["metadata"] == echoed
        assert set(batch["request_counts"]) == {"total", "completed", "failed"}
        assert all(type(count) is int for count in batch["request_counts"].values())
        absent = ("output_file_id", "error_file_id", "errors", "error", "completed_at", "failed_at", "cancelling_at")
        assert {name: batch[name] for name in absent} == dict.fromkeys(absent)
        assert service.get(f"/v1/batches/{batch['id']}").keys() == batch.keys()


def test_a_batch_cancelled_at_once_says_when_it_was_told_to(
    http: httpx.Client, service: Served, witness: Witness
) -> None:
    batch = create(http, upload(http, lines(*(chat(f"c-{i}", f"[held at-once] {i}") for i in range(50))))["id"])
    cancelled = http.post(f"/v1/batches/{batch['id']}/cancel").json()
    witness.let("at-once")
    assert cancelled["cancelling_at"]
    ended = service.wait(batch["id"])
    assert (ended["status"], ended["cancelling_at"]) == ("cancelled", cancelled["cancelling_at"])
    assert ended["cancelled_at"] >= ended["cancelling_at"]


def test_a_create_sent_twice_at_once_makes_one_batch(http: httpx.Client, service: Served, witness: Witness) -> None:
    file = upload(http, lines(chat("once", "[held sent-twice] x")))["id"]
    given = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
    with ThreadPoolExecutor(4) as pool:
        came = list(pool.map(lambda n: http.post("/v1/batches", json=given, headers=retry(n)), range(4)))
    witness.let("sent-twice")
    made = [response.json() for response in came if response.status_code == 200]
    refused = [response.json()["error"] for response in came if response.status_code == 400]
    assert (len(made), len(refused)) == (1, 3)
    assert {error["code"] for error in refused} == {"duplicate_batch"}
    assert all(made[0]["id"] in error["message"] for error in refused)
    service.wait(made[0]["id"])


def retry(count: int) -> dict[str, str]:
    """What an SDK sends when it repeats a call: it has no idempotency key of its own."""
    return {"x-stainless-retry-count": str(count)}


ODD: dict[str, bytes] = {
    "big integers": b'"seed":123456789012345678901234567890',
    "a surrogate pair": rb'"user":"\ud83d\ude00"',
    "long fractions": b'"temperature":0.10000000000000000000000000000000001',
    "an exponent": b'"temperature":1E-7',
    "escaped slashes": rb'"user":"a\/b"',
    "deep nesting": b'"metadata":{},"chat_template_kwargs":' + b'{"a":' * 100 + b"1" + b"}" * 100,
}


def test_a_file_with_all_that_json_allows_runs(service: Served, http: httpx.Client, witness: Witness) -> None:
    text = '{"custom_id":"%b","method":"POST","url":"/v1/chat/completions","body":{%b,"model":"test-model",%b}}'
    messages = b'"messages":[{"role":"user","content":"odd"}]'
    rows = [text.encode() % (name.encode(), field, messages) for name, field in ODD.items()]
    content = b"\xef\xbb\xbf" + b"\r\n\r\n  \r\n".join(rows)

    batch = service.wait(create(http, upload(http, content)["id"])["id"])

    assert batch["errors"] is None
    assert batch["request_counts"] == {"total": len(ODD), "completed": len(ODD), "failed": 0}
    bodies = [body for body in witness.bodies if body.get("messages", [{}])[-1].get("content") == "odd"]
    assert 123456789012345678901234567890 in [body.get("seed") for body in bodies]
    assert "\U0001f600" in [body.get("user") for body in bodies]
    assert {line["custom_id"] for line in service.lines(batch["output_file_id"])} == ODD.keys()


def test_a_half_of_a_character_is_refused_by_its_line(service: Served, http: httpx.Client) -> None:
    good = lines(chat("a", "hi"), chat("b", "half"))
    content = good.replace(b"half", rb"\ud83d")
    batch = service.wait(create(http, upload(http, content)["id"])["id"])
    assert [(e["code"], e["line"]) for e in batch["errors"]["data"]] == [("invalid_json_line", 2)]


def test_a_sdk_client_follows_a_batch_with_nothing_but_its_documented_calls(sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=lines(chat("a", "documented")), purpose="batch")
    assert sdk.files.wait_for_processing(file.id).status == "processed"
    batch = ended(sdk, sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h"))
    assert batch.output_file_id is not None
    (line,) = sdk.files.content(batch.output_file_id).text.splitlines()
    assert json.loads(line)["custom_id"] == "a"
    assert batch.id in [other.id for other in sdk.batches.list(limit=100).data]
