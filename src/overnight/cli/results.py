"""`overnight results`: fetch what a batch answered."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from overnight.cli import output
from overnight.cli.connect import BatchId, Server, client
from overnight.cli.parameters import check_output
from overnight.client import Client
from overnight.domain.errors import Unusable


def results(
    batch: BatchId,
    server: Server = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write. (default: standard output)")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors/--no-errors", help="Include requests without an answer.")] = True,
) -> None:
    """Write the results of a batch that has ended: one line per request, in the order they finished."""
    if out is not None:
        check_output(out)
    with client(server) as c:
        found = c.get_batch(batch)
        if found["status"] not in ("completed", "expired", "failed", "cancelled"):
            raise Unusable(f"{batch} is {found['status']} and has no result files yet. Wait: overnight watch {batch}")
        with TemporaryDirectory() as folder:
            path = out or Path(folder) / "results.jsonl"
            if not (_write_direct(c, found, path, errors) if found["input_file_id"] is None else
                    c.write_results(found, path, errors=errors)):  # fmt: skip
                raise Unusable(f"{batch} ended {found['status']} and left no results. See: overnight show {batch}")
            if out is None:
                with path.open("rb") as source:
                    shutil.copyfileobj(source, sys.stdout.buffer)
                sys.stdout.flush()
            else:
                output.say(f"{output.counts(found)} written to {out}")


def _write_direct(c: Client, batch: dict[str, Any], path: Path, errors: bool) -> bool:
    """Write the results of a batch without files, in the shape that files have."""
    kept = ("id", "custom_id", "response", "error")
    with path.open("w", encoding="utf-8") as target:
        for result in c.results(batch["id"]):
            if errors or result["error"] is None:
                target.write(json.dumps({name: result[name] for name in kept}) + "\n")
    return path.stat().st_size > 0
