"""What users of a batch server in front of one model were promised of refusals, cancelling and what is never done."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import overnight
from tests.acceptance.test_guide_a import parsed, write
from tests.acceptance.ways import CHAT, PLAIN, WAYS, Way, ended
from tests.process import Served, chat
from tests.witness import Witness


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, service: Served) -> Iterator[Way]:
    made = WAYS[request.param](service.url)
    yield made
    made.close()


@pytest.fixture
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, trust_env=False, timeout=60) as client:
        yield client


def test_an_unknown_file_is_400_and_an_unknown_batch_or_file_404(way: Way) -> None:
    calls: list[tuple[Callable[[], object], tuple[int, str]]] = [
        (lambda: way.create("file-abc123"), (400, "file_not_found")),
        (lambda: way.get("batch_abc123"), (404, "batch_not_found")),
        (lambda: way.cancel("batch_abc123"), (404, "batch_not_found")),
        (lambda: way.content("file-output123"), (404, "file_not_found")),
    ]
    for call, expected in calls:
        refused = way.refusal(call)
        assert (refused.status, refused.code) == expected
        assert refused.message


def test_an_internal_error_is_500_and_nothing_has_changed_when_it_is_over(way: Way, service: Served) -> None:
    batch = way.create(way.upload(write(service.folder, chat("a", "internal")))["id"])["id"]
    name = "progress_of(bigint, bigint, text, timestamp)"
    service.sql(f"ALTER FUNCTION {name} RENAME TO away")
    try:
        refused = way.refusal(lambda: way.get(batch))
    finally:
        service.sql(f"ALTER FUNCTION {name.replace('progress_of', 'away')} RENAME TO progress_of")
    assert (refused.status, refused.code) == (500, "internal_error")
    assert "req_" in refused.message, "it can be reported with its id"
    assert "progress_of" not in refused.message
    assert ended(way, way.get(batch))["status"] == "completed"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/batches", 400),
        ("GET", "/v1/batches/batch_abc123", 404),
        ("GET", "/v1/files/file-output123/content", 404),
        ("GET", "/v1/nothing", 404),
    ],
)
def test_every_refusal_over_plain_http_has_one_shape(http: httpx.Client, method: str, path: str, status: int) -> None:
    body = {"input_file_id": "file-abc123", "endpoint": CHAT} if method == "POST" else None
    response = http.request(method, path, json=body)
    assert response.status_code == status
    assert response.json()["error"].keys() == {"message", "type", "param", "code"}


def test_a_file_is_refused_while_a_batch_of_it_is_active_and_taken_again_afterwards(
    way: Way, witness: Witness, tmp_path: Path
) -> None:
    # By the folder, which each way has for itself.
    file = way.upload(write(tmp_path, chat("a", f"[held {tmp_path.name}] active")))["id"]
    batch = way.create(file)
    refused = way.refusal(lambda: way.create(file))
    assert (refused.status, refused.code) == (400, "duplicate_batch")
    assert batch["id"] in refused.message
    witness.let(tmp_path.name)
    assert ended(way, batch)["status"] == "completed"
    again = way.create(file)
    assert again["id"] != batch["id"]
    assert ended(way, again)["status"] == "completed"


def test_the_same_content_uploaded_twice_gives_two_ids_that_may_run_at_once(way: Way, tmp_path: Path) -> None:
    path = write(tmp_path, chat("a", "[slow 0.3] uploaded twice"))
    files = [way.upload(path)["id"] for _ in range(2)]
    assert files[0] != files[1]
    batches = [way.create(file) for file in files]
    assert [ended(way, batch)["status"] for batch in batches] == ["completed"] * 2


def test_a_cancelled_batch_skips_what_has_not_started_keeps_what_ran_and_never_flips(
    service: Served, way: Way, witness: Witness, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    before = witness.seen.total()
    lines = [chat(f"r-{i}", f"[held cancelled-{name}] cancelled {name} {i}") for i in range(4000)]
    batch = way.create(way.upload(write(tmp_path, *lines))["id"])
    witness.wait_for(before + 1)
    assert way.cancel(batch["id"])["status"] in ("cancelling", "cancelled")
    witness.let(f"cancelled-{name}")
    done = ended(way, batch)
    assert done["status"] == "cancelled"
    started = sum(f"cancelled {name}" in text for text in witness.seen)
    kept = parsed(way.content(done["output_file_id"]))
    assert 0 < len(kept) == started < 4000, "those that ran late are kept"
    left = parsed(way.content(done["error_file_id"]))
    assert {line["error"]["code"] for line in left.values()} == {"batch_cancelled"}
    assert len(kept) + len(left) == 4000
    assert way.cancel(batch["id"]) == done
    assert way.get(batch["id"]) == done


def test_a_batch_that_has_not_started_is_cancelled_whole(way: Way, witness: Witness, tmp_path: Path) -> None:
    name = tmp_path.name
    batch = way.create(way.upload(write(tmp_path, *(chat(f"r-{i}", f"[held {name}] {i}") for i in range(50))))["id"])
    way.cancel(batch["id"])
    witness.let(name)
    assert ended(way, batch)["status"] == "cancelled"


def test_streaming_is_refused_by_its_name(way: Way, tmp_path: Path) -> None:
    done = ended(way, way.create(way.upload(write(tmp_path, chat("a", "x", stream=True)))["id"]))
    assert done["status"] == "failed"
    assert [e["code"] for e in done["errors"]["data"]] == ["streaming_not_supported"]


def test_a_batch_has_24_hours_unless_it_says_otherwise(http: httpx.Client, way: Way, tmp_path: Path) -> None:
    batch = way.create(way.upload(write(tmp_path, chat("a", "window")))["id"])
    assert batch["completion_window"] == "24h"
    assert batch["expires_at"] - batch["created_at"] == 24 * 3600


def test_the_defaults_of_the_pools_are_those_of_the_guide(way: Way) -> None:
    pool = way.pool()
    assert pool.keys() >= {
        "intake_pool_size", "intake_pool_capacity", "scheduling_pool_active", "scheduling_pool_free",
        "scheduling_pool_capacity", "active_batches", "pool_mode",
    }  # fmt: skip
    assert (pool["intake_pool_capacity"], pool["scheduling_pool_capacity"]) == (1_000_000, 10_240)
    assert pool["pool_mode"] is True
    assert pool["scheduling_pool_active"] + pool["scheduling_pool_free"] == 10_240


def test_a_well_server_says_so(service: Served) -> None:
    answer = PLAIN(service.url).call("/health")
    assert (answer.status, json.loads(answer.body)) == (200, {"status": "healthy"})


def large(count: int) -> Iterator[bytes]:
    """A form that uploads a file of so many requests of about 100 KB, piece by piece."""
    head = 'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--cut\r\n'
    yield f'--cut\r\n{head}Content-Disposition: form-data; name="file"; filename="large.jsonl"\r\n\r\n'.encode()
    for number in range(count):
        yield json.dumps(chat(f"r-{number}", "word " * 20_000)).encode() + b"\n"
    yield b"\r\n--cut--\r\n"


def send(http: httpx.Client, form: Iterator[bytes]) -> None:
    answer = http.post("/v1/files", content=form, headers={"Content-Type": "multipart/form-data; boundary=cut"})
    assert answer.status_code == 200, answer.text


def test_health_is_answered_while_a_large_upload_comes_slowly(http: httpx.Client, service: Served) -> None:
    """The next piece is sent when the call has its answer: a server that reads first never gets that far."""
    with overnight.Client(service.url) as client:

        def asking() -> Iterator[bytes]:
            for number, piece in enumerate(large(200)):
                yield piece
                if number % 10 == 0:
                    assert client.health_check()

        send(http, asking())


def test_health_is_answered_while_a_large_upload_comes_fast(http: httpx.Client, service: Served) -> None:
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=service.url, trust_env=False) as other:
        upload = pool.submit(send, http, large(400))
        answers = []
        while not upload.done():
            answers.append(other.get("/health").status_code)
        upload.result()
    *meanwhile, _last = answers
    assert len(meanwhile) >= 5
    assert set(meanwhile) == {200}


def test_batches_of_several_callers_do_not_mix(service: Served, tmp_path: Path) -> None:
    def job(n: int) -> list[str]:
        folder = tmp_path / str(n)
        folder.mkdir()
        with overnight.Client(service.url) as client:
            client.submit_batch(
                write(folder, *(chat(f"{n}-{i}", f"caller {n} {i}") for i in range(20))), folder / "out"
            )
        return [json.loads(line)["custom_id"] for line in (folder / "out").read_text().splitlines()]

    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(job, range(4))):
            assert sorted(found) == sorted(f"{n}-{i}" for i in range(20))
