"""The requests of a flow that wait: for their next try, for their texts, or for their turn to run alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from heapq import heapify, heappush
from typing import TYPE_CHECKING

from overnight.worker.request import Block, Request

if TYPE_CHECKING:
    from overnight.worker.flow import Source


class Waiting:
    """Each is in one of three places; its source counts it as waiting."""

    def __init__(self) -> None:
        self.again: list[tuple[float, int, Request]] = []
        """A heap of requests that wait for their next try, by when it is due."""
        self.unread: deque[Request] = deque()
        """Requests of which the next try is due and the text must be read again first."""
        self.lone: deque[Request] = deque()
        """Requests that are to run alone, and wait for their turn."""
        self.had_turn_at = 0.0
        """When one of these had its turn last."""
        self.bytes = 0
        """Held of requests that wait."""
        self.read_bytes = 0
        """Of texts that were read again, of requests that wait no more and of which the turn has not come."""
        self._counter = 0

    def add(self, request: Request, until: float) -> None:
        """The request's next try is due at a moment of the monotonic clock."""
        self._counter += 1
        request.block.source.waiting += 1
        heappush(self.again, (until, self._counter, request))

    def add_lone(self, request: Request, *, first: bool) -> None:
        """The request waits for its turn to run alone, before all others or after them."""
        request.block.source.waiting += 1
        if first:
            self.lone.appendleft(request)
        else:
            self.lone.append(request)

    def take_lone(self) -> Request:
        """The first of those that are to run alone waits no more."""
        request = self.lone.popleft()
        request.block.source.waiting -= 1
        self.bytes -= len(request.text)
        return request

    def note_taken(self, request: Request) -> None:
        """A request that was due has its turn, or is dropped."""
        if request.is_read_again:
            request.is_read_again = False
            self.read_bytes -= request.size

    def drop(self, source: Source, blocks: Set[Block] | None) -> list[Request]:
        """Forget and return the requests of a source, or those of some of its blocks."""
        waiting = [*(entry[2] for entry in self.again), *self.unread, *self.lone]
        dropped = [r for r in waiting if r.block.source is source and (blocks is None or r.block in blocks)]
        gone = set(dropped)
        self.again = [entry for entry in self.again if entry[2] not in gone]
        heapify(self.again)
        self.unread = deque(request for request in self.unread if request not in gone)
        self.lone = deque(request for request in self.lone if request not in gone)
        self.bytes -= sum([len(request.text) for request in dropped])
        source.waiting -= len(dropped)
        return dropped
