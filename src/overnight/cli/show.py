"""`overnight show`: one batch, whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from overnight.cli import output
from overnight.cli.connect import BatchId, Json, Server, client
from overnight.cli.progress import span
from overnight.domain.states import FINAL
from overnight.domain.waiting import SAYS

PROBLEMS_SHOWN = 20
MODELS_SHOWN = 5


def show(batch: BatchId, server: Server = None, json: Json = False) -> None:
    """Show one batch: its state, counts, files and problems."""
    with client(server) as c:
        found = c.get_batch(batch)
        if json:
            output.as_json(found)
            return
        describe(found)
        if names_unknown_model(errors_of(found)):
            tell_models(c.models())


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
        *_times(batch),
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


def _times(batch: dict[str, Any]) -> list[tuple[str, object]]:
    """What matters of a batch's times beside its creation."""
    if batch["status"] not in FINAL:
        return [("may start until", output.moment(batch["expires_at"]))]
    ended, until = batch.get(f"{batch['status']}_at"), batch.get("results_expires_at")
    took = "" if ended is None else f", after {span(ended - batch['created_at'])}"
    return [
        ("ended", f"{output.moment(ended)}{took}"),
        *([("kept until", output.moment(until))] if until is not None else []),
    ]


def problems(found: Sequence[dict[str, Any]], *, to: Console = output.people) -> None:
    """Print what is wrong with the lines of a file."""
    output.table(("LINE", "CODE", "PROBLEM"), ((p["line"], p["code"], p["message"]) for p in found), to=to)


def errors_of(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """What is wrong with a batch's input."""
    return (batch.get("errors") or {}).get("data") or []


def problems_of(batch: dict[str, Any], *, to: Console = output.people) -> None:
    """Print what is wrong with a batch's input, where something is."""
    found = errors_of(batch)
    if not found:
        return
    problems(found[:PROBLEMS_SHOWN], to=to)
    if len(found) > PROBLEMS_SHOWN:
        output.say(f"… and {len(found) - PROBLEMS_SHOWN:,} more; `overnight show --json {batch['id']}` lists them.")


def names_unknown_model(found: Sequence[dict[str, Any]]) -> bool:
    """Whether a model that nobody serves is among what is wrong with an input."""
    return any(p["code"] == "model_not_found" for p in found)


def tell_models(models: Sequence[dict[str, Any]]) -> None:
    """Say which models requests may name, some of them."""
    if not models:
        output.say("No server that is connected lists a model now.")
        return
    more = f" … and {len(models) - MODELS_SHOWN:,} more" if len(models) > MODELS_SHOWN else ""
    output.say(f"Requests may name: {', '.join(map(_with_aliases, models[:MODELS_SHOWN]))}{more}")


def _with_aliases(model: dict[str, Any]) -> str:
    aliases = list(model.get("aliases") or ())[:MODELS_SHOWN]
    return f"{model['id']} (also {', '.join(aliases)})" if aliases else str(model["id"])
