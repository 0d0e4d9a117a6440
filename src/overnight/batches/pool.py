"""How full the deployment is: what waits, what runs, and what there is room for."""

from __future__ import annotations

from typing import Any

from overnight.domain.intake import waiting
from overnight.domain.limits import Limits
from overnight.store import intake
from overnight.store.pool import Store


async def pool_status(store: Store, limits: Limits) -> dict[str, Any]:
    """The public object of the pool, over all processes.

    What waits is exact but for what runs, which each worker tells with its heartbeat. `oldest_waiting_seconds` counts
    from the creation of the oldest batch with a request that waits; it is null where none does.
    """
    row = await intake.measure_pool(store)
    running: int = row["running"]
    queued = waiting(row["unanswered"], running, row["ending"])
    waited = row["oldest_waiting_seconds"]
    return {
        "intake_pool_size": queued,
        "intake_pool_capacity": limits.intake,
        "scheduling_pool_active": running,
        "scheduling_pool_free": max(row["slots"] - running, 0),
        "scheduling_pool_capacity": row["slots"],
        "active_batches": row["batches"],
        "pool_mode": True,
        "oldest_waiting_seconds": round(waited, 3) if queued and waited is not None else None,
    }
