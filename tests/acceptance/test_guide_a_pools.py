"""What users of a batch server in front of one model were promised of its queue, its slots and its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import overnight
from overnight.client import TooManyRequests
from tests.acceptance.test_guide_a import parsed, write
from tests.acceptance.ways import WAYS, Body, Way, ended
from tests.client.scripted import refusal, scripted
from tests.process import Served, chat
from tests.witness import Witness

CAPACITY = 1_000
SLOTS = 4
LATE = 200


@pytest.fixture(scope="module")
def service(witness: Witness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    flags = ("--max-intake-capacity", str(CAPACITY), "--max-pool-size", str(SLOTS))
    with Served(tmp_path_factory.mktemp("service"), "--upstream", witness.url, *flags) as served:
        yield served


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, service: Served) -> Iterator[Way]:
    made = WAYS[request.param](service.url)
    yield made
    made.close()


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


def noting(waits: list[float], meanwhile: Any = None) -> Callable[[float], Coroutine[Any, Any, None]]:
    """A sleep that does not, and does something else the first time."""

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if meanwhile is not None and len(waits) == 1:
            meanwhile()

    return sleep


def no_waiting(client: overnight.Client, waits: list[float], meanwhile: Any = None) -> None:
    client._calls._edge.sleep = noting(waits, meanwhile)  # type: ignore[assignment, method-assign]


def test_pool_status_tells_what_waits_what_runs_and_what_is_free(way: Way, held: Body) -> None:
    deadline = time.monotonic() + 180
    # A heartbeat of before may tell of requests of another test that were running still.
    while (pool := way.pool())["scheduling_pool_active"] < SLOTS or pool["intake_pool_size"] == 850:
        assert time.monotonic() < deadline, pool
        time.sleep(0.05)
    assert (pool["intake_pool_capacity"], pool["scheduling_pool_capacity"]) == (CAPACITY, SLOTS)
    assert (pool["scheduling_pool_active"], pool["scheduling_pool_free"]) == (SLOTS, 0)
    assert 0 < pool["intake_pool_size"] < 850
    assert (pool["active_batches"], pool["pool_mode"]) == (1, True)
    assert pool["oldest_waiting_seconds"] > 0


def test_a_batch_that_finds_no_room_is_refused_with_429_and_let_in_when_room_is_given_back(
    client: overnight.Client, way: Way, held: Body, tmp_path: Path
) -> None:
    file = uploaded(client, tmp_path, 400)
    before = way.pool()["intake_pool_size"]
    refused = way.refusal(lambda: way.create(file))
    assert refused[:2] == (429, "capacity_exceeded")
    assert refused.retry_after == "30"
    pool = way.pool()
    assert pool["intake_pool_size"] <= before + SLOTS, "a refused batch was counted"
    assert pool["active_batches"] == 1

    assert ended(way, way.cancel(held["id"]))["status"] == "cancelled"
    batch = way.create(file)
    assert way.pool()["intake_pool_size"] + SLOTS >= 400
    assert ended(way, way.cancel(batch["id"]))["status"] == "cancelled"


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


def test_without_a_retry_after_the_client_waits_1_2_4_8_and_16_seconds() -> None:
    async def five_retries() -> list[float]:
        waits: list[float] = []
        full = [refusal(429, "capacity_exceeded")] * 6
        async with scripted(*full) as server, overnight.AsyncClient(server.url) as client:
            client._edge.sleep = noting(waits)  # type: ignore[assignment, method-assign]
            with pytest.raises(RuntimeError):
                await client.create_batch("file-abc123")
        return waits

    assert asyncio.run(five_retries()) == [1, 2, 4, 8, 16]


def test_a_failed_batch_gives_its_room_back(way: Way, tmp_path: Path) -> None:
    for _ in range(2):
        lines = [chat(f"r-{i}", "x", model="unknown-model") for i in range(700)]
        failed = ended(way, way.create(way.upload(write(tmp_path, *lines))["id"]))
        assert failed["status"] == "failed"
    assert way.pool()["intake_pool_size"] == 0


def test_a_batch_that_ran_out_of_time_has_its_reason_and_keeps_what_was_completed(
    service: Served, client: overnight.Client, tmp_path: Path
) -> None:
    ways = [make(service.url) for make in WAYS.values()]
    batches = [way.create(uploaded(client, tmp_path, LATE, "[slow 0.1] late")) for way in ways]
    while not all(
        way.get(batch["id"])["request_counts"]["completed"] for way, batch in zip(ways, batches, strict=True)
    ):
        time.sleep(0.05)
    service.sql("UPDATE batch SET expires_at = now() WHERE ended_at IS NULL")
    for way, batch in zip(ways, batches, strict=True):
        done = ended(way, batch)
        counts = done["request_counts"]
        assert (done["status"], done["error"]["code"]) == ("expired", "batch_expired")
        assert f"before {counts['failed']} of its {LATE} requests had a response" in done["error"]["message"]
        assert counts["completed"] > 0
        kept, left = (parsed(way.content(done[file])) for file in ("output_file_id", "error_file_id"))
        assert (len(kept), len(left)) == (counts["completed"], counts["failed"])
        assert {line["error"]["code"] for line in left.values()} == {"batch_expired"}
        assert kept.keys() | left.keys() == {f"r-{i}" for i in range(LATE)}
        way.close()
