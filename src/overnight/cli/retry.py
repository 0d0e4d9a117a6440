"""`overnight retry`: run again what a batch has left."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import BatchId, Json, Server, client


def retry(batch: BatchId, server: Server = None, json: Json = False) -> None:
    """Make a new batch of the requests that one which has ended left without a response."""
    with client(server) as c:
        found = c.retry_batch(batch)
    if json:
        output.as_json(found)
    else:
        output.answer(found["id"])
        output.say(f"It runs what {batch} has left. Follow it with: overnight watch {found['id']}")
