"""How full the deployment is: what waits, what runs, and what there is room for."""

from __future__ import annotations

from typing import Any

from overnight.domain.limits import Limits
from overnight.store import batches
from overnight.store.pool import Store


async def pool_status(store: Store, limits: Limits) -> dict[str, Any]:
    """The public object of the pool, over all processes.

    What waits is exact but for what runs, which each worker tells with its heartbeat. Running requests of batches that
    have been cancelled, or whose window has closed, are not among the unanswered ones that may still start.
    """
    row = await batches.measure_pool(store)
    running: int = row["running"]
    waited = row["oldest_waiting_seconds"]
    return {
        "intake_pool_size": max(row["unanswered"] - (running - row["ending"]), 0),
        "intake_pool_capacity": limits.intake,
        "scheduling_pool_active": running,
        "scheduling_pool_free": max(row["slots"] - running, 0),
        "scheduling_pool_capacity": row["slots"],
        "active_batches": row["batches"],
        "pool_mode": True,
        "oldest_waiting_seconds": None if waited is None else round(waited, 3),
    }
