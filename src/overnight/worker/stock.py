"""Of which owners enough is held, and where to look for more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from overnight.store.leases import LeasedBlock, Wanted
from overnight.worker import room
from overnight.worker.flow import Flow

PASSED_OVER_FOR = 1.0
"""Seconds for which batches without a ready block are passed over: there may be thousands of which all runs."""


class Stock:
    """The requests of some flows that could start."""

    def __init__(self, flows: list[Flow]) -> None:
        self.sources = [source for flow in flows for source in flow.sources.values()]
        self.batches = 0
        """Of which any could start."""
        self.owners: dict[int, int] = {}
        """How many could of each owner that is held or waits."""
        for flow in flows:
            self.owners.update(dict.fromkeys(flow.shares.waiting, 0))
        for source in self.sources:
            if source.untaken:
                self.batches += 1
                self.owners[source.owner] = self.owners.get(source.owner, 0) + source.untaken
        rate, reserve = sum(flow.rate.value for flow in flows), sum(flow.low for flow in flows)
        self.enough = room.enough_of_owner(rate, reserve, len(self.owners))
        """Requests of one owner that are enough to have its share until more is leased, and then some."""
        self.well_fed = {owner for owner, count in self.owners.items() if count >= self.enough}


def lacks_probe(flows: list[Flow], now: float) -> bool:
    """Whether all that is held for a server that failed too often may fail again: something else may do better."""
    return not any(source.may_do_well(now) for flow in flows for source in flow.sources.values())


def note_more(more: set[int], wanted: Wanted, blocks: list[LeasedBlock]) -> None:
    """Keep the owners of whom more blocks may be ready, after a look that gave these."""
    given = Counter(block.batch.owner for block in blocks)
    if len(blocks) < wanted.most and wanted.in_order:
        more.intersection_update(wanted.fed)
    # A look that takes one block of each batch leaves the others, if there are any.
    more.update(owner for owner, count in given.items() if count == wanted.of_owner or not wanted.in_order)


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
