"""`overnight run`: a whole job in one command, continued where it was when it is given again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from overnight.cli import output
from overnight.cli.connect import THE_SERVER, Json, checked_address
from overnight.cli.follow import Course, Following, stage, total
from overnight.cli.full import told_when_full
from overnight.cli.gather import write_answers
from overnight.cli.hosting import given_options, hosted
from overnight.cli.inputs import STDOUT, Files, read_inputs
from overnight.cli.job import Job, only_one, tasks_of
from overnight.cli.origin import refuse_other_files
from overnight.cli.parameters import (
    Endpoint,
    LogLevel,
    Ordered,
    Parameters,
    Window,
    read_log_level,
    read_parameters,
    written_to,
)
from overnight.cli.progress import Bars, bars
from overnight.cli.repeats import refuse_repeats
from overnight.cli.serve import fetch_models_first, run_loop, when_terminal_closes
from overnight.cli.show import errors_of, names_unknown_model, tell_models
from overnight.cli.silence import THE_DATABASE, Silence
from overnight.cli.tell import as_json, tell
from overnight.client import AsyncClient
from overnight.domain import events
from overnight.settings import Settings

if TYPE_CHECKING:
    from overnight.server import Server as Process

T = TypeVar("T")

KEPT = "What was answered is kept: give the same command again when that is mended."
GRACE = 3.0
"""After Ctrl-C: what runs may take so long to finish, then it is left for the next time."""


Out = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE|DIR",
        help="Where the results go: JSONL, a line for each request. In a folder each input has its own file;"
        " - is standard output.",
    ),
]
OwnServer = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="A server to use. (default: $OVERNIGHT_SERVER; else one is started)"),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Run again what an earlier run left without a response.")
]
Again = Annotated[bool, typer.Option("--again", help="Run it all anew, whatever was answered before.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output file of other origin.")]


@hosted
def run(
    context: typer.Context,
    files: Files,
    out: Out,
    server: OwnServer = None,
    endpoint: Endpoint = None,
    window: Window = "168h",
    param: Parameters = None,
    ordered: Ordered = False,
    retry_failed: RetryFailed = False,
    again: Again = False,
    overwrite: Overwrite = False,
    json: Json = False,
    log_level: LogLevel = "error",
    *,
    settings: Settings,
) -> None:
    """Run every request of some files and write the results, starting what is needed.

    Given again after any interruption it goes on where it was: nothing that was answered runs twice.
    Files that an earlier run had not named are added, others are left as they are.
    Ends with 0 only if every request was answered.
    """
    printed = STDOUT if str(out) == STDOUT else None
    if again and retry_failed:
        raise typer.BadParameter("it says otherwise than --again: name one of them.", param_hint="--retry-failed")
    if printed and json:
        raise typer.BadParameter("standard output has room for --json or the results.", param_hint="--output")
    server = _named_server(server, settings, given_options(context, but=("data",)))
    events.set_up_logging(read_log_level(log_level))
    defaults = read_parameters(param or [])
    with read_inputs(files) as inputs, TemporaryDirectory(prefix="overnight-") as folder:
        out = Path(folder) / "answers.jsonl" if printed else out
        tasks = tasks_of(inputs, out, endpoint, defaults, printed)
        job = Job(tasks, window, defaults, again, overwrite, retry_failed, ordered, is_printed=printed is not None)
        refuse_repeats(job)
        refuse_other_files(job)
        courses = _carried_out(job, server, settings)
        if printed and out.exists():
            output.print_file(out)
    if json:
        output.as_json([as_json(course) for course in courses])
    raise typer.Exit(0 if all(course.all_answered for course in courses) else 1)


def _named_server(given: str | None, settings: Settings, own: Sequence[str]) -> str | None:
    """The server to use; None where one is to be started.

    Raises BadParameter for one that is named beside options of a server's `own`, and for what is no address.
    """
    otherwise = "leave --server out"
    if given is None and not settings.models and not settings.upstreams:
        given, otherwise = os.environ.get("OVERNIGHT_SERVER") or None, "unset $OVERNIGHT_SERVER"
    if given and own:
        raise typer.BadParameter(
            f"it is for a server that is started here; leave it out, or {otherwise}.", param_hint=own[0]
        )
    return checked_address(given) if given else None


def _carried_out(job: Job, server: str | None, settings: Settings) -> list[Course]:
    """Do the job while no other process does it; return how each task ended."""
    try:
        if server is None:
            fetch_models_first(settings)
        with only_one(settings.data_dir, job.tasks):
            return run_loop(_run(job, server, replace(settings, port=0, grace_seconds=GRACE)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.say("Stopped. What was answered is kept: give the same command again to go on.")
        raise typer.Exit(130) from None


async def _run(job: Job, server: str | None, settings: Settings) -> list[Course]:
    """Do the job; return how each task ended."""
    main = asyncio.current_task()
    assert main is not None
    for number in (signal.SIGTERM, *when_terminal_closes()):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel)
    with bars() as line:
        async with _reached(server, settings, line) as (client, process):
            try:
                courses = await _unless_engine_fails(process, Following(client, process, job, line).run())
            except asyncio.CancelledError:
                line.say("stopping")
                raise
            line.show(total(courses), stage(courses))
            written = set()
            # Even where nothing was left to run: the file may be missing, cut, or of an earlier job.
            for path, tasks in job.outputs.items():
                of_path = [course for course in courses if course.task in tasks]
                with written_to(path, else_do=KEPT):
                    found = await write_answers(client, of_path, path, ordered=job.ordered, overwrite=job.overwrite)
                if found:
                    written.add(path)
            unknown = any(names_unknown_model(errors_of(course.last)) for course in courses)
            models = await client.models() if unknown else None
    tell(job, courses, written)
    if models is not None:
        tell_models(models)
    return courses


async def _unless_engine_fails(process: Process | None, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, or raise Unusable as soon as the local engine turns out to be unable to start."""
    if process is None:
        return await work
    doing = asyncio.ensure_future(work)
    failing = asyncio.ensure_future(process.failed())
    try:
        await asyncio.wait([doing, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        return await doing
    finally:
        for one in (doing, failing):
            one.cancel()
        await asyncio.wait([doing, failing])


@asynccontextmanager
async def _reached(
    server: str | None, settings: Settings, line: Bars
) -> AsyncIterator[tuple[AsyncClient, Process | None]]:
    """A client for the server that was named, or for one that is started here and stopped afterwards."""
    silence = Silence(THE_SERVER if server is not None else THE_DATABASE)
    with silence.shown_by(line.say):
        if server is not None:
            with told_when_full():
                async with AsyncClient(server, on_silence=silence) as client:
                    yield client, None
            return
        from overnight.server import Focus, running

        async with AsyncExitStack() as stack:
            # It works on this job alone: other batches in the same database may be meant for other servers.
            async with silence.counted():
                process = await stack.enter_async_context(running(settings, Focus(batches=())))
            # What answers is this process itself, so that it is silent only where its database is.
            yield await stack.enter_async_context(AsyncClient(process.url, on_silence=silence)), process
