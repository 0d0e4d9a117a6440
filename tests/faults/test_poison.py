"""One request kills whoever runs it, each time, until it is found out."""

from __future__ import annotations

from pathlib import Path

from tests.faults import of_processes
from tests.faults.play import plays


async def test_a_request_that_kills_whoever_runs_it_fails_and_it_alone(tmp_path: Path) -> None:
    await plays(tmp_path, [of_processes.poison], requests=(100, 150))
