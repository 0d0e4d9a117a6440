"""`overnight submit`: hand a file over and return."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from overnight.cli import output
from overnight.cli.connect import Json, Server, client
from overnight.cli.parameters import Endpoint, Metadata, Parameters, Window, read_metadata, read_parameters


def submit(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="JSONL, a request a line.")],
    server: Server = None,
    endpoint: Endpoint = None,
    window: Window = "24h",
    param: Parameters = None,
    metadata: Metadata = None,
    json: Json = False,
) -> None:
    """Upload a file, make a batch of it, and print the batch's id."""
    defaults = read_parameters(param or [])
    from overnight.cli.job import endpoint_of

    with client(server) as c:
        stored = c.upload_file(str(file))
        batch = c.create_batch(
            input_file_id=stored["id"],
            endpoint=endpoint or endpoint_of(file),
            completion_window=window,
            metadata=read_metadata(metadata or []),
            **defaults,
        )
    if json:
        output.as_json(batch)
    else:
        output.people.print(batch["id"])
        output.say(f"{stored['lines']:,} requests. Follow them with: overnight watch {batch['id']}")
