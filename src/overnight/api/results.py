"""/v1/batches/{id}/results, …/output.jsonl and …/unfinished.jsonl: what became of each request, and what is left."""

from __future__ import annotations

from typing import Any

from litestar import Response, route
from litestar.enums import HttpMethod

from overnight.api import parameters
from overnight.api.auth import authorise
from overnight.api.deps import READ, Request, deps_of
from overnight.api.download import MEDIA_TYPE, disposition, download
from overnight.api.pieces import Pieces
from overnight.batches import output, results, unfinished

PAGE = 100
LONGEST_PAGE = 1_000
MOST_SKIPPED = 1_000_000_000


@route("/v1/batches/{batch_id:str}/results", http_method=READ, status_code=200)
async def list_results(request: Request) -> Response[bytes]:
    """Show a page of a batch's requests with what became of each."""
    page = await results.page(
        deps_of(request).store,
        authorise(request),
        parameters.in_path(request, "batch_id"),
        limit=parameters.integer(request, "limit", default=PAGE, least=1, most=LONGEST_PAGE),
        after=parameters.text(request, "after"),
    )
    return Response(page.as_json(), status_code=200, media_type="application/json")


@route("/v1/batches/{batch_id:str}/output.jsonl", http_method=READ, status_code=200)
async def show_output(request: Request) -> Response[Any]:
    """Send all results there are: responses as they finished, or everything in the order of submission."""
    store, owner = deps_of(request).store, authorise(request)
    batch_id = parameters.in_path(request, "batch_id")
    offset = parameters.integer(request, "offset", default=0, least=0, most=MOST_SKIPPED)
    order = parameters.choice(request, "order", default="finished", allowed=("finished", "submitted"))
    if order == "submitted":
        return _send_submitted(request, await output.submitted(store, owner, batch_id, offset))
    found = await output.finished(store, owner, batch_id, offset)
    more = {} if found.is_final else {"x-incomplete": "true", "x-last-line": str(found.lines)}
    return download(request, etag=found.etag, filename=found.filename, size=found.size, read=found.read, more=more)


def _send_submitted(request: Request, found: output.Submitted) -> Response[Any]:
    headers = {"content-disposition": disposition(found.filename)}
    if found.size is not None:
        headers["content-length"] = str(found.size)
    if request.method == HttpMethod.HEAD:
        return Response(b"", status_code=200, headers=headers, media_type=MEDIA_TYPE)
    return Pieces(found.read(), status_code=200, headers=headers, media_type=MEDIA_TYPE)


@route("/v1/batches/{batch_id:str}/unfinished.jsonl", http_method=READ, status_code=200)
async def show_unfinished(request: Request) -> Response[Any]:
    """Send the requests of a batch that have no response, as an input file."""
    batch_id = parameters.in_path(request, "batch_id")
    found = await unfinished.of(deps_of(request).store, authorise(request), batch_id)
    headers = {"content-disposition": disposition(found.filename)}
    if request.method == HttpMethod.HEAD:
        return Response(b"", status_code=200, headers=headers, media_type=MEDIA_TYPE)
    return Pieces(found.read(), status_code=200, headers=headers, media_type=MEDIA_TYPE)


ROUTES = [list_results, show_output, show_unfinished]
