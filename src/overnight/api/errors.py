"""The one place where whatever went wrong in a call becomes an answer, always of the same shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import asyncpg
import msgspec
from litestar import Response
from litestar.exceptions import HTTPException

from overnight.api.deps import Request
from overnight.domain import events
from overnight.domain.errors import (
    BadRequest,
    InsufficientStorage,
    InternalError,
    Interrupted,
    MethodNotAllowed,
    NotFound,
    NotReady,
    Refusal,
    RequestsRefused,
    TooLarge,
    UnsupportedMediaType,
)
from overnight.interactive.refused import Refused
from overnight.store.pool import LOST

RETRY_AFTER = 2
LONGEST_RETRY_AFTER = 60
"""Client libraries ignore a `Retry-After` outside 1 to 60 seconds."""

_TRIED_AGAIN = frozenset({408, 409, 429})
"""Below 500, the statuses with which client libraries send a call again unless they are told not to."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An error as it goes over the wire."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def show(refusal: Refusal, headers: dict[str, str] | None = None) -> Answer:
    """Shape a refusal: `{"error": {message, type, param, code}}`, and whether and when to try again."""
    shape: dict[str, object] = {"message": refusal.message, "type": refusal.kind}
    shape |= {"param": refusal.param, "code": refusal.code}
    if isinstance(refusal, RequestsRefused) and refusal.problems:
        shape["problems"] = refusal.problems
    wait = float(refusal.retry_after or RETRY_AFTER) if refusal.again else None
    return _shaped(refusal.status, shape, wait, headers)


def of_upstream(refused: Refused) -> Answer:
    """Shape what a model server refused, with its own status."""
    return _shaped(
        refused.status, _of_server(refused.message, refused.kind, refused.param, refused.code), refused.retry_after
    )


def as_event(message: str) -> bytes:
    """The last event of a stream whose server is gone, as client libraries understand it."""
    shape = _of_server(message, "server_error", None, "upstream_error")
    return b"data: " + msgspec.json.encode({"error": shape}) + b"\n\n"


def _of_server(message: str, kind: str, param: str | None, code: str) -> dict[str, object]:
    return {"message": message, "type": kind, "param": param, "code": code}


def _shaped(status: int, shape: dict[str, object], wait: float | None, headers: dict[str, str] | None = None) -> Answer:
    """`wait` is in seconds; None: the call is not to be tried again."""
    headers = dict(headers or {})
    if wait is not None:
        headers["retry-after"] = str(min(max(ceil(wait), 1), LONGEST_RETRY_AFTER))
    elif status in _TRIED_AGAIN or status >= 500:
        headers["x-should-retry"] = "false"
    return Answer(status, msgspec.json.encode({"error": shape}), headers)


def answer(request: Request, error: Exception) -> Response[bytes]:
    """What Litestar calls for an exception of a handler or of its own routing."""
    shown = explain(error, request.scope["method"], request.scope["path"], request.state.request_id)
    return Response(shown.body, status_code=shown.status, headers=shown.headers, media_type="application/json")


def explain(error: Exception, method: str, path: str, request_id: str) -> Answer:
    """Turn any exception into an answer. What is not a refusal is told, and shown without inner detail."""
    if isinstance(error, Refusal):
        return show(error)
    if isinstance(error, HTTPException):
        return show(_of_routing(error, method, path), {k: str(v) for k, v in (error.headers or {}).items()})
    if isinstance(error, (*LOST, asyncpg.TooManyConnectionsError)):
        events.tell("database_lost", error, request=request_id)
        return show(NotReady("The database cannot be reached at the moment; try again shortly."))
    if isinstance(error, asyncpg.DiskFullError):
        events.tell("disk_low", error, request=request_id)
        return show(InsufficientStorage("The database has no disk space left; nothing was stored."))
    events.tell("request_failed", error, request=request_id, method=method, path=path)
    return show(InternalError(f"Something went wrong inside Overnight. Report it with the request id {request_id}."))


def _of_routing(error: HTTPException, method: str, path: str) -> Refusal:
    path = path if len(path) <= 200 else path[:197] + "..."
    match error.status_code:
        case 404:
            return NotFound(f"There is no {path} here; check the address against the reference.")
        case 405:
            return MethodNotAllowed(f"{path} does not answer to {method}; the Allow header lists what it answers to.")
        case 413:
            return TooLarge("The body is longer than it may be.")
        case 415:
            return UnsupportedMediaType("The body's Content-Type is not understood here.")
        case status if status < 500:
            return BadRequest("The call is not well-formed HTTP: check its address and headers.")
        case _:
            return Interrupted("The connection ended before the whole body had come.")
