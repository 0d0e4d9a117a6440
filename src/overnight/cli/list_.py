"""`overnight list`: the batches of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from overnight.cli import output
from overnight.cli.connect import Json, Server, client


def list_(
    server: Server = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, newest first.")] = 20,
    json: Json = False,
) -> None:
    """List batches, newest first."""
    with client(server) as c:
        page = c.list_batches(limit=limit)
    if json:
        output.as_json(page)
        return
    if not page["data"]:
        output.say("No batches yet. Hand one over with `overnight submit FILE`.")
        return
    output.table(
        ("BATCH", "STATUS", "ANSWERED", "MODEL", "CREATED"),
        ((b["id"], b["status"], output.counts(b), b["model"], output.moment(b["created_at"])) for b in page["data"]),
        whole=2,
    )
    if page["has_more"]:
        output.say("There are more; see --limit.")
