"""`overnight models`: what batches may name."""

from __future__ import annotations

from overnight.cli import output
from overnight.cli.connect import Json, Server, client
from overnight.cli.overview import state_of


def models(server: Server = None, json: Json = False) -> None:
    """List the models that batches may name, with what they can be asked for."""
    with client(server) as c:
        found = c.models()
    if json:
        output.as_json(found)
    elif not found:
        output.say("No model is served now. Those of an upstream appear when it answers.")
    else:
        output.table(
            ("MODEL", "CONTEXT", "STATE", "ENDPOINTS", "ALIASES"),
            (
                (
                    model["id"],
                    "–" if model.get("context_length") is None else f"{model['context_length']:,}",
                    state_of(model),
                    ", ".join(model.get("targets", ())),
                    ", ".join(model.get("aliases", ())),
                )
                for model in found
            ),
            stacked=True,
            shorten=(3,),
        )
