"""/v1/batches: hand over, look at, list, cancel, pause, resume, retry, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from litestar import delete, post, route

from overnight.api import parameters
from overnight.api.auth import authorise
from overnight.api.body import read_json
from overnight.api.deps import READ, Deps, Request, deps_of, refuse_if_disk_is_low
from overnight.batches import cancel as cancelling
from overnight.batches import create as creating
from overnight.batches import delete as deleting
from overnight.batches import find, idempotency
from overnight.batches import pause as pausing
from overnight.batches import retry as retrying
from overnight.batches.idempotency import Key
from overnight.batches.shape import BatchView, as_json
from overnight.domain.errors import InvalidParameter
from overnight.domain.states import Status
from overnight.store.pool import Store

NOT_TAKEN = {
    "X-On-Behalf-Of": "A batch belongs to whoever creates it.",
    "anthropic-version": "It goes with batches of Messages, which this version does not run.",
    "anthropic-beta": "Betas cannot be used in batches.",
}
"""Headers that would change what a create means, with the reason why they are refused."""
PAGE = 20
LONGEST_PAGE = 100


@post("/v1/batches", status_code=200)
async def create_batch(request: Request) -> dict[str, Any]:
    """Take a batch over: what a call repeats under its key, or a new one, whose file is checked in the background."""
    deps = deps_of(request)
    owner = authorise(request)
    _refuse_headers(request)
    key = idempotency.read_key(request.headers.getall(idempotency.HEADER, []))
    if key is not None:
        return as_json(await _create_once(request, deps, owner, key))
    refuse_if_disk_is_low(deps)
    new = creating.read_create(await read_json(request, deps.limits.create_body_bytes))
    batch = await creating.create(deps.store, deps.limits, owner, new)
    deps.bell.ring()
    return as_json(batch)


def _refuse_headers(request: Request) -> None:
    for name, reason in NOT_TAKEN.items():
        if name in request.headers:
            raise InvalidParameter(f"Leave the header {name} out. {reason}", param=name)


async def _create_once(request: Request, deps: Deps, owner: int, name: str) -> BatchView:
    """Take a batch over under a key. One that was made before is looked at before any limit."""
    known = await idempotency.known_size(deps.store, owner, name)
    if known is None:
        refuse_if_disk_is_low(deps)
    body = await read_json(request, max(deps.limits.create_body_bytes, known or 0))
    key = Key(name, await idempotency.fingerprint(body), len(body))
    made = await idempotency.replay(deps.store, owner, key)
    if made is not None:
        return made
    batch = await creating.create(deps.store, deps.limits, owner, creating.read_create(body), key)
    deps.bell.ring()
    return batch


@route("/v1/batches", http_method=READ, status_code=200)
async def list_batches(request: Request) -> dict[str, Any]:
    """Show a page of the caller's batches, newest first."""
    batches, has_more = await find.page(
        deps_of(request).store,
        authorise(request),
        limit=parameters.integer(request, "limit", default=PAGE, least=1, most=LONGEST_PAGE),
        after=parameters.text(request, "after"),
        q=parameters.text(request, "q"),
        status=parameters.choices(request, "status", allowed=tuple(Status)),
        endpoint=parameters.text(request, "endpoint"),
        model=parameters.text(request, "model"),
        created_after=parameters.seconds(request, "created_after"),
        created_before=parameters.seconds(request, "created_before"),
    )
    return parameters.as_list([as_json(batch) for batch in batches], has_more=has_more)


@route("/v1/batches/{batch_id:str}", http_method=READ, status_code=200)
async def show_batch(request: Request) -> dict[str, Any]:
    """Show one batch."""
    return as_json(await find.get(deps_of(request).store, authorise(request), parameters.in_path(request, "batch_id")))


async def _changed(request: Request, verb: Callable[[Store, int, str], Awaitable[BatchView]]) -> dict[str, Any]:
    """Do something to the batch that a call names, let those know who work on it, and show it."""
    deps = deps_of(request)
    batch = await verb(deps.store, authorise(request), parameters.in_path(request, "batch_id"))
    deps.bell.ring()
    return as_json(batch)


@post("/v1/batches/{batch_id:str}/cancel", status_code=200)
async def cancel_batch(request: Request) -> dict[str, Any]:
    """Let a batch start nothing more; what runs finishes."""
    return await _changed(request, cancelling.cancel)


@delete("/v1/batches/{batch_id:str}", status_code=200)
async def delete_batch(request: Request) -> dict[str, Any]:
    """Delete a batch with its requests and results, for good."""
    deps = deps_of(request)
    batch_id = parameters.in_path(request, "batch_id")
    await deleting.delete(deps.store, authorise(request), batch_id)
    deps.bell.ring()
    return {"id": batch_id, "object": "batch.deleted", "deleted": True}


@post("/v1/batches/{batch_id:str}/pause", status_code=200)
async def pause_batch(request: Request) -> dict[str, Any]:
    """Start nothing of a batch until it is resumed; what runs finishes."""
    return await _changed(request, pausing.pause)


@post("/v1/batches/{batch_id:str}/resume", status_code=200)
async def resume_batch(request: Request) -> dict[str, Any]:
    """Go on with a batch that was paused."""
    return await _changed(request, pausing.resume)


@post("/v1/batches/{batch_id:str}/retry", status_code=200)
async def retry_batch(request: Request) -> dict[str, Any]:
    """Make a new batch of the requests that an ended one has left without a response."""
    deps = deps_of(request)
    owner = authorise(request)
    refuse_if_disk_is_low(deps)
    batch = await retrying.retry(deps.store, deps.limits, owner, parameters.in_path(request, "batch_id"))
    deps.bell.ring()
    return as_json(batch)


ROUTES = [create_batch, list_batches, show_batch, cancel_batch, pause_batch, resume_batch, retry_batch, delete_batch]
