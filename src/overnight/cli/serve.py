"""`overnight serve`: everything in one process, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from overnight.cli.hosting import hosted
from overnight.cli.parameters import LogLevel, read_log_level
from overnight.cli.silence import THE_DATABASE, Silence
from overnight.domain import events
from overnight.settings import DEFAULT_HOST, DEFAULT_PORT, Settings, parse_parts

if TYPE_CHECKING:
    from overnight.server import Server as Process

T = TypeVar("T")


@hosted
def serve(
    *,
    settings: Settings,
    host: Annotated[str, typer.Option(help="Address to answer on.")] = DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to answer on; 0 takes a free one.")] = DEFAULT_PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host name that callers may use, such as that of a proxy. Repeatable."),
    ] = None,
    parts: Annotated[
        str, typer.Option(help="What this process does: a list of api, worker, upkeep.")
    ] = "api,worker,upkeep",
    incremental_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where results appear as they come.")
    ] = None,
    grace: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Time for running requests, of batches and of people, at the end."),
    ] = 20.0,
    log_level: LogLevel = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log a JSON object a line.")] = False,
) -> None:
    """Serve the batch API, run requests on your models and keep batches moving, in one process."""
    events.set_up_logging(read_log_level(log_level), as_json=log_json)
    chosen = replace(
        settings,
        host=host,
        port=port,
        hosts=frozenset(name.lower() for name in allow_host or ()),
        parts=parse_parts(parts),
        incremental_dir=incremental_dir,
        grace_seconds=grace,
    )
    fetch_models_first(chosen)
    try:
        run_loop(_serve(chosen))
    except asyncio.CancelledError:
        raise typer.Exit(130) from None


def fetch_models_first(settings: Settings) -> None:
    """See `catalog.from_settings.fetch_models`, which takes too long to import for commands that start nothing."""
    from overnight.catalog.from_settings import fetch_models

    fetch_models(settings)


class Stop:
    """Hears the signals to stop: after the first, running requests may finish; the second ends them."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.server: Process | None = None
        """None while it starts: then the second signal breaks that off."""
        self._main = asyncio.current_task()

    def hear(self) -> None:
        """A signal came."""
        if not self.asked.is_set():
            self.asked.set()
            events.tell("stopping")
        elif self.server is None and self._main is not None:
            self._main.cancel()
        elif self.server is not None:
            self.server.hurry()


async def _serve(settings: Settings) -> None:
    from overnight.server import running

    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT, *when_terminal_closes()):
        asyncio.get_running_loop().add_signal_handler(number, stop.hear)
    async with AsyncExitStack() as stack:
        async with Silence(THE_DATABASE).counted():
            server = await stack.enter_async_context(running(settings))
        stop.server = server
        failing = asyncio.create_task(server.failed())  # cancelled below
        stopping = asyncio.create_task(stop.asked.wait())
        try:
            await asyncio.wait([failing, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            failing.cancel()
        if failing.done() and not failing.cancelled():
            failing.result()


def when_terminal_closes() -> tuple[signal.Signals, ...]:
    """The signal of a terminal that goes away; none under `nohup`, which asks to go on then."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on the fast event loop."""
    import uvloop

    return uvloop.run(work)
