"""Whose request starts next."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Protocol


class Standing(Protocol):
    """How a batch stands."""

    @property
    def owner(self) -> int: ...

    @property
    def in_flight(self) -> int:
        """Its requests that run or are about to."""

    @property
    def untaken(self) -> int:
        """Its requests that could start."""

    @property
    def last_turn(self) -> int:
        """When one of its requests was chosen last, in turns."""


def turns(standings: Sequence[Standing], most: int) -> list[int]:
    """Choose `most` requests, or all that could start: the indexes of their batches, in the order of their starts.

    The owner with the fewest requests in flight comes first, and of an owner the batch with the fewest; among
    equals the one whose last turn was the longest ago. So a small batch never waits behind a large one.
    """
    if len(standings) == 1:
        return [0] * min(most, standings[0].untaken)
    owners: dict[int, list[tuple[int, int, int]]] = {}
    of_owner: dict[int, int] = {}
    for index, batch in enumerate(standings):
        of_owner[batch.owner] = of_owner.get(batch.owner, 0) + batch.in_flight
        if batch.untaken:
            owners.setdefault(batch.owner, []).append((batch.in_flight, batch.last_turn, index))
    for batches in owners.values():
        heapify(batches)
    queue = [(of_owner[owner], min(b[1] for b in batches), owner) for owner, batches in owners.items()]
    heapify(queue)
    return _take_turns(owners, queue, [batch.untaken for batch in standings], most)


def _take_turns(
    owners: dict[int, list[tuple[int, int, int]]], queue: list[tuple[int, int, int]], left: list[int], most: int
) -> list[int]:
    turn = max((batch[1] for batches in owners.values() for batch in batches), default=0)
    chosen: list[int] = []
    while queue and len(chosen) < most:
        turn += 1
        of_owner, _, owner = queue[0]
        batches = owners[owner]
        of_batch, _, index = batches[0]
        chosen.append(index)
        left[index] -= 1
        if left[index]:
            heapreplace(batches, (of_batch + 1, turn, index))
        else:
            heappop(batches)
        if batches:
            heapreplace(queue, (of_owner + 1, turn, owner))
        else:
            heappop(queue)
    return chosen
