"""Whatever an input holds: it is taken whole or refused whole, for the lines that are wrong and no others."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from overnight.domain.limits import PROBLEMS_SHOWN_ON_FILE
from tests.fuzz import jsonl, oracle
from tests.fuzz.conftest import LIMITS, House
from tests.fuzz.effort import examples
from tests.fuzz.oracle import Verdict, Wrong

NOTHING = dict.fromkeys(("batch", "block", "roll", "attempt", "segment", "answer", "file", "file_chunk"), 0)
WITHIN = 60
"""Seconds; nothing that is sent takes so long, unless it hangs."""


def with_edges(test: Any) -> Any:
    """Try the files at limits whatever else is tried."""
    for data in jsonl.EDGES:
        test = example(data=data, endpoint=jsonl.CHAT, fits=0)(test)
    return test


@examples(few=60)
@with_edges
@given(data=jsonl.files(), endpoint=st.sampled_from(jsonl.URLS), fits=st.integers(0, 5))
async def test_a_file_is_run_whole_or_refused_for_its_wrong_lines(
    house: House, data: bytes, endpoint: str, fits: int
) -> None:
    verdict = oracle.judge(data, LIMITS.line_bytes)
    if fits and verdict.parsed:
        endpoint = next(iter(verdict.parsed.values()))["url"]
    async with asyncio.timeout(WITHIN):
        await check_file(house, data, endpoint, verdict)


async def check_file(house: House, data: bytes, endpoint: str, verdict: Verdict) -> None:
    uploaded = await house.upload(data)
    if not data:
        assert (uploaded.status_code, uploaded.json()["error"]["code"]) == (400, "empty_file")
        assert await house.left() == NOTHING
        return
    file = uploaded.json()
    assert uploaded.status_code == 200, file
    assert (file["bytes"], file["lines"]) == (len(data), len(verdict.requests))
    assert (await house.http.get(f"/v1/files/{file['id']}/content")).content == data
    check_problems(file["problems"], verdict)

    created = await house.create(input_file_id=file["id"], endpoint=endpoint)
    assert created.status_code == 200, created.text
    batch = await house.validated(created.json()["id"])

    bad = verdict.bad or verdict.bad_in_batch(endpoint)
    if bad or not verdict.requests:
        await check_refused(house, batch, bad)
    else:
        await check_running(house, batch, verdict)
    await house.clear()


def check_problems(problems: dict[str, Any] | None, verdict: Verdict) -> None:
    """What an upload says of its lines is what the oracle says."""
    if not verdict.requests:
        assert problems is not None
        assert [problem["code"] for problem in problems["first"]] == ["empty_file"]
        return
    found = {problem["line"]: problem["code"] for problem in (problems or {"first": []})["first"]}
    assert set(found) == verdict.bad
    assert len(found) <= PROBLEMS_SHOWN_ON_FILE
    assert (problems or {"count": 0})["count"] == len(verdict.bad)
    assert {number: found[number] for number in verdict.codes} == verdict.codes


async def check_refused(house: House, batch: dict[str, Any], bad: set[int]) -> None:
    """A batch that was refused says why, and nothing of it is left that could run or count."""
    event("is refused")
    assert batch["status"] == "failed", batch
    lines = {problem["line"] for problem in batch["errors"]["data"]}
    assert lines == bad if bad else lines == {None}
    assert batch["error"]["code"] == batch["errors"]["data"][0]["code"]
    assert batch["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    left = await house.left()
    assert (left["block"], left["roll"], left["batch"], left["file"]) == (0, 0, 1, 1)
    assert await intake(house) == 0


async def check_running(house: House, batch: dict[str, Any], verdict: Verdict) -> None:
    """A batch that runs has every request as it was written but for what splits lines, in the order of the file."""
    event("runs")
    assert batch["status"] == "in_progress", batch
    assert batch["request_counts"]["total"] == len(verdict.requests) == await intake(house)
    results = (await house.http.get(f"/v1/batches/{batch['id']}/results")).json()["data"]
    assert [row["custom_id"] for row in results] == [request["custom_id"] for request in verdict.parsed.values()]
    unfinished = await house.http.get(f"/v1/batches/{batch['id']}/unfinished.jsonl")
    assert unfinished.content == b"".join(on_one_line(line) + b"\n" for line in verdict.requests.values())


def on_one_line(request: bytes) -> bytes:
    """How a request is handed back: some clients split lines at these characters, too."""
    for character, escape in (("\u2028", rb"\u2028"), ("\u2029", rb"\u2029"), ("\x85", rb"\u0085"), ("\r", b" ")):
        request = request.replace(character.encode(), escape)
    return request


async def intake(house: House) -> int:
    status: dict[str, int] = (await house.http.get("/v1/pool/status")).json()
    return status["intake_pool_size"]


@examples(few=50)
@given(body=jsonl.direct_bodies())
async def test_direct_requests_are_taken_whole_or_refused_whole(roomy_house: House, body: bytes) -> None:
    async with asyncio.timeout(WITHIN):
        await check_direct(roomy_house, body)


async def check_direct(house: House, body: bytes) -> None:
    wanted = direct_requests(body)
    event("runs" if wanted and None not in wanted else "is refused")
    answer = await house.http.post("/v1/batches", content=body, headers={"content-type": "application/json"})
    if not wanted or any(request is None for request in wanted):
        assert answer.status_code == 400, answer.text
        if wanted:
            assert answer.json()["error"]["param"].startswith(f"requests[{wanted.index(None)}]")
        assert await house.left() == NOTHING
        return
    assert answer.status_code == 200, answer.text
    assert answer.json()["request_counts"]["total"] == len(wanted) == await intake(house)
    batch = await house.validated(answer.json()["id"])
    assert (batch["status"], batch["request_counts"]["total"]) == ("in_progress", len(wanted))
    results = (await house.http.get(f"/v1/batches/{batch['id']}/results")).json()["data"]
    assert [row["custom_id"] for row in results] == [request["custom_id"] for request in wanted if request]
    await house.clear()


def direct_requests(body: bytes) -> list[dict[str, Any] | None]:
    """The requests of a create call, None for each that is wrong; none at all where the call itself is."""
    try:
        # A request is one level deeper in the call than in its line, and so is the array.
        call = oracle.read(body, oracle.DEEPEST + 2)
    except Wrong:
        return []
    if not isinstance(call, dict) or set(call) != {"requests"} or not isinstance(call["requests"], list):
        return []
    found: list[dict[str, Any] | None] = []
    seen = set()
    endpoint = None
    for request in call["requests"]:
        if isinstance(request, dict):
            request = {"method": "POST", "url": jsonl.CHAT, **request}
        if endpoint is None:
            endpoint = request["url"] if isinstance(request, dict) else jsonl.CHAT
        is_good = oracle.is_request(request) and request["custom_id"] not in seen and request["url"] == endpoint
        if is_good:
            seen.add(request["custom_id"])
            is_good = not Verdict(parsed={1: request}).bad_in_batch(request["url"])
        found.append(request if is_good else None)
    return found


@examples(few=20)
@given(metadata=jsonl.metadata())
async def test_metadata_is_kept_as_it_was_sent_or_refused(roomy_house: House, metadata: Any) -> None:
    request = {"custom_id": "a", "body": {"model": "m", "messages": [{"role": "user", "content": ""}]}}
    answer = await roomy_house.create(requests=[request], metadata=metadata)
    if metadata is None or is_metadata(metadata):
        assert (answer.status_code, answer.json().get("metadata")) == (200, metadata or {})
        await roomy_house.clear()
    else:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "metadata")
        assert await roomy_house.left() == NOTHING


def is_metadata(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > 16:
        return False
    texts = [text for pair in value.items() for text in pair]
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        return False
    return all(len(key) <= 64 and len(text) <= 512 for key, text in value.items())
