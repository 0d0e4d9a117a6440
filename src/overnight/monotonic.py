"""A clock that never goes back, and that goes on while the machine is suspended."""

from __future__ import annotations

import time

# `time.monotonic` stands still while a laptop sleeps or a virtual machine is suspended, on Linux and on macOS. Others
# count on: they take the worker for dead, and windows close. On Linux this clock has a name of its own; on macOS it is
# the one that is called monotonic by the system.
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic() -> float:
    """Seconds since some moment that is the same for the whole process."""
    return time.clock_gettime(_CLOCK)
