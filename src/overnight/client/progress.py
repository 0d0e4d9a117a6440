"""Tells on standard error how far a batch is."""

from __future__ import annotations

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


class _Line:
    """One line, written over at a terminal; elsewhere written again when something changed."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, batch: dict[str, Any]) -> None:
        counts = batch["request_counts"]
        done = counts["completed"] + counts["failed"]
        line = f"{batch['id']} {batch['status']}: {done:,} of {counts['total']:,} answered"
        if counts["failed"]:
            line += f", {counts['failed']:,} of them with errors"
        if line == self._last:
            return
        if sys.stderr.isatty():
            # Return to the start of the line, and clear what is longer of the one before.
            sys.stderr.write(f"\r{line}\x1b[K" + ("\n" if batch["status"] in ENDED else ""))
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()
        self._last = line


ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""The states that a batch does not leave."""
