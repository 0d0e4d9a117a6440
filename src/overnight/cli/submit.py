"""`overnight submit`: hand files over and return."""

from __future__ import annotations

from typing import Any

import typer

from overnight.cli import output
from overnight.cli.connect import Json, Server, client
from overnight.cli.inputs import Files, Input, read_inputs
from overnight.cli.job import endpoint_of
from overnight.cli.parameters import Endpoint, Metadata, Parameters, Window, read_metadata, read_parameters
from overnight.cli.show import problems
from overnight.client import Client
from overnight.client.errors import ApiError, OvernightError


def submit(
    files: Files,
    server: Server = None,
    endpoint: Endpoint = None,
    window: Window = "24h",
    param: Parameters = None,
    metadata: Metadata = None,
    json: Json = False,
) -> None:
    """Upload files, make a batch of each, and print the batches' ids.

    A file with problems is refused and not kept; the others are handed over, and the command ends with 1.
    """
    named: dict[str, Any] = {"completion_window": window, "metadata": read_metadata(metadata or [])}
    named |= read_parameters(param or [])
    with client(server) as c, read_inputs(files) as inputs:
        endpoints = [endpoint or endpoint_of(given) for given in inputs]
        taken = [
            _hand_over(c, given, {**named, "endpoint": its}, json=json)
            for given, its in zip(inputs, endpoints, strict=True)
        ]
    raise typer.Exit(0 if all(taken) else 1)


def _hand_over(c: Client, given: Input, named: dict[str, Any], *, json: bool) -> bool:
    """Make a batch of a file; say whether it was taken."""
    stored = c.upload_file(given.path)
    if stored.get("problems"):
        _remove(c, stored["id"])
        _tell_problems(given.name, stored["problems"])
        return False
    try:
        batch = c.create_batch(input_file_id=stored["id"], **named)
    except ApiError:
        _remove(c, stored["id"])
        raise
    if json:
        output.as_json(batch)
    else:
        output.answer(batch["id"])
        output.say(f"{stored['lines']:,} requests. Follow them with: overnight watch {batch['id']}")
    return True


def _remove(c: Client, file_id: str) -> None:
    """Delete a file that no batch was made of."""
    try:
        c.delete_file(file_id)
    except OvernightError:
        output.say(f"The file stays on the server. Delete it with: overnight files delete {file_id}")


def _tell_problems(name: str, found: dict[str, Any]) -> None:
    count, first = found["count"], found["first"]
    many = "1 problem" if count == 1 else f"{count:,} problems"
    output.complain(f"{name} was refused, and nothing of it runs: {many}. Correct it and give the command again.")
    problems(first, to=output.aside)
    if count > len(first):
        output.say(f"… and {count - len(first):,} more.")
