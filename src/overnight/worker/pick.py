"""Whose request starts next."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Generic, Protocol, TypeVar

from overnight.domain.fairness import AGING, Account, Shares


class Standing(Protocol):
    """How a batch stands, while requests of it are taken."""

    last_turn: int
    """When one of its requests was chosen last, in turns of its owner; below 0 until it was seen first."""

    @property
    def owner(self) -> int: ...

    @property
    def untaken(self) -> int:
        """Its requests that could start."""

    @property
    def latest_start(self) -> float:
        """When it must go on at the latest; the one for which this comes first has the least slack."""


S = TypeVar("S", bound=Standing)


class Turns(Generic[S]):
    """Gives turns, one after the other: `next`, then `charge` with what the request taken is thought to cost.

    The owner who was served least comes first; of an owner the batch with the least slack, and one time in AGING the
    one that has waited longest. So neither a small batch nor one with time to spare waits for ever.
    """

    def __init__(self, shares: Shares, standings: Sequence[S]) -> None:
        """`shares` has seen the owners of all that wait; `standings` are those that may have turns now."""
        self._shares = shares
        self._last = 0
        of_owners: dict[int, list[S]] = {}
        for batch in standings:
            if batch.untaken:
                of_owners.setdefault(batch.owner, []).append(batch)
        self._queue: list[tuple[float, int, _Owner[S]]] = []
        for owner, batches in of_owners.items():
            account = shares.account(owner)
            self._queue.append((account.served, owner, _Owner(account, batches)))
        heapify(self._queue)

    def next(self) -> S | None:
        """The batch whose turn it is, None where nothing could start; a request of it must be taken."""
        queue = self._queue
        while queue:
            _, self._last, owner = queue[0]
            batch = owner.next()
            if batch is not None:
                return batch
            heappop(queue)
        return None

    def charge(self, tokens: int) -> None:
        """The request just taken is thought to cost so many weighted tokens."""
        queue = self._queue
        owner = self._last
        heapreplace(queue, (self._shares.charge(owner, tokens), owner, queue[0][2]))


class _Owner(Generic[S]):
    """One owner's batches, by slack and by when they had a turn last."""

    __slots__ = ("_account", "_at", "_batches", "_by_age")

    def __init__(self, account: Account, batches: list[S]) -> None:
        self._account = account
        self._batches = batches
        if len(batches) > 1:
            batches.sort(key=_latest_start)
        self._at = 0
        self._by_age: list[tuple[int, int]] | None = None
        """A heap of last turns; those of batches that had one since are behind the truth."""
        for batch in batches:
            if batch.last_turn < 0:
                batch.last_turn = account.turns

    def next(self) -> S | None:
        account = self._account
        batches = self._batches
        while self._at < len(batches) and not batches[self._at].untaken:
            self._at += 1
        if self._at == len(batches):
            return None
        account.turns = turn = account.turns + 1
        batch = batches[self._at] if turn % AGING else self._longest_waiting()
        batch.last_turn = turn
        return batch

    def _longest_waiting(self) -> S:
        """There is one, since the one with the least slack is among them."""
        if self._by_age is None:
            self._by_age = [(batch.last_turn, index) for index, batch in enumerate(self._batches)]
            heapify(self._by_age)
        queue = self._by_age
        while True:
            turn, index = queue[0]
            batch = self._batches[index]
            if not batch.untaken:
                heappop(queue)
            elif batch.last_turn != turn:
                heapreplace(queue, (batch.last_turn, index))
            else:
                return batch


def _latest_start(batch: Standing) -> float:
    return batch.latest_start
