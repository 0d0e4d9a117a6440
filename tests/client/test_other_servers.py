"""A client of some other OpenAI-shaped batch server, and results in the order of their requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overnight.client import ConnectionFailed, progress
from tests.client.conftest import Caller
from tests.client.scripted import refusal, reply, scripted

TEXT = b"".join(b'{"custom_id":"%d"}\n' % i for i in range(500))
FILE = reply(200, {"id": "file-1", "object": "file", "bytes": 0})
"""A file object as servers without a digest send it."""


def batch(status: str, **more: Any) -> bytes:
    return reply(200, {"id": "batch_1", "object": "batch", "status": status, **more})


async def test_a_server_that_gives_no_digest_is_downloaded_from_all_the_same(call: Caller, tmp_path: Path) -> None:
    cut = reply(200, TEXT[:300], length=len(TEXT))
    async with scripted(FILE, cut, reply(200, TEXT)) as server:
        path = await call(call.client(server.url), "download_file", "file-1", tmp_path / "out")
    assert path.read_bytes() == TEXT
    assert [a.headers.get("range") for a in server.asked] == [None, None, None]
    assert list(tmp_path.iterdir()) == [path]


async def test_a_server_that_breaks_every_download_is_given_up(call: Caller, tmp_path: Path) -> None:
    cut = reply(200, TEXT[:300], length=len(TEXT))
    async with scripted(FILE, *[cut] * 6) as server:
        with pytest.raises(ConnectionFailed):
            await call(call.client(server.url), "download_file", "file-1", tmp_path / "out")
    assert not (tmp_path / "out").exists()


async def test_the_whole_flow_needs_only_what_the_official_api_has(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"{}\n")
    looks = [batch("validating"), batch("in_progress", request_counts=None)]
    done = batch("completed", output_file_id="file-1", request_counts={"total": 1, "completed": 1, "failed": 0})
    uploaded = reply(200, {"id": "file-0", "object": "file"})
    async with scripted(uploaded, batch("validating"), *looks, done, FILE, reply(200, TEXT)) as server:
        ended = await call(call.client(server.url), "submit_batch", tmp_path / "in", tmp_path / "out", progress=True)
    assert ended["status"] == "completed"
    assert (tmp_path / "out").read_bytes() == TEXT


async def test_files_are_put_together_in_their_order(call: Caller, tmp_path: Path) -> None:
    second = reply(200, {"id": "file-2", "object": "file", "bytes": 0})
    async with scripted(FILE, reply(200, b"one\n"), second, reply(200, b"two\n")) as server:
        client = call.client(server.url)
        await call(client, "download_files", ["file-1", "file-2"], tmp_path / "out")
        with pytest.raises(ValueError, match="an id is needed"):
            await call(client, "download_files", [], tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\n"


async def test_ordered_results_go_on_after_the_last_whole_line(call: Caller, tmp_path: Path) -> None:
    at = TEXT.index(b"\n", 2000) + 1
    cut = reply(200, TEXT[: at + 7], length=len(TEXT))
    async with scripted(cut, b"", reply(200, TEXT[at:])) as server:
        wrote = await call(call.client(server.url), "write_results", {"id": "batch_1"}, tmp_path / "out", ordered=True)
    lines = TEXT[:at].count(b"\n")
    path = "/v1/batches/batch_1/output.jsonl?order=submitted&offset="
    assert wrote is True
    assert [a.path for a in server.asked] == [f"{path}0", f"{path}{lines}", f"{path}{lines}"]
    assert (tmp_path / "out").read_bytes() == TEXT
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


async def test_ordered_results_without_errors_hold_only_responses(call: Caller, tmp_path: Path) -> None:
    good, bad = b'{"response":{"status_code":200}}\n', b'{"response":null}\n'
    async with scripted(reply(200, good + bad + good), reply(200, bad)) as server:
        client, target = call.client(server.url), tmp_path / "out"
        options = {"ordered": True, "errors": False}
        assert await call(client, "write_results", {"id": "batch_1"}, target, **options) is True
        assert target.read_bytes() == good * 2
        assert await call(client, "write_results", {"id": "batch_1"}, target, **options) is False
    assert target.read_bytes() == good * 2
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


async def test_health_is_told_with_its_reason(call: Caller) -> None:
    unwell = {"status": "unhealthy", "reason": "loading"}
    async with scripted(reply(503, unwell), reply(200, {"status": "healthy"})) as server:
        client = call.client(server.url)
        assert await call(client, "health") == unwell
        assert await call(client, "health") == {"status": "healthy"}
    assert call.waits == []


async def test_batches_are_narrowed_to_several_statuses(call: Caller) -> None:
    async with scripted(reply(200, {"data": []})) as server:
        await call(call.client(server.url), "list_batches", status=["completed", "failed"])
    assert server.asked[0].path == "/v1/batches?status=completed&status=failed"


async def test_a_full_server_of_another_kind_is_waited_for_too(call: Caller) -> None:
    async with scripted(refusal(429, "rate_limit"), batch("validating")) as server:
        await call(call.client(server.url), "create_batch", "file-1")
    assert call.waits == [1]


@pytest.mark.parametrize("columns", [10, 30, 49, 79, 200])
def test_the_bar_fits_its_line(columns: int) -> None:
    counts = {"total": 12_000, "completed": 2_900, "failed": 100}
    line = progress.bar("in_progress", counts, columns)
    assert len(line) <= columns
    if columns > 48:
        assert line.endswith("3,000/12,000, 100 failed")
        assert line.count("█") == (line.count("█") + line.count("░")) // 4
    assert "0/0" in progress.bar("validating", {"total": 0, "completed": 0, "failed": 0}, 80)
