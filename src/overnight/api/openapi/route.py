"""/openapi.json: the document of the process that serves it. It is no secret and asks for no key."""

from __future__ import annotations

from litestar import Response, route

from overnight.api.deps import READ, Request


@route("/openapi.json", http_method=READ, status_code=200)
async def show_document(request: Request) -> Response[bytes]:
    """Show the OpenAPI document of all routes."""
    return Response(request.app.state.document(), media_type="application/json")


ROUTES = [show_document]
