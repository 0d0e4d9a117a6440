"""What the figures should come to, in one place; benchmarks note here what they measured, for the summary."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

NOTES = "OVERNIGHT_BENCHMARK_NOTES"
"""The environment variable that names the file of the notes; without it they are only shown where they are made."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A figure is to be at most `limit`, or at least."""

    what: str
    limit: float
    unit: str
    is_most: bool = True

    def is_met(self, value: float) -> bool:
        """Whether a figure, as it is shown, keeps to the budget."""
        value = float(_digits(value, self.limit))
        return value <= self.limit if self.is_most else value >= self.limit

    def show(self, value: float) -> str:
        """A figure with as many digits as its budget calls for."""
        return f"{float(_digits(value, self.limit)):,g} {self.unit}".rstrip()

    @property
    def rule(self) -> str:
        """Such as `≤ 60 µs`."""
        sign = "0" if not self.limit else f"{'≤' if self.is_most else '≥'} {self.limit:,g}"
        return f"{sign} {self.unit}".rstrip()


BUDGETS = {
    "worker": Budget("worker CPU a request, 10,000 in flight", 60, "µs"),
    "postgres": Budget("PostgreSQL CPU a request, 10,000 in flight", 10, "µs"),
    "rate": Budget("requests a second, end to end, 10,000 in flight", 12_000, "/s", is_most=False),
    "mixed": Budget("… 1,000 batches of 200, against one batch", 0.8, "×", is_most=False),
    "wal": Budget("write-ahead log a request", 700, "B"),
    "memory": Budget("memory of the worker's process, 10,240 in flight", 200, "MiB"),
    "filled": Budget("slots filled, replies after 2–6 s, 10,240 slots", 99.5, "%", is_most=False),
    "growth": Budget("CPU a request, 1,000,000 against 1,000 requests", 1.1, "×"),
    "validate": Budget("validate and plan, CPU a line", 15, "µs"),
    "big": Budget("a file of 1 GiB, upload to running", 25, "s"),
    "big memory": Budget("… memory of the server", 200, "MiB"),
    "health": Budget("… `/health` meanwhile, p99", 50, "ms"),
    "create": Budget("create of 2 requests, p50", 3, "ms"),
    "get": Budget("get, p50, 1,000,000 requests", 1, "ms"),
    "cancel": Budget("cancel, p50, 1,000,000 requests", 3, "ms"),
    "page": Budget("results page of 100 anywhere, p50", 5, "ms"),
    "download": Budget("download of a result file, a second of CPU", 500, "MB", is_most=False),
    "range": Budget("64 KiB anywhere in a result file, p50", 3, "ms"),
    "takeover": Budget("kill -9 to its requests running elsewhere", 15, "s"),
    "lost": Budget("… answers lost", 0, ""),
    "again": Budget("… run again though their answers were stored", 0, ""),
    "processes": Budget("requests a second of 2 and 4 processes, against one", 0.8, "×", is_most=False),
    "cap reached": Budget("a cap over 1, 2 and 4 processes: filled", 95, "%", is_most=False),
    "cap exceeded": Budget("… requests above it", 0, ""),
    "interactive": Budget("a person's call beyond the model server's time, p50", 1, "ms"),
    "drift": Budget("drift of two owners' tokens, of what is stated", 1, "×"),
    "idle": Budget("CPU of an idle deployment, of a core", 1, "%"),
    "statements": Budget("… statements a second", 5, "/s"),
    "engine": Budget("tokens a second of the local engine, a batch against a plain loop", 0.98, "×", is_most=False),
    "file order": Budget("16 shared prompts, no host cache: ours against the file's order", 1.5, "×", is_most=False),
    "sorted": Budget("… against sorted order", 2.5, "×", is_most=False),
    "file order, kept": Budget("… the prompts kept by the engine: against the file's order", 1.5, "×", is_most=False),
    "sorted, kept": Budget("… against sorted order", 2.5, "×", is_most=False),
    "unrelated": Budget("unrelated prompts: ours against the file's order", 0.98, "×", is_most=False),
    "room": Budget("throughput of the number found, of the best fixed one (the worst seed)", 90, "%", is_most=False),
}


def note(name: str, value: float) -> str:
    """Note what was measured of a budget; what a table's column of budgets says of it."""
    budget = BUDGETS[name]
    if path := os.environ.get(NOTES):
        with Path(path).open("a") as notes:
            notes.write(json.dumps([name, value]) + "\n")
    return f"{budget.rule}: {verdict(name, value)}"


def verdict(name: str, value: float) -> str:
    """Whether a budget is met."""
    if math.isnan(value):
        return "not measured"
    return "met" if BUDGETS[name].is_met(value) else "missed"


def read_notes(path: Path) -> dict[str, float]:
    """What was noted; the worst figure where there are several of one budget."""
    found: dict[str, float] = {}
    for line in path.read_text().splitlines():
        name, value = json.loads(line)
        if name not in found or (value > found[name]) == BUDGETS[name].is_most:
            found[name] = value
    return found


def summary(found: dict[str, float]) -> Iterator[str]:
    """The table of all budgets, with what was measured beside them."""
    yield "| what | budget | measured | |"
    yield "|---|---|---|---|"
    for name, budget in BUDGETS.items():
        value = found.get(name, math.nan)
        shown = "–" if math.isnan(value) else budget.show(value)
        yield f"| {budget.what} | {budget.rule} | {shown} | {verdict(name, value)} |"


def column(cells: Iterable[str]) -> str:
    """Several verdicts in one cell."""
    return ", ".join(cell for cell in cells if cell)


def _digits(value: float, limit: float) -> str:
    if limit == 0 or limit >= 200:
        return f"{value:.0f}"
    return f"{value:.1f}" if limit >= 3 else f"{value:.2f}"
