"""All that a server does, on one screen: its health, queue and slots, models and batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from overnight.cli import output
from overnight.cli.progress import span, stage_of
from overnight.client import Client
from overnight.client.errors import ConnectionFailed, ServerFault
from overnight.domain.states import FINAL, Status
from overnight.domain.waiting import SAYS

UNFINISHED = tuple(str(status) for status in Status if status not in FINAL)
UNFINISHED_SHOWN = 100
ENDED_SHOWN = 20
BAR = 20
MODELS_SHOWN = 8
READY = "ready"
_ANY = Console(width=output.UNBOUNDED, emoji=False)
"""Only for measuring."""

Seen = dict[str, Any]


def snapshot(c: Client) -> Seen:
    """What a server does at this moment; `error` tells why it could not be asked."""
    seen: Seen = {"server": c.base_url, "at": int(time.time()), "error": None}
    try:
        seen["health"] = c.health()
        seen["pool"] = c.pool_status()
        seen["models"] = c.models()
        running = c.list_batches(limit=UNFINISHED_SHOWN, status=UNFINISHED)["data"]
        ended = c.list_batches(limit=ENDED_SHOWN, status=tuple(FINAL))["data"]
    except (ConnectionFailed, ServerFault) as e:
        seen["error"] = str(e)
    else:
        seen["batches"] = [*running, *ended]
    return seen


def overview(seen: Seen, *, to: Console) -> None:
    """Print a snapshot, as long as it is. Raises ConnectionFailed where the server could not be asked."""
    if seen["error"]:
        raise ConnectionFailed(seen["error"])
    if not to.is_terminal:
        to = Console(file=to.file, highlight=False, emoji=False, width=output.UNBOUNDED)
    for part in _head(seen):
        to.print(part, soft_wrap=True)
    to.print(_batches(seen["batches"], seen["at"], to.width))


class Overview:
    """A snapshot that fills the screen and no more; `seen` may be replaced by a later one."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._error = ""
        self.missing = ""
        """What is being waited for, in a few words, until something is seen."""
        self.size: ConsoleDimensions | None = None
        """The terminal for which it was drawn last."""

    @property
    def seen(self) -> Seen:
        """What is shown: the last that came, also while the server cannot be asked."""
        return self._seen

    @seen.setter
    def seen(self, later: Seen) -> None:
        self._error = later["error"] or ""
        self.missing = ""
        if not self._error:
            self._seen = later

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.size = console.size
        height = options.height or console.height
        parts: list[RenderableType] = []
        error = self._error or self._seen["error"]
        why = self.missing or (error and f"Cannot be reached, trying again. {error}")
        if why:
            parts.extend(Text(why, "red").wrap(console, options.max_width)[: height - 1])
        if "batches" in self._seen:
            parts.extend(_head(self._seen, is_away=bool(why)))
            batches = self._seen["batches"]
            room = max(height - len(parts) - 3, 1)
            parts.append(_batches(batches[:room], self._seen["at"], options.max_width))
            if len(batches) > room:
                parts.append(Text(f"… {len(batches) - room:,} more: overnight list", "dim"))
        yield from parts


def _head(seen: Seen, *, is_away: bool = False) -> Iterator[RenderableType]:
    health, pool = seen["health"], seen["pool"]
    well = (
        "[green]healthy[/]" if health["status"] == "healthy" else f"[red]{escape(health.get('reason', 'unhealthy'))}[/]"
    )
    well = "[red]as it was[/]" if is_away else well
    clock = datetime.fromtimestamp(seen["at"]).astimezone().strftime("%H:%M:%S")
    yield _line(f"[bold]{escape(seen['server'])}[/]  {well}  [dim]{clock}[/]")
    waited = pool.get("oldest_waiting_seconds")
    oldest = f", the oldest for {span(waited)}" if waited else ""
    yield _line(f"queue   {pool['intake_pool_size']:,} of {pool['intake_pool_capacity']:,} waiting{oldest}")
    yield _line(f"slots   {pool['scheduling_pool_active']:,} of {pool['scheduling_pool_capacity']:,} running")
    models = seen["models"]
    for n, model in enumerate(models[:MODELS_SHOWN]):
        yield _line(f"{'' if n else 'models':<8}{_model(model, seen['batches'], pool['scheduling_pool_active'])}")
    if len(models) > MODELS_SHOWN:
        yield _line(f"        … {len(models) - MODELS_SHOWN:,} more: overnight models")
    if not models:
        yield _line("models  none is served now")
    yield Text()


def _line(markup: str) -> Text:
    line = Text.from_markup(markup, emoji=False)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _model(model: dict[str, Any], batches: list[dict[str, Any]], active: int) -> str:
    state = state_of(model)
    colour = "green" if state == READY else "yellow"
    # What a batch says is the most that may be running of it: several say it of the same slots.
    running = sum((b.get("progress") or {}).get("running", 0) for b in batches if b.get("model") == model["id"])
    running = min(running, active)
    context = model.get("context_length")
    told = [f"[{colour}]{escape(state)}[/]"] if state else []
    told += [f"{running:,} running"] if running else []
    told += [f"{context:,} tokens"] if context else []
    return f"[bold]{escape(str(model['id']))}[/]  {', '.join(told)}"


def state_of(model: dict[str, Any]) -> str:
    """Whether requests to a model can start, and if not, why; empty where the server does not say."""
    if "waiting_for" not in model:
        return ""
    cause = model["waiting_for"]
    return READY if cause is None else SAYS.get(cause, str(cause))


def _batches(batches: list[dict[str, Any]], now: int, width: int) -> RenderableType:
    """The batches in as much detail as there is room for: with bars, with whole ids, or with the ends of ids."""
    if not batches:
        return Text("No batches yet. Hand one over with `overnight submit FILE`.", "dim")
    for bar, gap in ((BAR, 2), (0, 2), (0, 1)):
        table = _table(batches, now, bar=0 if width >= output.UNBOUNDED else bar, gap=gap)
        if Measurement.get(_ANY, _ANY.options, table).maximum <= width:
            return table
    return _table(batches, now, bar=0, gap=1, whole=False)


def _table(batches: list[dict[str, Any]], now: int, *, bar: int, gap: int, whole: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    table.add_column("BATCH", no_wrap=True)
    table.add_column("STATUS", no_wrap=True)
    if bar:
        table.add_column("", no_wrap=True, width=bar)
    table.add_column("ANSWERED", justify="right", no_wrap=True)
    table.add_column("FAILED", justify="right", no_wrap=True)
    table.add_column("LEFT", no_wrap=True)
    for batch in batches:
        count = batch["request_counts"]
        named = batch["id"] if whole else f"…{batch['id'][-8:]}"
        row: list[RenderableType] = [Text(named), Text(stage_of(batch, in_brief=True))]
        if bar:
            row.append(ProgressBar(count["total"] or 1, count["completed"] + count["failed"], width=bar))
        failed = Text(f"{count['failed']:,}", "red" if count["failed"] else "dim")
        table.add_row(*row, f"{count['completed']:,}/{count['total']:,}", failed, _left(batch, now))
    return table


def _left(batch: dict[str, Any], now: int) -> str:
    finish = (batch.get("progress") or {}).get("estimated_finish_at")
    return "" if finish is None else span(max(finish - now, 0))
