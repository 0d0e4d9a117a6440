"""/v1/files: upload, look at, list, download, delete."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Response, delete, post, route

from overnight.api import parameters
from overnight.api.auth import authorise
from overnight.api.body import announced, pieces, refuse_encoded
from overnight.api.deps import READ, Request, deps_of, refuse_if_disk_is_low
from overnight.api.download import download
from overnight.files import content, find
from overnight.files import delete as deleting
from overnight.files.shape import as_json
from overnight.files.upload import receive

LONGEST_PAGE = 10_000


@post("/v1/files", status_code=200)
async def upload(request: Request) -> dict[str, Any]:
    """Store a file while it arrives."""
    deps = deps_of(request)
    owner = authorise(request)
    refuse_if_disk_is_low(deps)
    refuse_encoded(request)
    file = await receive(
        deps.store,
        deps.limits,
        owner,
        request.headers.get("content-type", ""),
        pieces(request),
        announced=announced(request),
    )
    return as_json(file)


@route("/v1/files", http_method=READ)
async def list_files(request: Request) -> dict[str, Any]:
    """Show a page of the caller's files."""
    files, has_more = await find.page(
        deps_of(request).store,
        authorise(request),
        purpose=parameters.text(request, "purpose"),
        limit=parameters.integer(request, "limit", default=LONGEST_PAGE, least=1, most=LONGEST_PAGE),
        order=parameters.choice(request, "order", default="desc", allowed=("asc", "desc")),
        after=parameters.text(request, "after"),
    )
    return parameters.as_list([as_json(file) for file in files], has_more=has_more)


@route("/v1/files/{file_id:str}", http_method=READ)
async def show_file(request: Request) -> dict[str, Any]:
    """Show one file."""
    return as_json(await find.get(deps_of(request).store, authorise(request), parameters.in_path(request, "file_id")))


@delete("/v1/files/{file_id:str}", status_code=200)
async def delete_file(request: Request) -> dict[str, Any]:
    """Delete a file for good."""
    file_id = parameters.in_path(request, "file_id")
    await deleting.delete(deps_of(request).store, authorise(request), file_id)
    return {"id": file_id, "object": "file", "deleted": True}


@route("/v1/files/{file_id:str}/content", http_method=READ)
async def show_content(request: Request) -> Response[Any]:
    """Send a file's bytes, or the range of them that was asked for."""
    store = deps_of(request).store
    file = await find.get(store, authorise(request), parameters.in_path(request, "file_id"))
    read = partial(content.stream, store, file)
    return download(request, etag=file.etag, filename=file.filename, size=file.bytes, read=read)


ROUTES = [upload, list_files, show_file, delete_file, show_content]
