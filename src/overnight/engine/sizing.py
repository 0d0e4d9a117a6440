"""How many threads, slots and tokens of context a local engine gets when nobody says."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from overnight.engine.cost import Cost

MOST_SLOTS = 16
SHORT_CONTEXT = 4_096
"""Tokens that a context has where nothing else is known."""
LEAST_CONTEXT = 512
CONTEXT_STEP = 256
"""The engine rounds the context of a slot up to a multiple of this."""
PARTS_OF_MEMORY = 2
"""Of what the weights leave, one such part is for contexts; the rest is for prompts kept beside them and all else."""
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


@dataclass(frozen=True, slots=True)
class Size:
    """What an engine gets: slots, and tokens of context for each."""

    slots: int
    context: int


def fit(cost: Cost, wanted: Size, memory: int | None, *, fix_slots: bool = False, fix_context: bool = False) -> Size:
    """What is wanted, or what fits into a share of so many bytes of memory.

    The engine takes the memory of all contexts at its start. Contexts are cut before slots, but not below
    `SHORT_CONTEXT` while slots can be spared. What is fixed was asked for, and stays. Without knowing the memory,
    contexts are short.
    """
    if memory is None:
        return wanted if fix_context else replace(wanted, context=min(wanted.context, SHORT_CONTEXT))
    share = cost.weights + max(0, memory - cost.weights) // PARTS_OF_MEMORY
    least = wanted.context if fix_context else min(wanted.context, SHORT_CONTEXT)
    slots = wanted.slots
    # Slots that keep nothing of a prompt cost nothing.
    while slots > 1 and cost.token and not fix_slots and cost.of(slots, least) > share:
        slots -= 1
    return Size(slots, wanted.context if fix_context else _longest(cost, slots, wanted.context, share))


def _longest(cost: Cost, slots: int, wanted: int, share: int) -> int:
    if cost.of(slots, wanted) <= share:
        return wanted
    fitting, beyond = 0, wanted // CONTEXT_STEP + 1
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        fits = cost.of(slots, middle * CONTEXT_STEP) <= share
        fitting, beyond = (middle, beyond) if fits else (fitting, middle)
    return min(wanted, max(LEAST_CONTEXT, fitting * CONTEXT_STEP))
