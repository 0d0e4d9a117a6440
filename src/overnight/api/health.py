"""/health, /v1/pool/status and /metrics: how this process and the whole deployment are doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Response, route
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from overnight.api.auth import authorise
from overnight.api.deps import READ, Request, deps_of
from overnight.batches import pool
from overnight.store.pool import LOST

_GAUGES = {
    "intake_pool_size": "Requests accepted and not yet running, over the whole deployment.",
    "intake_pool_capacity": "The most requests that may wait.",
    "scheduling_pool_active": "Requests running, over the whole deployment.",
    "scheduling_pool_capacity": "The most requests that may run at once, over the whole deployment.",
    "active_batches": "Batches that have not ended.",
    "oldest_waiting_seconds": "Seconds since the batch of the oldest request that waits was created.",
}
"""What `/metrics` shows of the pool's status, and what to say of each."""


@route("/health", http_method=READ, status_code=200)
async def show_health(request: Request) -> Response[dict[str, str]]:
    """Whether this process can do its work: 200, or 503 with the reason. Asks for no key."""
    reason = await deps_of(request).health()
    if reason is None:
        return Response({"status": "healthy"})
    return Response({"status": "unhealthy", "reason": reason}, status_code=503)


@route("/v1/pool/status", http_method=READ, status_code=200)
async def show_pool(request: Request) -> dict[str, Any]:
    """How full the queue and the slots of the whole deployment are."""
    authorise(request)
    deps = deps_of(request)
    return await pool.pool_status(deps.store, deps.limits)


@route("/metrics", http_method=READ, status_code=200)
async def show_metrics(request: Request) -> Response[bytes]:
    """This process's counters and the deployment's pool, as Prometheus reads them.

    Without a database the counters are shown alone: that is when somebody looks.
    """
    deps = deps_of(request)
    try:
        status = await pool.pool_status(deps.store, deps.limits)
    except LOST:
        status = {}
    return Response(generate_latest() + _as_text(status), headers={"content-type": CONTENT_TYPE_LATEST})


def _as_text(status: Mapping[str, Any]) -> bytes:
    lines = []
    for name, says in _GAUGES.items():
        value = status.get(name)
        if value is not None:
            lines += [f"# HELP overnight_{name} {says}", f"# TYPE overnight_{name} gauge", f"overnight_{name} {value}"]
    return "".join(line + "\n" for line in lines).encode()


ROUTES = (show_health, show_pool, show_metrics)
