"""/schemas: the JSON Schemas of the lines that files hold. They are no secret and ask for no key."""

from __future__ import annotations

import msgspec
from litestar import Response, route

from overnight.api import parameters
from overnight.api.deps import READ, Request
from overnight.domain.errors import NotFound
from overnight.domain.line_schemas import LINE_SCHEMAS

_WRITTEN = {name: msgspec.json.encode(schema) for name, schema in LINE_SCHEMAS.items()}


@route("/schemas/{name:str}", http_method=READ, status_code=200)
async def show_schema(request: Request) -> Response[bytes]:
    """Show a schema by its name."""
    name = parameters.in_path(request, "name")
    if name not in _WRITTEN:
        raise NotFound(f"There is no schema of this name; there are {', '.join(_WRITTEN)}.")
    return Response(_WRITTEN[name], headers={"content-type": "application/schema+json"})


ROUTES = [show_schema]
