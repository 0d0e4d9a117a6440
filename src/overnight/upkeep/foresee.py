"""Tells, once a batch, that its window will close before it is done, while something can still be done about it."""

from __future__ import annotations

from overnight.domain import events, ids
from overnight.domain.fairness import will_close_first
from overnight.store import batches
from overnight.upkeep.deps import Upkeep

AT_ONCE = 500


class Foresee:
    """Goes through the batches that run, some at a time."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps
        self._after = 0

    async def round(self) -> bool:
        """Look at up to 500 batches; says whether there are more."""
        store = self._deps.store
        rows = await batches.list_paces(store, self._after, AT_ONCE, self._deps.only())
        more = len(rows) == AT_ONCE
        self._after = rows[-1]["no"] if more else 0
        late = [
            row["no"]
            for row in rows
            if will_close_first(row["seconds"], row["closes"], row["unanswered"], row["answered"], row["seconds"])
        ]
        if late:
            for row in await batches.note_late_if_not_told(store, late):
                events.tell(
                    "batch_late",
                    batch=ids.show(ids.BATCH, row["id"]),
                    unanswered=row["unanswered"],
                    window_closes=row["expires_at"].isoformat(timespec="seconds"),
                )
        return more
