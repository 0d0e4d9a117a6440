"""What users of a batch server in front of one model were promised of its queue, its slots and its crashes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import overnight
from overnight.client import TooManyRequests
from tests.acceptance.test_guide_a import parsed, write
from tests.acceptance.ways import CHAT, Body
from tests.process import Served, chat
from tests.witness import Witness

CAPACITY = 1_000
SLOTS = 4


@pytest.fixture(scope="module")
def service(witness: Witness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    flags = ("--max-intake-capacity", str(CAPACITY), "--max-pool-size", str(SLOTS))
    with Served(tmp_path_factory.mktemp("service"), "--upstream", witness.url, *flags) as served:
        yield served


@pytest.fixture
def client(service: Served) -> Iterator[overnight.Client]:
    with overnight.Client(service.url) as made:
        yield made


def uploaded(client: overnight.Client, folder: Path, count: int, text: str = "[slow 1] pool") -> str:
    """The id of a file of so many requests."""
    return str(client.upload_file(write(folder, *(chat(f"r-{i}", f"{text} {i}") for i in range(count))))["id"])


@pytest.fixture
def held(client: overnight.Client, tmp_path: Path) -> Iterator[Body]:
    """A batch that takes most of the room, until it is cancelled."""
    batch = client.create_batch(uploaded(client, tmp_path, 850))
    while client.get_batch(batch["id"])["status"] == "validating":
        time.sleep(0.02)
    yield batch
    client.cancel_batch(batch["id"])
    with pytest.raises(overnight.client.BatchFailed):
        client.wait_for_batch(batch["id"], poll_interval=0.2)


def no_waiting(client: overnight.Client, waits: list[float], meanwhile: Any = None) -> None:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if meanwhile is not None and len(waits) == 1:
            meanwhile()

    client._calls._edge.sleep = sleep  # type: ignore[method-assign]


def test_pool_status_tells_what_waits_what_runs_and_what_is_free(
    service: Served, client: overnight.Client, held: Body
) -> None:
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        deadline = time.monotonic() + 30
        while (pool := http.get("/v1/pool/status").json())["scheduling_pool_active"] < SLOTS:
            assert time.monotonic() < deadline, pool
            time.sleep(0.05)
    assert (pool["intake_pool_capacity"], pool["scheduling_pool_capacity"]) == (CAPACITY, SLOTS)
    assert (pool["scheduling_pool_active"], pool["scheduling_pool_free"]) == (SLOTS, 0)
    assert 0 < pool["intake_pool_size"] < 850
    assert (pool["active_batches"], pool["pool_mode"]) == (1, True)
    assert client.pool_status().keys() == pool.keys()


def test_a_batch_that_finds_no_room_is_refused_with_429_and_when_to_come_again(
    service: Served, client: overnight.Client, held: Body, tmp_path: Path
) -> None:
    file = uploaded(client, tmp_path, 400)
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        before = http.get("/v1/pool/status").json()["intake_pool_size"]
        for _ in range(3):
            refused = http.post("/v1/batches", json={"input_file_id": file, "endpoint": CHAT})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
            assert refused.json()["error"]["code"] == "capacity_exceeded"
        pool = http.get("/v1/pool/status").json()
    assert pool["intake_pool_size"] <= before, "a refused batch was counted"
    assert pool["active_batches"] == 1


def test_the_client_waits_as_long_as_it_is_told_and_is_let_in_when_there_is_room(
    client: overnight.Client, held: Body, tmp_path: Path
) -> None:
    file = uploaded(client, tmp_path, 400, "let in")
    waits: list[float] = []

    def make_room() -> None:
        with overnight.Client(client.base_url) as other:
            other.cancel_batch(held["id"])
            with pytest.raises(overnight.client.BatchFailed):
                other.wait_for_batch(held["id"], poll_interval=0.1)

    no_waiting(client, waits, make_room)
    batch = client.create_batch(file)
    assert waits == [30]
    with overnight.Client(client.base_url) as other:
        assert other.wait_for_batch(batch["id"])["request_counts"]["completed"] == 400


def test_after_five_retries_the_client_raises_a_runtime_error(
    client: overnight.Client, held: Body, tmp_path: Path
) -> None:
    file = uploaded(client, tmp_path, 400)
    waits: list[float] = []
    no_waiting(client, waits)
    with pytest.raises(RuntimeError) as raised:
        client.create_batch(file)
    assert isinstance(raised.value, TooManyRequests)
    assert (raised.value.status, raised.value.code, waits) == (429, "capacity_exceeded", [30] * 5)


def test_a_small_batch_still_gets_in_when_the_queue_is_nearly_full(
    client: overnight.Client, held: Body, tmp_path: Path
) -> None:
    second = client.create_batch(uploaded(client, tmp_path, 50, "[slow 1] nearly full"))
    small = client.create_batch(uploaded(client, tmp_path, 5, "small one"))
    for batch in (second, small):
        client.cancel_batch(batch["id"])


def test_a_failed_batch_gives_its_room_back(client: overnight.Client, tmp_path: Path) -> None:
    for _ in range(3):
        lines = [chat(f"r-{i}", "x", model="unknown-model") for i in range(700)]
        batch = client.create_batch(client.upload_file(write(tmp_path, *lines))["id"])
        with pytest.raises(overnight.client.BatchFailed):
            client.wait_for_batch(batch["id"], poll_interval=0.1)
    assert client.pool_status()["intake_pool_size"] == 0


def test_results_outlive_a_crash_and_a_restart_keeps_no_file_from_running(tmp_path: Path) -> None:
    with Witness(seconds=0.2) as upstream:
        service = Served(tmp_path / "served", "--upstream", upstream.url, "--upstream-slots", "5")
        with service, overnight.Client(service.url) as client:
            batch = client.create_batch(uploaded(client, tmp_path, 40, "crash"))["id"]
            path = service.folder / "incremental" / f"{batch}.jsonl"
            upstream.wait_for(20)
            while not path.exists() or not path.read_bytes():
                time.sleep(0.02)
            service.kill()
            there = path.read_bytes()
            service.start()
            with overnight.Client(service.url) as again:
                answered = list(again.results(batch))
                assert again.submit_batch(write(tmp_path, chat("a", "crash 0")))["status"] == "completed"
    kept = parsed(there[: there.rfind(b"\n") + 1])
    assert kept
    assert kept.keys() <= {result["custom_id"] for result in answered if result["status"] == "completed"}
    assert path.read_bytes().startswith(there), "what was written stays as it was"
