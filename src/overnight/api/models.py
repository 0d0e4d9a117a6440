"""/v1/models: what the living workers can run, in the shape of OpenAI's list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litestar import route

from overnight.api.auth import authorise
from overnight.api.deps import READ, Request, deps_of
from overnight.domain.errors import ModelNotFound
from overnight.store.served import Served, list_served


@route("/v1/models", http_method=READ, status_code=200)
async def list_models(request: Request) -> dict[str, Any]:
    """Every model that a batch may name."""
    authorise(request)
    models = _models(await list_served(deps_of(request).store))
    return {"object": "list", "data": list(models.values())}


@route("/v1/models/{model_id:path}", http_method=READ, status_code=200)
async def show_model(request: Request, model_id: str) -> dict[str, Any]:
    """One model, by its id or an alias."""
    authorise(request)
    name = model_id.removeprefix("/")
    models = _models(await list_served(deps_of(request).store))
    found = models.get(name) or next((m for m in models.values() if name in m["aliases"]), None)
    if found is None:
        raise ModelNotFound(f"No server that is connected serves the model {name[:200]!r}.", param="model")
    return found
