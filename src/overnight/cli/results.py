"""`overnight results`: fetch what a batch answered."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from overnight.cli import output
from overnight.cli.connect import WORKED_WITHIN, BatchId, Json, Server, client
from overnight.cli.parameters import Ordered, check_results, written_to
from overnight.domain.errors import Unusable


def results(
    batch: BatchId,
    server: Server = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write. (default: standard output)")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors/--no-errors", help="Include requests without an answer.")] = True,
    ordered: Ordered = False,
    json: Json = False,
) -> None:
    """Write the results of a batch that has ended: a line for each request.

    With --json it prints what was written where; that needs --output.
    """
    check_results(out, json=json)
    with client(server, within=WORKED_WITHIN) as c:
        found = c.get_batch(batch)
        if found["status"] not in ("completed", "expired", "failed", "cancelled"):
            raise Unusable(f"{batch} is {found['status']} and has no result files yet. Wait: overnight watch {batch}")
        with TemporaryDirectory() as folder:
            path = out or Path(folder) / "results.jsonl"
            with written_to(path):
                is_any = c.write_results(found, path, errors=errors, ordered=ordered)
            if not is_any:
                raise Unusable(f"{batch} ended {found['status']} and left no results. See: overnight show {batch}")
            if out is None:
                output.print_file(path)
            elif json:
                counts = found["request_counts"]
                output.as_json({"batch": batch, "status": found["status"], "output": str(out), **counts})
            else:
                output.say(f"{output.counts(found)} written to {out}")
