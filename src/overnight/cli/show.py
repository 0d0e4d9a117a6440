"""`overnight show`: one batch, whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from overnight.cli import output
from overnight.cli.connect import BatchId, Json, Server, client
from overnight.domain.waiting import SAYS

PROBLEMS_SHOWN = 20


def show(batch: BatchId, server: Server = None, json: Json = False) -> None:
    """Show one batch: its state, counts, files and problems."""
    with client(server) as c:
        found = c.get_batch(batch)
    if json:
        output.as_json(found)
    else:
        describe(found)


def describe(batch: dict[str, Any]) -> None:
    """Print a batch for people."""
    usage = batch.get("usage") or {}
    rows: list[tuple[str, object]] = [
        ("batch", batch["id"]),
        ("status", batch["status"]),
        ("answered", output.counts(batch)),
        ("model", batch["model"] or "–"),
        ("endpoint", batch["endpoint"]),
        ("tokens", f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out"),
        ("input file", batch["input_file_id"] or "–"),
        ("output file", batch["output_file_id"] or "–"),
        ("error file", batch["error_file_id"] or "–"),
        ("created", output.moment(batch["created_at"])),
        ("may start until", output.moment(batch["expires_at"])),
    ]
    if batch.get("progress"):
        rows.append(("left", f"{batch['progress']['waiting']:,} waiting, {batch['progress']['running']:,} running"))
        cause = batch["progress"].get("waiting_for")
        if cause:
            rows.append(("waits because", SAYS.get(cause, cause)))
    if batch.get("error"):
        rows.append(("error", batch["error"]["message"]))
    output.facts(rows)
    problems_of(batch)


def problems(found: Sequence[dict[str, Any]], *, to: Console = output.people) -> None:
    """Print what is wrong with the lines of a file."""
    output.table(("LINE", "CODE", "PROBLEM"), ((p["line"], p["code"], p["message"]) for p in found), to=to)


def problems_of(batch: dict[str, Any], *, to: Console = output.people) -> None:
    """Print what is wrong with a batch's input, where something is."""
    found = (batch.get("errors") or {}).get("data") or []
    if not found:
        return
    problems(found[:PROBLEMS_SHOWN], to=to)
    if len(found) > PROBLEMS_SHOWN:
        output.say(f"… and {len(found) - PROBLEMS_SHOWN:,} more; `overnight show --json {batch['id']}` lists them.")
