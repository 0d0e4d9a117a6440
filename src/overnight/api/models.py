"""/v1/models: what the living workers can run, in the shape of OpenAI's list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litestar import route

from overnight.api import parameters
from overnight.api.auth import authorise
from overnight.api.deps import READ, Request, deps_of
from overnight.domain.errors import ModelNotFound
from overnight.domain.waiting import cause_of
from overnight.store.served import Served, list_served


@route("/v1/models", http_method=READ, status_code=200)
async def list_models(request: Request) -> dict[str, Any]:
    """Show every model that a batch may name."""
    authorise(request)
    return {"object": "list", "data": as_json(await list_served(deps_of(request).store))}


@route("/v1/models/{model_id:path}", http_method=READ, status_code=200)
async def show_model(request: Request) -> dict[str, Any]:
    """Show one model, by its id or an alias; ids may hold slashes."""
    authorise(request)
    name = parameters.in_path(request, "model_id").removeprefix("/")
    models = as_json(await list_served(deps_of(request).store))
    for model in sorted(models, key=lambda model: bool(model["id"] != name)):
        if name == model["id"] or name in model["aliases"]:
            return model
    raise ModelNotFound(f"No server that is connected serves the model {name[:200]!r}.", param="model")


def as_json(served: Iterable[Served]) -> list[dict[str, Any]]:
    """The public objects of the models that some workers serve, each once, ordered by id.

    A model that several serve has the shortest of their contexts, so that what fits there fits everywhere. Servers
    that do not say what they serve add nothing.
    """
    offers: dict[str, list[Served]] = {}
    for offer in served:
        if not offer.any_model:
            offers.setdefault(offer.model, []).append(offer)
    return [_model(model, of_model) for model, of_model in sorted(offers.items())]


def _model(model: str, offers: list[Served]) -> dict[str, Any]:
    contexts = [o.context_length for o in offers if o.context_length is not None]
    return {
        "id": model,
        "object": "model",
        "created": min((int(o.since.timestamp()) for o in offers if o.since is not None), default=0),
        "owned_by": "overnight",
        "aliases": sorted({alias for o in offers for alias in o.aliases}),
        "context_length": min(contexts, default=None),
        "waiting_for": cause_of([o.blocked for o in offers]),
        "targets": sorted({target for o in offers for target in o.targets}),
    }


ROUTES = [list_models, show_model]
