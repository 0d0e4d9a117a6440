"""A process whose clock is off by an hour, and a database whose disk is full, lose and double nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import of_callers, of_model_servers, of_processes, of_the_database
from tests.faults.play import plays
from tests.faults.surroundings import shifted_clock, small_disk


async def test_a_clock_that_is_off_loses_and_doubles_nothing(tmp_path: Path) -> None:
    clock = shifted_clock(tmp_path, 3600)
    if clock is None:
        pytest.skip("the clock of one process is shifted by a library that takes Linux and a C compiler")
    faults = [of_processes.two_deaths_in_a_row, of_callers.let_expire]
    await plays(tmp_path, faults, requests=(100, 150), env={"b": clock})


async def test_a_full_disk_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("a disk that is small enough to be filled can be mounted by root only")
        faults = [of_the_database.fill_the_disk, of_callers.cancel, of_model_servers.flapping]
        await plays(tmp_path, faults, requests=(100, 150), disk=disk)
