"""What users of a batch server in front of one model were promised of a crash: here server and database are killed.

One crash for all of it, in the middle of a batch; each test looks at something else that was left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import overnight
from tests.acceptance.test_guide_a import parsed, write
from tests.acceptance.ways import WAYS, Body, Way, ended
from tests.faults.test_kill import kill_postgres
from tests.process import Served, chat
from tests.witness import Witness

REQUESTS = 120
SLOTS = 5
NEVER = 1e9


@dataclass
class Crash:
    """What was there before it, and what the pool showed after it."""

    service: Served
    file: str
    batch: str
    counted: int
    """Requests that a call had shown to be completed."""
    tailed: bytes
    """The incremental file as it was."""
    first: Body
    held: Body
    """The pool at once after the restart, and when the same slots were full again."""
    left: int
    """Requests without an answer meanwhile."""

    @property
    def incremental(self) -> Path:
        return self.service.folder / "incremental" / f"{self.batch}.jsonl"


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crash]:
    folder = tmp_path_factory.mktemp("crash")
    with Witness(seconds=0.1, most=REQUESTS // 2) as upstream:
        service = Served(folder / "served", "--upstream", upstream.url, "--max-pool-size", str(SLOTS))
        with service, overnight.Client(service.url) as client:
            file = client.upload_file(write(folder, *(chat(f"r-{i}", f"crash {i}") for i in range(REQUESTS))))["id"]
            batch = client.create_batch(file)["id"]
            path = service.folder / "incremental" / f"{batch}.jsonl"
            while not path.exists() or not path.read_bytes():
                time.sleep(0.02)
            while (counted := client.get_batch(batch)["request_counts"]["completed"]) < REQUESTS // 6:
                pass
            service.kill()
            kill_postgres(service.folder)
            tailed = path.read_bytes()
            upstream.seconds = NEVER
            service.start()
            first, held, left = after_restart(service, batch)
            upstream.go_on()
            yield Crash(service, file, batch, counted, tailed, first, held, left)


def after_restart(service: Served, batch: str) -> tuple[Body, Body, int]:
    """The pool at once, and when all slots are full without the dead process; and what is left to be answered."""
    with overnight.Client(service.url) as client:
        first = client.pool_status()
        deadline = time.monotonic() + 180
        while not is_full(pool := client.pool_status()):
            assert time.monotonic() < deadline, pool
            time.sleep(0.1)
        counts = client.get_batch(batch)["request_counts"]
        return first, pool, counts["total"] - counts["completed"]


def is_full(pool: Body) -> bool:
    """Whether the slots of one process, and of no other, are all taken."""
    return (pool["scheduling_pool_active"], pool["scheduling_pool_capacity"]) == (SLOTS, SLOTS)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, crash: Crash) -> Iterator[Way]:
    made = WAYS[request.param](crash.service.url)
    yield made
    made.close()


def test_after_a_crash_the_pool_is_exact(crash: Crash) -> None:
    assert crash.first["intake_pool_size"] + crash.first["scheduling_pool_active"] == crash.left
    assert (crash.held["scheduling_pool_active"], crash.held["scheduling_pool_free"]) == (SLOTS, 0)
    assert crash.held["intake_pool_size"] == crash.left - SLOTS
    assert crash.held["active_batches"] == 1


def test_what_was_counted_before_a_crash_is_there_after_it(crash: Crash, way: Way) -> None:
    assert REQUESTS - crash.left >= crash.counted > 0
    done = ended(way, way.get(crash.batch))
    assert done["request_counts"] == {"total": REQUESTS, "completed": REQUESTS, "failed": 0}
    assert parsed(way.content(done["output_file_id"])).keys() == {f"r-{i}" for i in range(REQUESTS)}


def test_the_incremental_file_outlives_a_crash_and_is_the_output_file_in_the_end(crash: Crash, way: Way) -> None:
    content = way.content(ended(way, way.get(crash.batch))["output_file_id"])
    deadline = time.monotonic() + 180
    while crash.incremental.read_bytes() != content and time.monotonic() < deadline:
        time.sleep(0.05)
    assert crash.incremental.read_bytes() == content
    whole = crash.tailed[: crash.tailed.rfind(b"\n") + 1]
    assert whole
    assert content.startswith(whole), "what was written stays as it was"


def test_a_restart_in_the_middle_keeps_no_file_from_running_again(crash: Crash, way: Way) -> None:
    ended(way, way.get(crash.batch))
    again = way.create(crash.file)
    assert again["id"] != crash.batch
    assert ended(way, again)["request_counts"] == {"total": REQUESTS, "completed": REQUESTS, "failed": 0}
    assert way.pool()["intake_pool_size"] == 0
