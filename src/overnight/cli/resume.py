"""`overnight resume`: let a batch go on."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import BatchId, Json, Server, client


def resume(batch: BatchId, server: Server = None, json: Json = False) -> None:
    """Go on with a batch that was paused."""
    with client(server) as c:
        found = c.resume_batch(batch)
    if json:
        output.as_json(found)
    else:
        output.answer(f"{found['id']} goes on ({output.counts(found)})")
