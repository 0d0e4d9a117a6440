"""`overnight submit`: hand files over and return."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import typer

from overnight.cli import output
from overnight.cli.connect import WORKED_WITHIN, Json, Server, client
from overnight.cli.inputs import Files, Input, read_inputs
from overnight.cli.job import endpoint_of
from overnight.cli.parameters import (
    Endpoint,
    Metadata,
    Parameters,
    Window,
    check_options,
    read_metadata,
    read_parameters,
)
from overnight.cli.show import PROBLEMS_SHOWN, errors_of, names_unknown_model, problems, tell_models
from overnight.client import Client
from overnight.client.errors import ApiError, OvernightError, ServerFault
from overnight.domain.errors import Unusable
from overnight.domain.states import Status

CHECKED_WITHIN = 30.0
"""Seconds that a new batch is looked at until the server has checked it; one that takes longer is left to `watch`."""
FIRST_LOOK = 0.02
LONGEST_GAP = 0.5

Batch = dict[str, Any]


def submit(
    files: Files,
    server: Server = None,
    endpoint: Endpoint = None,
    window: Window = "24h",
    param: Parameters = None,
    metadata: Metadata = None,
    json: Json = False,
) -> None:
    """Upload files, make a batch of each, and print the batches' ids as soon as the server has checked them.

    A file that is refused is not kept; the others are handed over, and the command ends with 1. A batch that takes the
    server longer to check than half a minute counts as taken.
    With --json it prints a line for each file: its `input`, and its `batch`, or the `error` for which there is none.
    """
    named: dict[str, Any] = {"completion_window": window, "metadata": read_metadata(metadata or [])}
    named |= read_parameters(param or [])
    with client(server, within=WORKED_WITHIN) as c, read_inputs(files) as inputs:
        taken = [_hand_over(c, given, {**named, "endpoint": endpoint}, json=json) for given in inputs]
    raise typer.Exit(0 if all(taken) else 1)


def _hand_over(c: Client, given: Input, named: dict[str, Any], *, json: bool) -> bool:
    """Make a batch of a file; say whether it was taken. Raises what keeps the others from being taken, too."""
    batch: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    lost: OvernightError | None = None
    try:
        endpoint = named["endpoint"] or endpoint_of(given)
        batch, refused = _batch_of(c, given, {**named, "endpoint": endpoint})
        if refused is not None:
            error = _error(_tell_problems(given.name, refused), problems=refused)
            if names_unknown_model(refused["first"]):
                tell_models(c.models())
    except (ApiError, Unusable, OSError) as e:
        if isinstance(e, ApiError):
            check_options(e)
        says = str(e.strerror or e) if isinstance(e, OSError) else str(e)
        error = _error(says, code=e.code if isinstance(e, ApiError) else None)
        if isinstance(e, ServerFault):
            # It has refused nothing, and may have made the batch.
            lost = e
        else:
            output.complain(f"{given.name} was refused, and nothing of it runs. {says}")
    except OvernightError as e:
        error, lost = _error(str(e)), e
    if json:
        output.as_line({"input": given.name, "batch": batch, "error": error})
    elif batch is not None:
        output.answer(batch["id"])
        count = batch["request_counts"]["total"]
        checked = ", still being checked" if batch["status"] == Status.VALIDATING else ""
        output.say(f"{output.many(count, 'request')}{checked}. Follow the batch with: overnight watch {batch['id']}")
    if lost is not None:
        raise lost
    return batch is not None


def _error(message: str, *, code: str | None = None, problems: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "problems": problems}


def _batch_of(c: Client, given: Input, named: dict[str, Any]) -> tuple[Batch | None, dict[str, Any] | None]:
    """The batch that was made of a file, or else the problems for which there is none."""
    stored = c.upload_file(given.path)
    if stored.get("problems"):
        _remove(c, stored["id"])
        return None, stored["problems"]
    try:
        batch = _checked(c, c.create_batch(input_file_id=stored["id"], **named))
    except ApiError:
        _remove(c, stored["id"])
        raise
    if batch["status"] != Status.FAILED:
        return batch, None
    with suppress(OvernightError):
        c.delete_batch(batch["id"])
    _remove(c, stored["id"])
    found = errors_of(batch) or [{"line": None, **batch["error"]}]
    return None, {"count": len(found), "first": found[:PROBLEMS_SHOWN]}


def _checked(c: Client, batch: Batch) -> Batch:
    """The batch when the server has checked it, or as it is after a while; one that cannot be asked for stays taken."""
    ends = time.monotonic() + CHECKED_WITHIN
    gap = FIRST_LOOK
    with suppress(OvernightError):
        while batch["status"] == Status.VALIDATING and time.monotonic() < ends:
            time.sleep(gap)
            gap = min(gap * 2, LONGEST_GAP)
            batch = c.get_batch(batch["id"])
    return batch


def _remove(c: Client, file_id: str) -> None:
    """Delete a file that no batch was made of."""
    try:
        c.delete_file(file_id)
    except OvernightError:
        output.say(f"The file stays on the server. Delete it with: overnight files delete {file_id}")


def _tell_problems(name: str, found: dict[str, Any]) -> str:
    """Show the problems of a file; return the sentence about them."""
    count, first = found["count"], found["first"]
    many = output.many(count, "problem")
    says = f"{name} was refused, and nothing of it runs: {many}. Correct it and give the command again."
    output.complain(says)
    problems(first, to=output.aside)
    if count > len(first):
        output.say(f"… and {count - len(first):,} more.")
    return says
