"""`overnight pause`: let a batch wait."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import BatchId, Json, Server, client


def pause(batch: BatchId, server: Server = None, json: Json = False) -> None:
    """Start nothing of a batch until it is resumed; what runs finishes."""
    with client(server) as c:
        found = c.pause_batch(batch)
    if json:
        output.as_json(found)
    else:
        output.answer(f"{found['id']} is paused ({output.counts(found)})")
