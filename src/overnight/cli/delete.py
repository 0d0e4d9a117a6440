"""`overnight delete`: remove a batch."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import BatchId, Json, Server, client


def delete(batch: BatchId, server: Server = None, json: Json = False) -> None:
    """Delete a batch with its requests and results, for good; nothing of it may be running."""
    with client(server) as c:
        found = c.delete_batch(batch)
    if json:
        output.as_json(found)
    else:
        output.answer(f"{found['id']} is deleted")
