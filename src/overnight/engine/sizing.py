"""How many threads, slots and tokens of context a local engine gets when nobody says."""

from __future__ import annotations

import os
from pathlib import Path

MOST_SLOTS = 16
LONGEST_CONTEXT = 4_096
LONGEST_EMBEDDING_CONTEXT = 2_048
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Cores this process may really use: its affinity, and a container's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota = CPU_QUOTA.read_text()
    except OSError:
        quota = ""
    return cores_within_quota(cores, quota)


def cores_within_quota(cores: int, quota: str) -> int:
    """The smaller of `cores` and a cgroup's quota, which is written `<microseconds> <of each>` or `max …`."""
    match quota.split():
        case [allowed, period] if allowed.isdigit() and period.isdigit() and int(period) > 0:
            return max(1, min(cores, int(allowed) // int(period)))
        case _:
            return max(1, cores)


def default_threads(cores: int) -> int:
    """One core is left to everything else.

    The engine's threads spin while they wait for each other. With as many threads as cores, any other busy
    process made decoding three to a hundred times slower (measured with llama.cpp on two cores).
    """
    return max(1, cores - 1)


def default_slots(cores: int) -> int:
    """Requests decoded together. Weights are read once for all of them, so two a core still pays on a CPU."""
    return max(1, min(MOST_SLOTS, 2 * cores))


def default_context(model_context: int | None, embedding: bool) -> int:
    """Tokens of one request's context, prompt and answer together.

    The engine takes memory for all slots' contexts at its start, so the model's own length is only used up
    to a limit; embedding models compute a whole input at once, which costs its length squared.
    """
    longest = LONGEST_EMBEDDING_CONTEXT if embedding else LONGEST_CONTEXT
    return min(model_context or longest, longest)
