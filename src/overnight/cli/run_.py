"""`overnight run`: a whole job in one command, continued where it was when it is given again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from overnight.cli import output
from overnight.cli.hosting import hosted
from overnight.cli.job import AGAIN, MARK, endpoint_of, mark_of, only_one
from overnight.cli.parameters import Endpoint, Parameters, Window, check_output, read_log_level, read_parameters
from overnight.cli.progress import Bars, bars
from overnight.cli.serve import run_loop, when_terminal_closes
from overnight.cli.show import problems
from overnight.client import AsyncClient
from overnight.client.errors import ConnectionFailed, ServerFault
from overnight.domain import events
from overnight.domain.errors import Unusable
from overnight.settings import Settings

if TYPE_CHECKING:
    from overnight.server import Server as Process

T = TypeVar("T")

FINAL = ("completed", "failed", "expired", "cancelled")
LOOK_EVERY = 0.5
LONGEST_AWAY = 60.0
"""Seconds without its server after which a run gives up; what was answered is kept."""
GRACE = 3.0
"""After Ctrl-C: what runs may take so long to finish, then it is left for the next time."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done, and how it is known again."""

    file: Path
    out: Path
    endpoint: str
    window: str
    defaults: dict[str, Any]
    mark: str
    again: bool
    overwrite: bool


@hosted
def run(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="JSONL, a request a line.")],
    out: Annotated[Path, typer.Option("--output", "-o", help="Where the results go: JSONL, a line for each request.")],
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            help="A server to use. (default: $OVERNIGHT_SERVER; else one is started)",
        ),
    ] = None,
    endpoint: Endpoint = None,
    window: Window = "168h",
    param: Parameters = None,
    again: Annotated[bool, typer.Option("--again", help="Run it all anew, whatever was answered before.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output file of other origin.")] = False,
    log_level: Annotated[str, typer.Option(help="What the started server logs.")] = "error",
    *,
    settings: Settings,
) -> None:
    """Run every request of a file and write the results, starting what is needed.

    Given again after any interruption it goes on where it was: nothing that was answered runs twice.
    Ends with 0 only if every request was answered.
    """
    check_output(out)
    if server is None and not settings.models and not settings.upstreams:
        server = os.environ.get("OVERNIGHT_SERVER") or None
    events.set_up_logging(read_log_level(log_level))
    named = endpoint or endpoint_of(file)
    defaults = read_parameters(param or [])
    job = Job(file, out, named, window, defaults, mark_of(file, out, named, defaults), again, overwrite)
    try:
        with only_one(settings.data_dir, job.mark):
            answered = run_loop(_run(job, server, replace(settings, port=0, grace_seconds=GRACE)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.say("Stopped. What was answered is kept: give the same command again to go on.")
        raise typer.Exit(130) from None
    raise typer.Exit(0 if answered else 1)


async def _run(job: Job, server: str | None, settings: Settings) -> bool:
    """Do the job; say whether every request was answered."""
    main = asyncio.current_task()
    assert main is not None
    for number in (signal.SIGTERM, *when_terminal_closes()):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel)
    with bars() as line:
        async with _reached(server, settings) as (client, process):
            try:
                batch = await _earlier(client, job)
                if job.again and batch is not None and (batch["status"] in FINAL or AGAIN not in batch["metadata"]):
                    batch = None
                new = batch is None or batch["status"] not in FINAL
                if batch is None or new:
                    batch = await _unless_engine_fails(process, _finish(client, process, job, batch, line))
            except asyncio.CancelledError:
                line.say("stopping")
                raise
            line.show(batch)
            # Even where nothing was left to run: the file may be missing, cut, or of an earlier job.
            await client.write_results(batch, job.out)
    return _tell(job, batch, new=new)


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
async def _reached(server: str | None, settings: Settings) -> AsyncIterator[tuple[AsyncClient, Process | None]]:
    """A client for the server that was named, or for one that is started here and stopped afterwards."""
    if server is not None:
        async with AsyncClient(server) as client:
            yield client, None
        return
    from overnight.server import Focus, running

    # It works on this job alone: other batches in the same database may be meant for other servers.
    async with running(settings, Focus(batch=0)) as process, AsyncClient(process.url) as client:
        yield client, process


async def _earlier(client: AsyncClient, job: Job) -> dict[str, Any] | None:
    """The batch that an earlier run of the same job made; refused ones don't count."""
    after = None
    while True:
        page = await client.list_batches(limit=100, q=job.mark, after=after)
        for batch in page["data"]:
            refused = batch["status"] == "failed" and not batch["request_counts"]["completed"]
            if (batch["metadata"] or {}).get(MARK) == job.mark and not refused:
                found: dict[str, Any] = batch
                return found
        if not page["has_more"]:
            return None
        after = page["last_id"]


async def _finish(
    client: AsyncClient, process: Process | None, job: Job, batch: dict[str, Any] | None, line: Bars
) -> dict[str, Any]:
    """Hand the job over, unless an earlier run did, and follow it to its end."""
    if batch is None:
        if job.out.exists() and not (job.overwrite or job.again):
            raise Unusable(
                f"{job.out} exists and is not of an earlier run of this job. Pass --overwrite to replace it."
            )
        line.say("handing over")
        stored = await client.upload_file(str(job.file))
        batch = await client.create_batch(
            input_file_id=stored["id"],
            endpoint=job.endpoint,
            completion_window=job.window,
            metadata={MARK: job.mark, "file": job.file.name[:512], **({AGAIN: "yes"} if job.again else {})},
            **job.defaults,
        )
    else:
        count = batch["request_counts"]
        output.say(
            f"Going on with {batch['id']}: {count['completed'] + count['failed']:,} of {count['total']:,} are done."
        )
    if process is not None:
        await process.care_for(batch["id"])
    while batch["status"] not in FINAL:
        waiting = process.why_waiting() if process is not None else None
        line.show(batch) if waiting is None else line.say(waiting)
        await asyncio.sleep(LOOK_EVERY)
        batch = await _look(client, batch, line)
    return batch


async def _look(client: AsyncClient, batch: dict[str, Any], line: Bars) -> dict[str, Any]:
    """The batch as it is now; a server that is away for a moment is waited for."""
    ends = monotonic() + LONGEST_AWAY
    while True:
        try:
            return await client.get_batch(batch["id"])
        except (ServerFault, ConnectionFailed):
            if monotonic() > ends:
                raise
            line.say("waiting for the server")
            await asyncio.sleep(LOOK_EVERY)


def _tell(job: Job, batch: dict[str, Any], *, new: bool) -> bool:
    """Say how it ended; return whether every request was answered."""
    count = batch["request_counts"]
    all_answered: bool = batch["status"] == "completed" and count["completed"] == count["total"]
    if batch["errors"]:
        output.complain(f"{job.file} was refused, and nothing of it has run. Correct it and give the command again.")
        problems(batch, to=output.aside)
    elif batch["status"] != "completed":
        why = (batch["error"] or {}).get("message") or f"The batch ended {batch['status']}."
        output.complain(f"{count['completed']:,} of {count['total']:,} requests were answered. {why}")
    elif not new:
        output.say("Nothing is left to do: every request of this job has been run. Pass --again to run it anew.")
    if batch["output_file_id"] or batch["error_file_id"]:
        failed = f", [red]{count['failed']:,} failed[/]" if count["failed"] else ""
        output.say(f"{count['completed']:,} of {count['total']:,} answered{failed}. The results are in {job.out}")
    return all_answered
