"""Whether the system ended processes for lack of memory."""

from __future__ import annotations

from pathlib import Path

COUNTS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))
"""Those of a container, and those of the machine."""


def kills_for_memory() -> int | None:
    """How many there were so far; None where the system does not say."""
    for path in COUNTS:
        try:
            counts = dict(line.split() for line in path.read_text().splitlines())
            return int(counts["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return None
