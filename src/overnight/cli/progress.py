"""How a running batch looks in a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from overnight.cli.output import aside

PACE_OVER = 30.0
"""Seconds over which the pace is measured."""


class Bars:
    """One line that tells done and total, failures, tokens a second and the time that is left."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._seen: deque[tuple[float, int, int]] = deque()

    def show(self, batch: dict[str, Any]) -> None:
        """Show a batch as the API describes it."""
        count = batch["request_counts"]
        ended = count["completed"] + count["failed"]
        tokens = (batch.get("usage") or {}).get("output_tokens", 0)
        per_second, left = self._pace(ended, tokens, count["total"] - ended)
        self._progress.update(
            self._task,
            total=count["total"] or None,
            completed=ended,
            stage=_stage(batch),
            failed=f"[red]{count['failed']:,} failed[/]" if count["failed"] else "",
            tokens=f"{per_second:,.0f} tokens/s" if per_second else "",
            left=left,
        )

    def say(self, stage: str) -> None:
        """Show what is being waited for before there is a batch."""
        self._progress.update(self._task, stage=stage)

    def _pace(self, ended: int, tokens: int, waiting: int) -> tuple[float, str]:
        now = monotonic()
        self._seen.append((now, ended, tokens))
        while now - self._seen[0][0] > PACE_OVER and len(self._seen) > 2:
            self._seen.popleft()
        since, ended_then, tokens_then = self._seen[0]
        if now - since < 1 or ended == ended_then:
            return 0.0, ""
        seconds = waiting * (now - since) / (ended - ended_then)
        return (tokens - tokens_then) / (now - since), f"{_span(seconds)} left" if waiting else ""


def _stage(batch: dict[str, Any]) -> str:
    if batch.get("paused"):
        return f"paused ({batch['paused'].get('reason', '')})"
    status = str(batch["status"])
    return {"validating": "checking", "in_progress": "running"}.get(status, status)


def _span(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@contextmanager
def bars(*, hidden: bool = False) -> Iterator[Bars]:
    """Show the line while the block runs; in a file or a pipe only its end is written."""
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[stage]}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TextColumn("{task.fields[tokens]}"),
        TextColumn("[dim]{task.fields[left]}[/]"),
        console=aside,
        transient=False,
        disable=hidden,
        refresh_per_second=8,
    )
    with progress:
        task = progress.add_task("batch", total=None, stage="starting", failed="", tokens="", left="")
        yield Bars(progress, task)
