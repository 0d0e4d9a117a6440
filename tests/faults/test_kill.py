"""kill -9 of the server, Postgres or the engine in the middle of a batch: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process import Served, chat
from tests.tiny_model import write_tiny_model
from tests.witness import Witness

REQUESTS = 500


def questions() -> list[dict[str, Any]]:
    return [chat(f"r-{i}", f"question {i}") for i in range(REQUESTS)]


def check_whole(service: Served, batch: dict[str, Any], requests: int = REQUESTS) -> None:
    """Exactly one answer for each request, and counts that agree with the files."""
    good, bad = service.lines(batch["output_file_id"]), service.lines(batch["error_file_id"])
    ids = Counter(line["custom_id"] for line in [*good, *bad])
    assert batch["status"] == "completed"
    assert set(ids) == {f"r-{i}" for i in range(requests)}
    assert set(ids.values()) == {1}
    assert batch["request_counts"] == {"total": requests, "completed": len(good), "failed": len(bad)}
    assert bad == []


def check_sent(witness: Witness, in_flight: int) -> None:
    """Every request was sent, and more than once at most those that were in flight."""
    assert len(witness.seen) == REQUESTS
    assert max(witness.seen.values()) == 2
    assert sum(n == 2 for n in witness.seen.values()) <= in_flight


def told(service: Served, event: str) -> int:
    """How often its log tells of an event."""
    return service.log.read_text().count(f'"event_name": "{event}"')


def test_kill_9_of_the_server_runs_again_only_what_was_in_flight(tmp_path: Path) -> None:
    slots = 20
    with Witness(seconds=0.1, most=REQUESTS // 2) as witness:
        service = Served(tmp_path, "--upstream", witness.url, "--upstream-slots", str(slots))
        service.start()
        batch = service.submit(questions())
        witness.wait_for(REQUESTS // 2)

        service.kill()
        witness.answer_more()
        service.start()
        ended = service.wait(batch)

        # By its lock and not by its heartbeat, which takes ten seconds in which nothing of it would run.
        assert told(service, "worker_gone") == 1
        assert told(service, "worker_declared_dead") == 0

        check_whole(service, ended)
        # In flight, and answered within the 300 ms before their commit: at 0.1 s each that is three times the slots.
        check_sent(witness, in_flight=slots * 5)
        service.stop()


def test_sigterm_in_the_middle_finishes_what_runs_and_nothing_runs_twice(tmp_path: Path) -> None:
    with Witness(seconds=0.1) as witness:
        service = Served(tmp_path, "--upstream", witness.url, "--upstream-slots", "20")
        service.start()
        batch = service.submit(questions())
        witness.wait_for(REQUESTS // 2)

        assert service.stop() == 0
        service.start()
        ended = service.wait(batch)

        check_whole(service, ended)
        assert set(witness.seen.values()) == {1}
        service.stop()


def test_kill_9_of_postgres_loses_nothing_and_needs_no_restart(tmp_path: Path) -> None:
    with (
        Witness(seconds=0.1, most=REQUESTS // 2) as witness,
        Served(tmp_path, "--upstream", witness.url, "--upstream-slots", "20") as service,
    ):
        batch = service.submit(questions())
        witness.wait_for(REQUESTS // 2)

        kill_postgres(tmp_path)
        witness.answer_more()
        ended = service.wait(batch)

        check_whole(service, ended)
        assert sum(witness.seen.values()) - REQUESTS <= 100


def kill_postgres(folder: Path) -> None:
    """kill -9 of the postmaster that serves this folder."""
    number = int((folder / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[0])
    found = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])]
    postmasters = [p for p in found if "postgres" in Path((p.info["cmdline"] or [""])[0]).name]
    assert postmasters, f"no postmaster of {folder} among {[p.info['cmdline'] for p in found]} ({number})"
    for process in postmasters:
        process.kill()


def test_kill_9_of_the_engine_fails_no_request(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the engine is an extra that is not installed")
    model = write_tiny_model(tmp_path / "test-model.gguf")
    requests = REQUESTS
    with Served(tmp_path / "data", "--model", str(model)) as service:
        lines = [chat(f"r-{i}", f"question {i}", max_tokens=16) for i in range(requests)]
        batch = service.submit(lines)
        while service.get(f"/v1/batches/{batch}")["request_counts"]["completed"] < requests // 3:
            pass

        killed = kill_engine(service)
        ended = service.wait(batch)

        check_whole(service, ended, requests)
        assert killed == 1


def kill_engine(service: Served) -> int:
    """kill -9 of the engine's process."""
    assert service.process is not None
    children = psutil.Process(service.process.pid).children(recursive=True)
    engines = [c for c in children if any("llama_server" in part for part in c.cmdline())]
    for process in engines:
        os.kill(process.pid, signal.SIGKILL)
    return len(engines)
