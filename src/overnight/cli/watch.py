"""`overnight watch`: follow a batch until it ends."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from overnight.cli import output
from overnight.cli.connect import BatchId, Server, client
from overnight.cli.progress import bars
from overnight.cli.show import describe

FINAL = ("completed", "failed", "expired", "cancelled")


def watch(
    batch: BatchId,
    server: Server = None,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="How often to look.")] = 1.0,
) -> None:
    """Follow a batch until it ends. Ends with 0 if every request was answered, else with 1."""
    with client(server) as c, bars() as line:
        found = c.get_batch(batch)
        line.show(found)
        while found["status"] not in FINAL:
            time.sleep(every)
            found = c.get_batch(batch)
            line.show(found)
    describe(found)
    if found["output_file_id"] or found["error_file_id"]:
        output.say(f"Fetch the results with: overnight results {batch} -o results.jsonl")
    count = found["request_counts"]
    raise typer.Exit(0 if found["status"] == "completed" and count["completed"] == count["total"] else 1)
