"""Tells that a batch's window will close before it is done, while something can still be done about it.

It is told once, and once more where the batch was in time again meanwhile.
"""

from __future__ import annotations

from overnight.domain import events, ids
from overnight.domain.fairness import will_close_first
from overnight.store import batches
from overnight.store.pool import Row
from overnight.upkeep.deps import Upkeep

AT_ONCE = 500
TO_SPARE = 1.1
"""A batch is in time again when it would be with so many times the requests, or each look might say otherwise."""


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
        late = [row["no"] for row in rows if not row["told_late"] and _is_late(row)]
        in_time = [row["no"] for row in rows if row["told_late"] and not _is_late(row, TO_SPARE)]
        if in_time:
            await batches.forget_that_late_was_told(store, in_time)
        if late:
            for row in await batches.note_late_if_not_told(store, late):
                events.tell(
                    "batch_late",
                    batch=ids.show(ids.BATCH, row["id"]),
                    unanswered=row["unanswered"],
                    window_closes=row["expires_at"].isoformat(timespec="seconds"),
                )
        return more


def _is_late(row: Row, times: float = 1.0) -> bool:
    """Whether it would be late with so many times the requests that it has left."""
    return will_close_first(row["seconds_left"], times * row["unanswered"], row["answered"], row["seconds"])
