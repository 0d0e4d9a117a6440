"""`overnight results`: fetch what a batch answered."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from overnight.cli import output
from overnight.cli.connect import BatchId, Server, client
from overnight.domain.errors import Unusable


def results(
    batch: BatchId,
    server: Server = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write. [default: standard output]")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors/--no-errors", help="Include requests without an answer.")] = True,
) -> None:
    """Write the results of a batch that has ended: one line per request, in the order they finished."""
    with client(server) as c:
        found = c.get_batch(batch)
        files = [found["output_file_id"], found["error_file_id"] if errors else None]
        named = [name for name in files if name]
        if found["status"] not in ("completed", "expired", "failed", "cancelled"):
            raise Unusable(f"{batch} is {found['status']} and has no result files yet. Wait: overnight watch {batch}")
        if not named:
            raise Unusable(f"{batch} ended {found['status']} and left no results. See: overnight show {batch}")
        if out is None:
            for name in named:
                sys.stdout.buffer.write(c.download_file_content(name))
        else:
            c.write_results(found, out, errors=errors)
            output.say(f"{output.counts(found)} written to {out}")
