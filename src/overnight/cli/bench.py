"""`overnight bench`: what this machine and its model servers do, through Overnight and without it."""

from __future__ import annotations

import asyncio
import json as json_
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from overnight.cli import output
from overnight.cli.bench_ready import Bench, Plan, ready
from overnight.cli.bench_report import Measured, report_as_json, tell
from overnight.cli.connect import Json, checked_address
from overnight.cli.hosting import hosted
from overnight.cli.measure import Side, Work, made_up
from overnight.cli.serve import fetch_models_first, run_loop
from overnight.domain import events
from overnight.domain.errors import Unusable
from overnight.settings import Settings

WARM_UP = 2
"""Times all slots that are asked before anything is measured."""
BATCH_AT_LEAST = 8
MOST_REQUESTS = 100_000


File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="JSONL, a request a line, to be asked instead of made-up requests."),
]
Running = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="A running server to measure, beside the --upstream that it uses. (default: one is started)",
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_REQUESTS, help="Of each side in a round. (default: what fits into the time)"),
]
Seconds = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="How long it may take, about.")]
Rounds = Annotated[int, typer.Option(min=1, max=100, help="How often both sides take turns.")]
Words = Annotated[int, typer.Option(min=1, max=100_000, help="Words of a made-up prompt.")]
Tokens = Annotated[int, typer.Option(min=1, max=100_000, help="Tokens of the answer to it.")]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="MODEL", help="Model that made-up requests name. (default: the first served)"),
]


def _bench(
    file: File = None,
    server: Running = None,
    requests: Requests = None,
    seconds: Seconds = 60.0,
    rounds: Rounds = 2,
    words: Words = 32,
    tokens: Tokens = 32,
    name: Name = None,
    json: Json = False,
    *,
    settings: Settings,
) -> None:
    """Measure what a batch gets through, beside a plain loop that keeps all slots of the same model server full.

    Starts a process of its own with a scratch database, unless a server is named, and leaves nothing behind.
    A batch is measured from its upload to its last stored answer.
    """
    if len(settings.models) + len(settings.upstreams) > 1:
        raise typer.BadParameter("One model server is measured at a time: name one.", param_hint="--model, --upstream")
    if server is not None and settings.models:
        raise typer.BadParameter("The server that is measured has its own models.", param_hint="--model")
    events.set_up_logging("error")
    plan = Plan(file, requests, seconds, rounds, words, tokens, name)
    if server is not None:
        checked_address(server)
    else:
        fetch_models_first(settings)
    try:
        found = run_loop(_measure(plan, server, settings))
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.say("Stopped. Nothing of it is left.")
        raise typer.Exit(130) from None
    if json:
        output.as_json(report_as_json(found))
    else:
        tell(found)


_bench.__name__ = "bench"
bench = hosted(_bench, without=("data", "database_url"))


async def _measure(plan: Plan, server: str | None, settings: Settings) -> Measured:
    with output.aside.status("starting") as status:
        async with ready(plan, server, settings) as bench:
            status.update("warming up")
            pace, source = await _warm_up(plan, bench)
            count = plan.requests or _what_fits(plan, bench, pace)
            batch, loop = Side("Overnight"), Side("asked directly") if bench.loop else None
            for no, side in _turns(plan.rounds, [side for side in (loop, batch) if side is not None]):
                status.update(f"round {no} of {plan.rounds}: {side.name}")
                # Those of a file come again in each round.
                bodies = list(islice(source if plan.file is None else _bodies(plan, bench), count))
                run = bench.loop.run if bench.loop and side is loop else bench.batches.run
                side.rounds.append(await run(Work(bench.url, bodies)))
    work = f"{plan.words} words in, {plan.tokens} tokens out" if plan.file is None else f"of {plan.file}"
    slots = bench.loop.slots if bench.loop else None
    return Measured(bench.model, bench.url, slots, work, len(bodies), batch, loop)


def _turns(rounds: int, sides: list[Side]) -> Iterator[tuple[int, Side]]:
    """Each side once in a round, and first as often as the other."""
    for no in range(rounds):
        for side in sides if no % 2 == 0 else reversed(sides):
            yield no + 1, side


def _bodies(plan: Plan, bench: Bench, more: dict[str, Any] | None = None) -> Iterator[bytes]:
    if plan.file is None:
        return made_up(bench.url, bench.model, plan.words, plan.tokens, more or {})
    return _bodies_of(plan.file, bench.url)


def _bodies_of(file: Path, url: str) -> Iterator[bytes]:
    with file.open("rb") as lines:
        for no, line in enumerate(lines, 1):
            if not line.strip(b"\xef\xbb\xbf \t\r\n"):
                continue
            try:
                request = json_.loads(line.decode("utf-8-sig"))
                body, named = request["body"], request["url"]
            except (ValueError, KeyError, TypeError):
                raise Unusable(f"Line {no} of {file} is no request: an object with custom_id, url, body.") from None
            if named != url:
                raise Unusable(f"Line {no} of {file} is for {named}; the lines before it are for {url}.")
            yield json_.dumps(body).encode()


async def _warm_up(plan: Plan, bench: Bench) -> tuple[float, Iterator[bytes]]:
    """Ask some requests; return how many a second were answered, and the bodies to go on with."""
    slots = bench.loop.slots if bench.loop else BATCH_AT_LEAST
    run = bench.loop.run if bench.loop else bench.batches.run
    # Where it is known, answers have the length that is asked for.
    source = _bodies(plan, bench, {"ignore_eos": True})
    try:
        await run(Work(bench.url, list(islice(source, slots))))
    except Unusable:
        if plan.file is not None:
            raise
        source = _bodies(plan, bench)
        await run(Work(bench.url, list(islice(source, slots))))
    if plan.requests is not None:
        return 0.0, source
    some = source if plan.file is None else _bodies(plan, bench)
    ran = await run(Work(bench.url, list(islice(some, WARM_UP * slots))))
    return ran.requests / ran.seconds, source


def _what_fits(plan: Plan, bench: Bench, pace: float) -> int:
    sides = 2 if bench.loop else 1
    least = WARM_UP * bench.loop.slots if bench.loop else BATCH_AT_LEAST
    return min(max(int(pace * plan.seconds / plan.rounds / sides), least), MOST_REQUESTS)
