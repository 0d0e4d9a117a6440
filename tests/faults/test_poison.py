"""Deaths on deaths: of all workers at once, during a recovery, and of whoever runs one certain request."""

from __future__ import annotations

from pathlib import Path

from tests.faults import of_processes
from tests.faults.play import plays


async def test_all_workers_may_die_and_one_request_may_kill_whoever_runs_it(tmp_path: Path) -> None:
    await plays(tmp_path, [of_processes.kill_all_workers], [of_processes.poison], requests=(150, 200))
