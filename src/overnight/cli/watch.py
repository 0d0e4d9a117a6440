"""`overnight watch`: follow a batch until it ends, or everything a server does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.live import Live

from overnight.cli import output
from overnight.cli.connect import THE_SERVER, Json, Server, client, read_id
from overnight.cli.follow import LONGEST_AWAY
from overnight.cli.overview import Overview, overview, snapshot
from overnight.cli.progress import bars, counts_of, displayed, stage_of
from overnight.cli.show import describe, errors_of, names_unknown_model, tell_models
from overnight.cli.silence import Silence
from overnight.client import Client
from overnight.client.errors import ConnectionFailed, ServerFault
from overnight.domain.states import FINAL

RESIZED_EVERY = 0.2
"""Seconds between two looks at the size of the terminal."""


def watch(
    batch: Annotated[
        str | None,
        typer.Argument(
            metavar="BATCH", help="Id of the batch to follow. (default: all, until Ctrl-C)", callback=read_id
        ),
    ] = None,
    server: Server = None,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="How often to look.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    json: Json = False,
) -> None:
    """Follow a batch until it ends, or, where none is named, all batches, the pools and the models of a server.

    A batch: ends with 0 if every request was answered, with 1 if not. With --json each look is one line.
    """
    silence = Silence(THE_SERVER)
    with client(server, silence=silence) as c:
        if batch is None:
            _watch_all(c, silence, every, once=once, json=json)
        else:
            _watch_one(c, silence, batch, every, once=once, json=json)


def _watch_one(c: Client, silence: Silence, batch: str, every: float, *, once: bool, json: bool) -> None:
    found = c.get_batch(batch)
    if json:
        output.as_line(found)
        while found["status"] not in FINAL and not once:
            time.sleep(every)
            found = _look_again(c, batch, every, lambda _: None)
            output.as_line(found)
    else:
        with bars() as line, silence.shown_by(line.say):
            line.show(counts_of(found), stage_of(found))
            while found["status"] not in FINAL and not once:
                time.sleep(every)
                found = _look_again(c, batch, every, line.say)
                line.show(counts_of(found), stage_of(found))
        describe(found)
        if names_unknown_model(errors_of(found)):
            tell_models(c.models())
        if found["output_file_id"] or found["error_file_id"]:
            output.say(f"Fetch the results with: overnight results {batch} -o results.jsonl")
    count = found["request_counts"]
    ended_well = found["status"] == "completed" and count["completed"] == count["total"]
    raise typer.Exit(0 if ended_well or (once and found["status"] not in FINAL) else 1)


def _look_again(c: Client, batch: str, every: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The batch as it is now; a server that is away for a while, as when it is started anew, is waited for."""
    ends = time.monotonic() + LONGEST_AWAY
    while True:
        try:
            return c.get_batch(batch)
        except (ConnectionFailed, ServerFault):
            if time.monotonic() > ends:
                raise
            say("waiting for the server")
            time.sleep(every)


def _watch_all(c: Client, silence: Silence, every: float, *, once: bool, json: bool) -> None:
    if json:
        while True:
            seen = snapshot(c)
            output.as_line(seen)
            if once:
                if seen["error"]:
                    raise ConnectionFailed(seen["error"])
                return
            time.sleep(every)
    if once or not output.people.is_terminal:
        overview(snapshot(c), to=output.people)
        return
    view = Overview(snapshot(c))
    live = Live(view, console=output.people, screen=True, auto_refresh=False)

    def show(says: str) -> None:
        view.missing = says
        live.refresh()

    with displayed(live), silence.shown_by(show):
        while True:
            _rest(every, view, live)
            view.seen = snapshot(c)
            live.refresh()


def _rest(seconds: float, view: Overview, live: Live) -> None:
    """Wait for so long, and draw anew where the terminal has got another size."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, RESIZED_EVERY))
        if live.console.size != view.size:
            live.refresh()
