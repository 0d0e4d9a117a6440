"""How running batches look in a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from overnight.cli.output import aside
from overnight.domain.waiting import SAYS

PACE_OVER = 30.0
"""Seconds over which the pace is measured."""
LONGEST_BAR = 30
SHORTEST_BAR = 8
_CLEAR_BELOW = Segment("\x1b[J", None, [(ControlType.CLEAR,)])
_TO_START = Segment("\r", None, [(ControlType.CARRIAGE_RETURN,)])
START = 12
"""Columns that are kept for what is being done, whatever else there is to tell."""


class Counts(NamedTuple):
    """How many requests there are and how many have ended, and the tokens that were written."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0


class Bars:
    """One line that tells done and total, failures, the time that is left and tokens a second, as far as they fit."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()
        self._spinner = Spinner("dots")
        self._stage = "starting"
        self._counts = Counts()
        self._pace = 0.0
        self._left = ""
        self.is_over = False

    def show(self, counts: Counts, stage: str) -> None:
        """Show how far it is."""
        self._counts, self._stage = counts, stage
        self._measure(counts.completed + counts.failed, counts)

    def say(self, stage: str) -> None:
        """Show what is being waited for."""
        self._stage = stage

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Where the cursor waits at the start, a terminal that was made narrower, and has broken the line into several,
        # has all of them from there on: nothing is left of them, and nothing above is touched.
        yield _CLEAR_BELOW
        for line in console.render_lines(self._drawn(options), options, pad=False)[:1]:
            yield from line
        yield _TO_START

    def _drawn(self, options: ConsoleOptions) -> Text | Table:
        ended = self._counts.completed + self._counts.failed
        start = Text.assemble(" " if self.is_over else str(self._spinner.render(monotonic())), " ", self._stage)
        if not self._counts.total:
            return _cut(start, options.max_width)
        told = Text(f"{ended:,}/{self._counts.total:,}")
        room = options.max_width - start.cell_len - 2 - SHORTEST_BAR
        for more in self._extras():
            if told.cell_len + 2 + more.cell_len <= room:
                told = Text.assemble(told, "  ", more)
        bar = min(LONGEST_BAR, options.max_width - start.cell_len - told.cell_len - 2)
        if bar < SHORTEST_BAR:
            # How far it is matters more than the end of a long reason.
            return _cut(
                Text.assemble(_cut(start, max(options.max_width - told.cell_len - 1, START)), " ", told),
                options.max_width,
            )
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(start, ProgressBar(self._counts.total, ended, width=bar), told)
        return line

    def _extras(self) -> Iterator[Text]:
        """What else is told where there is room, what matters most first."""
        if self._counts.failed:
            yield Text(f"{self._counts.failed:,} failed", "red")
        if self._left and not self.is_over:
            yield Text(self._left, "dim")
        if self._pace:
            yield Text(f"{self._pace:,.0f} tokens/s")

    def _measure(self, ended: int, counts: Counts) -> None:
        now = monotonic()
        self._seen.append((now, ended, counts.tokens))
        while now - self._seen[0][0] > PACE_OVER and len(self._seen) > 2:
            self._seen.popleft()
        since, ended_then, tokens_then = self._seen[0]
        if now - since < 1 or ended == ended_then:
            self._pace, self._left = 0.0, ""
            return
        waiting = counts.total - ended
        self._pace = (counts.tokens - tokens_then) / (now - since)
        self._left = f"{span(waiting * (now - since) / (ended - ended_then))} left" if waiting else ""


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def stage_of(batch: dict[str, Any], *, in_brief: bool = False) -> str:
    """What a batch does now, in a few words, or even fewer."""
    if batch.get("paused"):
        return f"paused ({batch['paused'].get('reason', '')})"
    status = str(batch["status"])
    cause = (batch.get("progress") or {}).get("waiting_for")
    if cause:
        return f"waiting: {cause.replace('_', ' ') if in_brief else SAYS.get(cause, cause)}"
    return {"validating": "checking", "in_progress": "running"}.get(status, status)


def counts_of(batch: dict[str, Any]) -> Counts:
    """The counts of a batch as the API describes it."""
    count = batch["request_counts"]
    return Counts(
        count["total"], count["completed"], count["failed"], (batch.get("usage") or {}).get("output_tokens", 0)
    )


def span(seconds: float) -> str:
    """A time in words that people use."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@contextmanager
def displayed(live: Live) -> Iterator[Live]:
    """Draw something while the block runs; then the terminal is as it was.

    Entering a `Live` itself leaves the cursor hidden where Ctrl-C comes while it is first drawn.
    """
    try:
        live.start(refresh=True)
        yield live
    finally:
        if live.console.is_alt_screen:
            # A terminal that has got another size since then would take lines of this screen over to the first.
            live.console.control(Control.clear(), Control.home())
        live.stop()


@contextmanager
def bars() -> Iterator[Bars]:
    """Show the line while the block runs; in a file or a pipe only its end is written."""
    line = Bars()
    try:
        with displayed(Live(line, console=aside, refresh_per_second=8)):
            try:
                yield line
            finally:
                line.is_over = True
    finally:
        if not aside.is_terminal:
            # There the end of the line is left open.
            aside.line()
