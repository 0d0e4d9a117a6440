"""Tells on standard error how far a batch is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Watch: TypeAlias = Callable[[dict[str, Any]], None]
"""Hears of a batch each time it was looked at, the last time when it has ended."""


def watch(progress: bool | Watch) -> Watch:
    """What is to hear of a batch: the caller's own function, a line on standard error, or nobody."""
    if callable(progress):
        return progress
    return _Line() if progress else lambda batch: None


LONGEST_BAR = 30
SHORTEST_BAR = 5


class _Line:
    """A bar that is drawn over at a terminal; elsewhere a line, written again when something changed."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, batch: dict[str, Any]) -> None:
        # Other servers may not count before they have read the input.
        counts = {"total": 0, "completed": 0, "failed": 0, **(batch.get("request_counts") or {})}
        ended = batch["status"] in ENDED
        if sys.stderr.isatty():
            line = bar(batch["status"], counts, shutil.get_terminal_size().columns - 1)
        else:
            line = f"{batch['id']} {in_words(batch['status'], counts)}"
        if line == self._last and not ended:
            return
        if sys.stderr.isatty():
            if not self._last:
                sys.stderr.write(f"{batch['id']}\n")
            # Return to the start of the line, and clear what is longer of the one before.
            line_end = "\n" if ended else ""
            sys.stderr.write(f"\r{line}\x1b[K{line_end}")
        elif line != self._last:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()
        self._last = line


def in_words(status: str, counts: dict[str, int]) -> str:
    """How far a batch is, as a sentence without its end."""
    done = counts["completed"] + counts["failed"]
    line = f"{status}: {done:,} of {counts['total']:,} answered"
    return line + (f", {counts['failed']:,} of them with errors" if counts["failed"] else "")


def bar(status: str, counts: dict[str, int], columns: int) -> str:
    """How far a batch is, as a bar between status and counts, in at most so many columns."""
    done, total = counts["completed"] + counts["failed"], counts["total"]
    told = f"{done:,}/{total:,}" + (f", {counts['failed']:,} failed" if counts["failed"] else "")
    room = min(LONGEST_BAR, columns - len(status) - len(told) - 2)
    if room < SHORTEST_BAR:
        return f"{status} {told}"[: max(columns, 0)]
    full = room * done // total if total else 0
    return f"{status} {'█' * full}{'░' * (room - full)} {told}"


ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""The states that a batch does not leave."""
