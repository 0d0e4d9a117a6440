"""Lets time pass by the clock that the rules of a worker go by."""

from __future__ import annotations

import time

import pytest

GOES_ON = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """So many seconds pass at once, as for a suspended machine: clocks that stand still then show none of it."""
    read = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read(clock) + (seconds if clock == GOES_ON else 0.0))
