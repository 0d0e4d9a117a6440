"""Tells, once each, that a model has waited long for a machine, and that it does not any more."""

from __future__ import annotations

from datetime import timedelta

from overnight.domain import events
from overnight.store import grants
from overnight.upkeep.deps import Upkeep

QUIET = timedelta(minutes=5)
"""A model is asked again as soon as its wait is over; if it still waits, that is known long before this."""


class WatchQueued:
    """Looks at the models that wait."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps

    async def round(self) -> bool:
        """Tell what has to be told; never anything to go on with."""
        store, after = self._deps.store, self._deps.limits.queued_alert
        if after is not None:
            for row in await grants.note_long_queued(store, after):
                since = row["queued_since"].isoformat(timespec="seconds")
                events.tell("model_queued_long", model=row["model"], since=since)
        for model in await grants.end_queued(store, QUIET):
            events.tell("model_queued_no_more", model=model)
        return False
