"""Downloads that break off, continue, and are checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from overnight.client import BatchFailed, ConnectionFailed, DownloadDamaged, NotFound
from tests.client.conftest import Caller
from tests.client.scripted import refusal, reply, scripted

TEXT = b"".join(b'{"custom_id":"%d"}\n' % i for i in range(1000))


def file_of(text: bytes, file_id: str = "file-1") -> bytes:
    """The answer with the file object."""
    return reply(200, {"id": file_id, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()})


FILE = file_of(TEXT)


def rest(start: int, stop: int | None = None) -> bytes:
    """The answer to a range that begins at `start`, broken off at `stop`."""
    return reply(206, TEXT[start:stop], length=len(TEXT) - start)


def whole(stop: int | None = None) -> bytes:
    return reply(200, TEXT[:stop], length=len(TEXT))


async def test_a_download_goes_on_where_the_connection_broke(call: Caller, tmp_path: Path) -> None:
    async with scripted(FILE, whole(7000), rest(7000, 9000), b"", rest(9000)) as server:
        path = await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    assert path.read_bytes() == TEXT
    assert [a.headers.get("range") for a in server.asked] == [None, None, *[f"bytes={n}-" for n in (7000, 9000, 9000)]]
    assert {a.headers["accept-encoding"] for a in server.asked[1:]} == {"identity"}
    assert server.asked[-1].headers["if-range"] == f'"{hashlib.sha256(TEXT).hexdigest()}"'
    assert list(tmp_path.iterdir()) == [path]


async def test_a_download_is_continued_by_a_later_run(call: Caller, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    async with scripted(FILE, whole(7000), *[b""] * 6) as server:
        with pytest.raises(ConnectionFailed):
            await call(call.client(server.url), "download_file", "file-1", target)
    assert not target.exists()
    async with scripted(FILE, rest(7000)) as server:
        await call(call.client(server.url), "download_file", "file-1", target)
    assert target.read_bytes() == TEXT


async def test_progress_starts_the_count_of_failures_anew(tmp_path: Path) -> None:
    call = Caller("async")
    cuts = [whole(10), *[rest(n, n + 10) for n in range(10, 200, 10)]]
    async with scripted(FILE, *cuts, rest(200)) as server:
        path = await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    await call.close()
    assert path.read_bytes() == TEXT
    assert set(call.waits) == {1}


async def test_what_an_earlier_run_left_damaged_is_brought_afresh(call: Caller, tmp_path: Path) -> None:
    left = tmp_path / ".out.jsonl.file-1.part"
    left.write_bytes(b"x" * 7000)
    async with scripted(FILE, rest(7000), whole()) as server:
        path = await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    assert path.read_bytes() == TEXT
    assert list(tmp_path.iterdir()) == [path]


async def test_more_than_the_file_left_behind_is_thrown_away(call: Caller, tmp_path: Path) -> None:
    (tmp_path / ".out.jsonl.file-1.part").write_bytes(TEXT + b"more")
    async with scripted(FILE, whole()) as server:
        path = await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    assert path.read_bytes() == TEXT


async def test_a_server_without_ranges_sends_all_again(call: Caller, tmp_path: Path) -> None:
    async with scripted(FILE, whole(7000), whole()) as server:
        path = await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    assert path.read_bytes() == TEXT


async def test_damaged_bytes_are_refused_and_nothing_is_left(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_bytes(b"from before")
    damaged = reply(200, TEXT[:-2] + b"]\n")
    async with scripted(FILE, damaged) as server:
        with pytest.raises(DownloadDamaged):
            await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("out.jsonl", b"from before")]


async def test_a_file_that_is_gone_leaves_nothing(call: Caller, tmp_path: Path) -> None:
    gone = refusal(404, "file_not_found")
    async with scripted(FILE, whole(7000), gone) as server:
        with pytest.raises(NotFound):
            await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


async def test_an_empty_file_is_downloaded_too(call: Caller, tmp_path: Path) -> None:
    async with scripted(file_of(b"")) as server:
        path = await call(call.client(server.url), "download_file", "file-1", tmp_path / "out.jsonl")
    assert path.read_bytes() == b""


async def test_content_in_memory_is_read_again_when_it_broke_off(call: Caller) -> None:
    async with scripted(whole(7000), whole()) as server:
        assert await call(call.client(server.url), "download_file_content", "file-1") == TEXT
    assert call.waits == [1]


def ended(status: str, **more: str) -> dict[str, Any]:
    counts = {"total": 3, "completed": 2, "failed": 1}
    files = {"output_file_id": None, "error_file_id": None}
    return {"id": "batch_1", "status": status, "request_counts": counts, **files, **more}


async def test_results_of_an_expired_batch_are_written_before_it_is_raised(call: Caller, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"{}\n")
    batch = ended("expired", output_file_id="file-2", error_file_id="file-3")
    created = reply(200, {**batch, "status": "validating"})
    results = [file_of(TEXT, "file-2"), whole(), file_of(b"{}\n", "file-3"), reply(200, b"{}\n")]
    async with scripted(reply(200, {"id": "file-1"}), created, reply(200, batch), *results) as server:
        with pytest.raises(BatchFailed, match="batch_1 ended as expired") as raised:
            await call(call.client(server.url), "submit_batch", source, target)
    assert raised.value.batch == batch
    assert target.read_bytes() == TEXT + b"{}\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


async def test_a_batch_refused_by_its_check_tells_the_first_problem(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"{}\n")
    problems = {"object": "list", "data": [{"code": "x", "line": 1, "message": "Line 1 lacks a body.", "param": None}]}
    batch = {**ended("failed"), "errors": problems}
    async with scripted(reply(200, {"id": "file-1"}), reply(200, batch), reply(200, batch)) as server:
        with pytest.raises(BatchFailed, match=r"ended as failed: Line 1 lacks a body\."):
            await call(call.client(server.url), "submit_batch", tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("target", ["none/out.jsonl", "in.jsonl/out.jsonl", "."])
async def test_results_that_would_have_no_place_keep_a_batch_from_being_made(
    call: Caller, tmp_path: Path, target: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"{}\n")
    async with scripted() as server:
        with pytest.raises(OSError, match=r"No such|Not a|Is a"):
            await call(call.client(server.url), "submit_batch", tmp_path / "in.jsonl", tmp_path / target)
    assert server.asked == []
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]
