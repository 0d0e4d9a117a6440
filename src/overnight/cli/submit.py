"""`overnight submit`: hand files over and return."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import Json, Server, client
from overnight.cli.inputs import Files, read_inputs
from overnight.cli.job import endpoint_of
from overnight.cli.parameters import Endpoint, Metadata, Parameters, Window, read_metadata, read_parameters


def submit(
    files: Files,
    server: Server = None,
    endpoint: Endpoint = None,
    window: Window = "24h",
    param: Parameters = None,
    metadata: Metadata = None,
    json: Json = False,
) -> None:
    """Upload files, make a batch of each, and print the batches' ids."""
    defaults = read_parameters(param or [])
    notes = read_metadata(metadata or [])
    with client(server) as c, read_inputs(files) as inputs:
        endpoints = [endpoint or endpoint_of(given) for given in inputs]
        for given, named in zip(inputs, endpoints, strict=True):
            stored = c.upload_file(given.path)
            batch = c.create_batch(
                input_file_id=stored["id"],
                endpoint=named,
                completion_window=window,
                metadata=notes,
                **defaults,
            )
            if json:
                output.as_json(batch)
                continue
            output.people.print(batch["id"])
            output.say(f"{stored['lines']:,} requests. Follow them with: overnight watch {batch['id']}")
