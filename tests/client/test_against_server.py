"""The clients and the real application, over a real connection and database."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from overnight.client import AsyncClient, BadRequest, Client, NotFound, TooManyRequests, verbs
from overnight.domain.limits import Limits
from tests.api.conftest import Serve, ServedApp, request
from tests.batches.factory import lines, make_factory
from tests.client.conftest import Caller

CHAT = "/v1/chat/completions"


def write(path: Path, count: int, **body: object) -> bytes:
    """Write an input file of so many requests."""
    text = "".join(json.dumps(request(f"request {n}", **body)) + "\n" for n in range(count)).encode()
    path.write_bytes(text)
    return text


async def test_files_go_up_and_come_down_the_same(call: Caller, served_app: ServedApp, tmp_path: Path) -> None:
    source = tmp_path / "naïve input.jsonl"
    text = write(source, 3000)
    client = call.client(served_app.url + "/v1")
    file = await call(client, "upload_file", source)
    assert (file["bytes"], file["lines"], file["problems"]) == (len(text), 3000, None)
    assert (file["sha256"], file["filename"]) == (hashlib.sha256(text).hexdigest(), source.name)
    assert await call(client, "get_file", file["id"]) == file
    assert await call(client, "download_file_content", file["id"]) == text
    target = await call(client, "download_file", file["id"], tmp_path / "copy.jsonl")
    assert target.read_bytes() == text
    (tmp_path / f".half.jsonl.{file['id']}.part").write_bytes(text[:200_001])
    assert (await call(client, "download_file", file["id"], str(tmp_path / "half.jsonl"))).read_bytes() == text


async def test_files_are_listed_and_deleted(call: Caller, served_app: ServedApp, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    write(source, 1)
    client = call.client(served_app.url)
    first, second = [await call(client, "upload_file", str(source)) for _ in range(2)]
    page = await call(client, "list_files", purpose="batch", limit=1, order="asc")
    assert (page["data"], page["has_more"]) == ([first], True)
    page = await call(client, "list_files", after=page["last_id"], order="asc")
    assert (page["data"], page["has_more"]) == ([second], False)
    assert (await call(client, "delete_file", first["id"]))["deleted"] is True
    with pytest.raises(NotFound) as raised:
        await call(client, "download_file", first["id"], tmp_path / "copy.jsonl")
    assert raised.value.code == "file_not_found"
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


async def test_batches_are_created_listed_and_cancelled(call: Caller, served_app: ServedApp, tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", 2)
    client = call.client(served_app.url)
    assert await call(client, "health_check") is True
    file = await call(client, "upload_file", tmp_path / "in.jsonl")
    batch = await call(client, "create_batch", file["id"], CHAT, "2h", {"name": "mine"}, 100, 200, 0.5, 0.9, 40)
    assert (batch["completion_window"], batch["metadata"]) == ("2h", {"name": "mine"})
    defaults = ("max_decoding_length", "max_context_length", "temperature", "top_p", "top_k")
    assert [batch[name] for name in defaults] == [100, 200, 0.5, 0.9, 40]
    assert await call(client, "get_batch", batch["id"]) == batch
    assert (await call(client, "list_batches", q="mine", status="validating"))["data"] == [batch]
    assert (await call(client, "pool_status"))["intake_pool_size"] == 2
    assert (await call(client, "cancel_batch", batch["id"]))["status"] == "cancelling"
    assert (await call(client, "list_batches", 10, None, "validating"))["data"] == []
    assert await call(client, "models") == []


async def test_a_refusal_tells_the_field_and_the_request(call: Caller, served_app: ServedApp) -> None:
    with pytest.raises(BadRequest) as raised:
        await call(call.client(served_app.url), "create_batch", "file-unknown")
    error = raised.value
    assert (error.status, error.code, error.param) == (400, "file_not_found", "input_file_id")
    assert error.request_id is not None
    assert error.request_id.startswith("req_")


async def test_a_file_over_the_limit_is_refused_with_what_the_limit_is(
    call: Caller, serve: Serve, tmp_path: Path
) -> None:
    served = await serve(Limits(file_bytes=1000))
    (tmp_path / "in.jsonl").write_bytes(b"x" * 8_000_000)
    with pytest.raises(BadRequest, match="1,000 bytes") as raised:
        await call(call.client(served.url), "upload_file", tmp_path / "in.jsonl")
    assert (raised.value.status, raised.value.code) == (413, "too_large")


async def test_a_full_queue_is_waited_for_as_long_as_the_server_asks(
    call: Caller, serve: Serve, tmp_path: Path
) -> None:
    served = await serve(Limits(intake=3))
    await served.create()
    write(tmp_path / "in.jsonl", 3)
    client = call.client(served.url)
    file = await call(client, "upload_file", tmp_path / "in.jsonl")
    with pytest.raises(TooManyRequests):
        await call(client, "create_batch", file["id"])
    assert call.waits == [30] * 5


async def test_an_unwell_server_is_unhealthy(call: Caller, served_app: ServedApp) -> None:
    served_app.reason = "loading"
    assert await call(call.client(served_app.url), "health_check") is False


async def test_a_file_that_is_not_there_is_an_error_of_the_file_system(call: Caller, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await call(call.client("http://127.0.0.1:1"), "upload_file", tmp_path / "missing.jsonl")


async def test_requests_at_hand_become_a_batch_without_a_file(call: Caller, served_app: ServedApp) -> None:
    client = call.client(served_app.url)
    bodies = [{"custom_id": f"r{n}", "body": request()["body"]} for n in range(3)]
    batch = await call(client, "create_direct_batch", iter(bodies), metadata={"name": "mine"}, top_k=4)
    assert (batch["input_file_id"], batch["request_counts"]["total"]) == (None, 3)
    assert (batch["endpoint"], batch["metadata"], batch["top_k"]) == (CHAT, {"name": "mine"}, 4)
    assert await call(client, "get_batch", batch["id"]) == batch
    with pytest.raises(BadRequest) as raised:
        await call(client, "create_direct_batch", [*bodies, bodies[1]])
    assert raised.value.code == "duplicate_custom_id"


async def test_a_create_repeated_under_its_key_returns_the_same_batch(
    call: Caller, served_app: ServedApp, tmp_path: Path
) -> None:
    write(tmp_path / "in.jsonl", 2)
    client = call.client(served_app.url)
    file = await call(client, "upload_file", tmp_path / "in.jsonl")
    first = await call(client, "create_batch", file["id"], idempotency_key="mine")
    again = await call(client, "create_batch", file["id"], idempotency_key="mine")
    other = await call(client, "create_direct_batch", [request()], idempotency_key="another")
    assert again == first
    assert other["id"] != first["id"]


async def all_results(client: Client | AsyncClient, batch_id: str) -> list[dict[str, object]]:
    if isinstance(client, Client):
        return await asyncio.to_thread(lambda: list(client.results(batch_id)))
    return [result async for result in client.results(batch_id)]


async def test_results_come_page_by_page_to_the_last(
    call: Caller, served_app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "RESULTS_AT_ONCE", 3)
    make = await make_factory(served_app.store)
    batch = await make.completed(lines(7))
    client = call.client(served_app.url)
    assert [row["custom_id"] for row in await all_results(client, batch.public_id)] == [f"r{i}" for i in range(7)]
    assert len((await call(client, "list_results", batch.public_id, 2))["data"]) == 2
    assert await all_results(client, (await make.batch()).public_id) == []
    with pytest.raises(NotFound):
        await all_results(client, "batch_" + "0" * 32)


async def test_results_may_be_left_in_the_middle(served_app: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "RESULTS_AT_ONCE", 2)
    make = await make_factory(served_app.store)
    batch = await make.completed(lines(5))

    def first_three() -> list[str]:
        with Client(served_app.url) as client:
            found = client.results(batch.public_id)
            return [next(found)["custom_id"] for _ in range(3)]

    assert await asyncio.to_thread(first_three) == ["r0", "r1", "r2"]


async def test_what_a_batch_has_left_comes_as_a_file_to_upload_again(
    call: Caller, served_app: ServedApp, tmp_path: Path
) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(3))
    client = call.client(served_app.url)

    path = await call(client, "download_unfinished", batch.public_id, tmp_path / "left.jsonl")

    assert [json.loads(line)["custom_id"] for line in path.read_text().splitlines()] == ["r0", "r1", "r2"]
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(NotFound):
        await call(client, "download_unfinished", "batch_" + "0" * 32, tmp_path / "none.jsonl")


async def test_batches_are_narrowed_and_models_named(call: Caller, served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(1))
    client = call.client(served_app.url)
    for wanted in ({"model": "m"}, {"endpoint": CHAT}, {"created_after": 1}, {"created_before": 32_000_000_000}):
        assert [one["id"] for one in (await call(client, "list_batches", **wanted))["data"]] == [batch.public_id]
    for unwanted in ({"model": "other"}, {"endpoint": "/v1/embeddings"}, {"created_before": 1}):
        assert (await call(client, "list_batches", **unwanted))["data"] == []
    assert (await call(client, "get_model", "nick"))["id"] == "m"
    with pytest.raises(NotFound):
        await call(client, "get_model", "some/where/else")


async def test_files_and_results_are_kept_as_long_as_the_caller_says(
    call: Caller, served_app: ServedApp, tmp_path: Path
) -> None:
    write(tmp_path / "in.jsonl", 1)
    client = call.client(served_app.url)
    file = await call(client, "upload_file", tmp_path / "in.jsonl", expires_after=7_200)
    assert file["expires_at"] - file["created_at"] == 7_200
    assert (await call(client, "create_batch", file["id"], output_expires_after=3_600))["status"] == "validating"
    with pytest.raises(BadRequest) as raised:
        await call(client, "create_direct_batch", [request()], output_expires_after=1)
    assert raised.value.param == "output_expires_after.seconds"


async def test_batches_are_paused_resumed_retried_and_deleted(call: Caller, served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(2))
    client = call.client(served_app.url)
    assert (await call(client, "pause_batch", batch.public_id))["paused"]["reason"] == "user"
    assert (await call(client, "resume_batch", batch.public_id))["paused"] is None
    await call(client, "cancel_batch", batch.public_id)
    await make.sealed(batch)
    again = await call(client, "retry_batch", batch.public_id)
    assert again["retry_of"] == batch.public_id
    assert (await call(client, "delete_batch", batch.public_id))["deleted"] is True
    with pytest.raises(NotFound):
        await call(client, "get_batch", batch.public_id)


async def test_a_file_is_sent_in_parts(call: Caller, served_app: ServedApp, tmp_path: Path) -> None:
    text = write(tmp_path / "in.jsonl", 9)
    client = call.client(served_app.url)
    upload = await call(client, "create_upload", "naïve.jsonl", len(text), expires_after=7_200)
    parts = [await call(client, "add_upload_part", upload["id"], piece) for piece in (text[700:], text[:700])]
    assert await call(client, "get_upload", upload["id"]) == upload
    done = await call(
        client, "complete_upload", upload["id"], [parts[1]["id"], parts[0]["id"]], md5=hashlib.md5(text).hexdigest()
    )
    assert (done["status"], done["file"]["lines"], done["file"]["filename"]) == ("completed", 9, "naïve.jsonl")
    assert await call(client, "complete_upload", upload["id"], [parts[1]["id"], parts[0]["id"]]) == done
    assert await call(client, "download_file_content", done["file"]["id"]) == text
    other = await call(client, "create_upload", "other.jsonl", 1)
    assert (await call(client, "cancel_upload", other["id"]))["status"] == "cancelled"
    with pytest.raises(BadRequest) as raised:
        await call(client, "add_upload_part", other["id"], b"x")
    assert raised.value.code == "upload_not_pending"


async def output(client: Client | AsyncClient, batch_id: str, *given: int, order: str = "finished") -> list[str]:
    if isinstance(client, Client):
        return await asyncio.to_thread(
            lambda: [str(r["custom_id"]) for r in client.output(batch_id, *given, order=order)]
        )
    return [str(result["custom_id"]) async for result in client.output(batch_id, *given, order=order)]


async def test_results_are_read_from_where_the_last_look_ended(call: Caller, served_app: ServedApp) -> None:
    make = await make_factory(served_app.store)
    batch = await make.running(lines(4))
    client = call.client(served_app.url)
    assert await output(client, batch.public_id) == []
    await make.answer(batch, [2, 0])
    assert await output(client, batch.public_id) == ["r2", "r0"]
    assert await output(client, batch.public_id, 1) == ["r0"]
    assert await output(client, batch.public_id, 2) == []
    ended = await make.completed(lines(3))
    assert await output(client, ended.public_id, 1, order="submitted") == ["r1", "r2"]
    with pytest.raises(NotFound):
        await output(client, "batch_" + "0" * 32)
