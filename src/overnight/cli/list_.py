"""`overnight list`: the batches of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from overnight.cli import output
from overnight.cli.connect import Json, Server, client
from overnight.domain.states import Status


def _read_status(given: str | None) -> str | None:
    if given is not None and given not in set(Status):
        raise typer.BadParameter(f"{given!r} is none of {', '.join(Status)}.")
    return given


def list_(
    server: Server = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, newest first.")] = 20,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="Only batches of this status.",
            autocompletion=lambda: list(Status),
            callback=_read_status,
        ),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option("--find", metavar="TEXT", help="Only batches whose id begins so, or whose metadata says so."),
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="BATCH", help="Go on after this batch.")] = None,
    json: Json = False,
) -> None:
    """List batches, newest first."""
    with client(server) as c:
        page = c.list_batches(limit=limit, after=after, status=status, q=find)
    if json:
        output.as_json(page)
        return
    if not page["data"]:
        if status or find or after:
            output.say("There are none of these.")
            return
        output.say("No batches yet. Hand one over with `overnight submit FILE`.")
        return
    output.table(
        ("BATCH", "STATUS", "ANSWERED", "MODEL", "CREATED"),
        ((b["id"], b["status"], output.counts(b), b["model"], output.moment(b["created_at"])) for b in page["data"]),
        whole=3,
        stacked=True,
    )
    if page["has_more"]:
        output.say(f"There are more: overnight list --after {page['last_id']}")
