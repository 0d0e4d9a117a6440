"""Of which owners enough is held, and where to look for more."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from overnight.store.leases import LeasedBlock
from overnight.worker import room
from overnight.worker.flow import Flow, Source

PASSED_OVER_FOR = 1.0
"""Seconds for which batches without a ready block are passed over: there may be thousands of which all runs."""


def well_fed(flows: list[Flow], sources: list[Source]) -> set[int]:
    """Owners of whom enough is held to have their share until more is leased, and then some."""
    untaken: dict[int, int] = {}
    for source in sources:
        if source.untaken:
            untaken[source.owner] = untaken.get(source.owner, 0) + source.untaken
    enough = room.enough_of_owner(sum(flow.rate.value for flow in flows), len(untaken))
    return {owner for owner, count in untaken.items() if count >= enough}


class Places:
    """By owner: when and which batch is due before which none had a ready block a moment ago.

    They are forgotten soon, since blocks may have been given back, or batches been made that are due before.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[int, tuple[datetime, int]]] = {}
        self._until = 0.0

    def of(self, route: str, now: float) -> dict[int, tuple[datetime, int]]:
        """Those found when looking for a route, at a moment of the monotonic clock."""
        if now >= self._until:
            self._of.clear()
            self._until = now + PASSED_OVER_FOR
        return self._of.get(route, {})

    def remember(self, route: str, blocks: Iterable[LeasedBlock]) -> None:
        """These blocks came of a look that left no batch out: what is due before an owner's first has none."""
        firsts: dict[int, tuple[datetime, int]] = {}
        for block in blocks:
            place = (block.batch.due, block.batch.no)
            firsts[block.batch.owner] = min(place, firsts.get(block.batch.owner, place))
        self._of.setdefault(route, {}).update(firsts)

    def forget(self) -> None:
        """Look from the start."""
        self._of.clear()
