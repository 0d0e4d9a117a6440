"""/v1/batches/{id}/results: what became of each request, in the order of submission."""

from __future__ import annotations

from litestar import Response, route

from overnight.api import parameters
from overnight.api.auth import authorise
from overnight.api.deps import READ, Request, deps_of
from overnight.batches import results

PAGE = 100
LONGEST_PAGE = 1_000


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


ROUTES = [list_results]
