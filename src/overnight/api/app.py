"""The application that a process serves: its routes, its errors, what surrounds them."""

from __future__ import annotations

from litestar import Litestar
from litestar.datastructures import State

from overnight.api import batches, errors, files, health, models, results, schemas, uploads
from overnight.api.deps import Deps
from overnight.api.middleware import App, Edge

__all__ = ["Deps", "create_app"]


def create_app(deps: Deps) -> App:
    """Make the ASGI application of one process. Starting and ending `deps` is its maker's business."""
    app = Litestar(
        route_handlers=[
            *batches.ROUTES,
            *results.ROUTES,
            *files.ROUTES,
            *uploads.ROUTES,
            *models.ROUTES,
            *health.ROUTES,
            *schemas.ROUTES,
        ],
        state=State({"deps": deps}),
        exception_handlers={Exception: errors.answer},
        openapi_config=None,
        logging_config=None,
        # Handlers count bodies themselves: each has its own limit, and says it.
        request_max_body_size=None,
    )
    return Edge(app, deps.hosts, deps.stalled_seconds)
