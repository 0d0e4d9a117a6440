"""The application that a process serves: its routes, its errors, what surrounds them."""

from __future__ import annotations

from functools import cache

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from overnight.api import batches, errors, files, health, interactive, models, options, results, schemas, uploads
from overnight.api.deps import Deps, refuse_if_off
from overnight.api.middleware import App, Edge
from overnight.api.openapi import route
from overnight.api.openapi.document import document

__all__ = ["HANDLERS", "Deps", "create_app"]

HANDLERS: list[HTTPRouteHandler] = [
    *batches.ROUTES,
    *results.ROUTES,
    *files.ROUTES,
    *uploads.ROUTES,
    *models.ROUTES,
    *interactive.ROUTES,
    *health.ROUTES,
    *schemas.ROUTES,
    *route.ROUTES,
]
"""All that a process answers to; the OpenAPI document describes each."""


def create_app(deps: Deps) -> App:
    """Make the ASGI application of one process. Starting and ending `deps` is its maker's business."""
    app = Litestar(
        # Those for OPTIONS come first: the framework adds its own to a path that has none yet.
        route_handlers=[*options.of_all(HANDLERS), *HANDLERS],
        before_request=refuse_if_off,
        state=State({"deps": deps, "document": _written_document}),
        exception_handlers={Exception: errors.answer},
        openapi_config=None,
        logging_config=None,
        # Handlers count bodies themselves: each has its own limit, and says it.
        request_max_body_size=None,
    )
    return Edge(app, deps.hosts, deps.stalled_seconds, interactive.fronts(deps))


@cache
def _written_document() -> bytes:
    return msgspec.json.encode(document(HANDLERS))
