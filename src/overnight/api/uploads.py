"""/v1/uploads: begin, add parts, complete, cancel, look at."""

from __future__ import annotations

from typing import Any

from litestar import post, route

from overnight.api import parameters
from overnight.api.auth import authorise
from overnight.api.body import announced, pieces, read_json, refuse_encoded
from overnight.api.deps import READ, Request, deps_of, refuse_if_disk_is_low
from overnight.files.uploads import create as creating
from overnight.files.uploads import part as parts
from overnight.files.uploads.complete import complete
from overnight.files.uploads.find import as_json, get
from overnight.files.uploads.request import LONGEST_COMPLETE, LONGEST_CREATE, read_complete, read_create


@post("/v1/uploads", status_code=200)
async def create_upload(request: Request) -> dict[str, Any]:
    """Begin an upload."""
    deps = deps_of(request)
    owner = authorise(request)
    refuse_if_disk_is_low(deps)
    new = read_create(await read_json(request, LONGEST_CREATE), deps.limits)
    return as_json(await creating.create(deps.store, deps.limits, owner, new))


@route("/v1/uploads/{upload_id:str}", http_method=READ, status_code=200)
async def show_upload(request: Request) -> dict[str, Any]:
    """Show an upload."""
    return as_json(await get(deps_of(request).store, authorise(request), parameters.in_path(request, "upload_id")))


@post("/v1/uploads/{upload_id:str}/parts", status_code=200)
async def add_part(request: Request) -> dict[str, Any]:
    """Store a part while it arrives."""
    deps = deps_of(request)
    owner = authorise(request)
    refuse_if_disk_is_low(deps)
    refuse_encoded(request)
    part = await parts.receive(
        deps.store,
        owner,
        parameters.in_path(request, "upload_id"),
        request.headers.get("content-type", ""),
        pieces(request),
        announced=announced(request),
    )
    return parts.as_json(part)


@post("/v1/uploads/{upload_id:str}/complete", status_code=200)
async def complete_upload(request: Request) -> dict[str, Any]:
    """Make the file of the parts."""
    deps = deps_of(request)
    owner = authorise(request)
    refuse_if_disk_is_low(deps)
    wanted = read_complete(await read_json(request, LONGEST_COMPLETE))
    return as_json(await complete(deps.store, deps.limits, owner, parameters.in_path(request, "upload_id"), wanted))


@post("/v1/uploads/{upload_id:str}/cancel", status_code=200)
async def cancel_upload(request: Request) -> dict[str, Any]:
    """Give an upload up."""
    upload_id = parameters.in_path(request, "upload_id")
    return as_json(await creating.cancel(deps_of(request).store, authorise(request), upload_id))


ROUTES = [create_upload, show_upload, add_part, complete_upload, cancel_upload]
