"""How much memory there is, and whether the system ended processes for lack of it."""

from __future__ import annotations

import os
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


MACHINE = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that this machine or container could still give; None where the system does not say."""
    left = [bytes_ for bytes_ in (_of_machine(_read(MACHINE)), _of_container()) if bytes_ is not None]
    return min(left, default=_half_of_all())


def _of_machine(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return _number(value.split()[0], 1024)
    return None


def _of_container() -> int | None:
    """What its limit leaves. Pages of files that were not used lately are given back when they are needed."""
    limit = _number(_read(CONTAINER / "memory.max").strip())
    used = _number(_read(CONTAINER / "memory.current").strip())
    if limit is None or used is None:
        return None
    stats = dict(line.partition(" ")[::2] for line in _read(CONTAINER / "memory.stat").splitlines())
    return max(0, limit - used + (_number(stats.get("inactive_file", "")) or 0))


def _half_of_all() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError, AttributeError):
        return None


def _number(text: str, unit: int = 1) -> int | None:
    return int(text) * unit if text.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
