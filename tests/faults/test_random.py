"""Faults at random moments of real processes: afterwards every request has one answer, and nothing ran without need.

`OVERNIGHT_FAULTS_SEED=… pytest tests/faults/test_random.py` repeats what failed, as far as the machine's own timing
lets it. `make soak` plays all faults, in all mixtures, for an hour.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults import of_callers, of_model_servers, of_processes, of_the_database
from tests.faults.play import plays


async def test_workers_that_are_killed_and_frozen_lose_and_double_nothing(tmp_path: Path) -> None:
    await plays(
        tmp_path,
        [of_processes.kill_all_workers, of_callers.cancel, of_callers.hand_over_bad_requests],
        [of_processes.freeze, of_callers.delete, of_callers.pause_and_resume, of_callers.claim_at_once],
        requests=(150, 250),
        cap=24,
    )


async def test_a_database_that_dies_or_is_out_of_reach_loses_and_doubles_nothing(tmp_path: Path) -> None:
    await plays(
        tmp_path,
        [of_the_database.kill_postgres, of_callers.hang_up_in_create],
        [
            of_the_database.cut_for_10_s,
            of_callers.lose_the_commit,
            of_callers.let_expire,
            of_model_servers.garbage,
        ],
        requests=(150, 250),
    )
