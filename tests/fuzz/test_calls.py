"""Calls made up from the OpenAPI document, against the served product: none finds a fault, and none leaves one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.fuzz.effort import SECONDS
from tests.process import ENDED, Served, chat
from tests.witness import Witness

CONFIG = Path(__file__).with_name("schemathesis.toml")
FEW: tuple[tuple[str, ...], ...] = (("--phases", "examples,fuzzing,stateful", "--max-examples", "4", "--seed", "1"),)
MANY: tuple[tuple[str, ...], ...] = tuple(
    ("--phases", phases, "--max-time", str(SECONDS)) for phases in ("examples,fuzzing,stateful", "coverage")
)
"""Runs by themselves, so that the many cases of `coverage` leave the others their time."""
FAULTS = ("request_failed", "round_failed")


def run_schemathesis(url: str, folder: Path, options: Sequence[str]) -> tuple[int, str]:
    """Make calls and hold the answers against the document; its exit code and what it says of failures."""
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", str(CONFIG), "run"]
    done = subprocess.run(
        [*command, f"{url}/openapi.json", *options],
        cwd=folder,
        # Files of the run stay in its folder, and a proxy of the machine is not asked for a loopback address.
        env={**os.environ, "NO_PROXY": "*"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300 + 2 * SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def events_of(served: Served) -> list[dict[str, Any]]:
    return [json.loads(line) for line in served.log.read_text("utf-8").splitlines() if line.startswith("{")]


def unfinished(http: httpx.Client) -> list[str]:
    """Ids of batches that have not ended."""
    states = [("status", state) for state in ("validating", "in_progress", "finalizing", "cancelling")]
    found = http.get("/v1/batches", params=[*states, ("limit", "100")])
    return [batch["id"] for batch in found.raise_for_status().json()["data"]]


def end_all(http: httpx.Client, within: float) -> None:
    """Cancel whatever was left behind, and see it end."""
    deadline = time.monotonic() + within
    while left := unfinished(http):
        assert time.monotonic() < deadline, left
        for batch in left:
            http.post(f"/v1/batches/{batch}/cancel").raise_for_status()
        time.sleep(0.05)


def test_calls_made_from_the_document_find_no_fault(tmp_path: Path, store_url: str) -> None:
    options = ("--database-url", store_url)
    with (
        Witness(lists_models=False) as witness,
        Served(tmp_path / "data", *options, "--upstream", witness.url) as served,
        httpx.Client(base_url=served.url, timeout=60) as http,
    ):
        done = served.submit([chat("a", "b"), chat("c", "[status 400]")])
        assert served.wait(done)["status"] in ENDED

        for asked in MANY if SECONDS else FEW:
            code, told = run_schemathesis(served.url, tmp_path, asked)
            assert code == 0, told
            made = re.search(r"(\d+) generated", told)
            assert made is not None, told
            assert int(made[1]) > 100

        assert [event for event in events_of(served) if event["event_name"] in FAULTS] == []
        assert http.get("/health").json() == {"status": "healthy"}
        end_all(http, within=60)
        assert http.get("/v1/pool/status").json()["intake_pool_size"] == 0
