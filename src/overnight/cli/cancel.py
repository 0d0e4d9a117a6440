"""`overnight cancel`: stop a batch."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import BatchId, Json, Server, client


def cancel(batch: BatchId, server: Server = None, json: Json = False) -> None:
    """Stop a batch: what has not started never will, what runs finishes and keeps its results."""
    with client(server) as c:
        found = c.cancel_batch(batch)
    if json:
        output.as_json(found)
    else:
        output.answer(f"{found['id']} is {found['status']} ({output.counts(found)})")
