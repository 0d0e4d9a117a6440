"""All that a worker holds, and what becomes of it when a batch closes or a new life begins."""

from __future__ import annotations

from collections.abc import Set
from heapq import heappop

from overnight.catalog.route import Route
from overnight.domain.alone import Turns
from overnight.domain.limits import MIB
from overnight.monotonic import monotonic
from overnight.upstreams.http import Call
from overnight.worker.flow import Batch, Flow, Source
from overnight.worker.request import Block, Request

IDLE_FLOWS = 32
WAITING_BYTES = 32 * MIB
"""Of requests that wait for another try, or for their turn to run alone; beyond it they are read again when due."""
STUCK_FOR = 5.0
"""Seconds; the server of a flow that takes nothing for longer has more than a hiccup."""


class Superseded(Exception):
    """A new life of the worker began while a statement of the old one was under way: what it did is not ours."""


class Held:
    """All that one life of a worker holds."""

    def __init__(self, worker: int) -> None:
        self._clear(worker)

    def _clear(self, worker: int) -> None:
        self.worker = worker
        self.batches: dict[int, Batch] = {}
        self.flows: dict[tuple[str, str], Flow] = {}
        self.running = 0
        self._running_of: dict[str, int] = {}
        """Model → requests of it that run, where any do."""
        self.bytes = 0
        """Of the requests held."""
        self.more: dict[str, set[int]] = {}
        """By route: owners of whom more blocks may be ready than are held."""
        self.let_go: list[Block] = []
        """Blocks of which nothing is pending: they are done, or go back."""
        self.unsent: list[tuple[int, int, int]] = []
        """Written down and not sent: batch, number of the group, line."""
        self.alone: Request | None = None
        """The request whose turn it is to run alone: nothing else starts. Until it is written down, the first of
        its flow's `waiting.lone`."""
        self.alone_runs = False
        self.turns = Turns()

    def begin(self, worker: int) -> list[Call]:
        """Forget everything, since it belongs to others now, and go on under a new number.

        Returns the calls that run; whatever they come to is ignored.
        """
        for batch in self.batches.values():
            batch.forgotten = True
        calls = [call for flow in self.flows.values() for call in flow.running]
        self._clear(worker)
        return calls

    def check(self, worker: int) -> None:
        """Raise Superseded where the worker is no longer the one that a statement was for."""
        if worker != self.worker:
            raise Superseded

    def flows_of(self, route: Route) -> list[Flow]:
        """The flows on a route."""
        return [flow for flow in self.flows.values() if flow.route is route]

    def settle(self, block: Block, count: int = 1) -> None:
        """So many pending requests of a block came to their end here."""
        block.pending -= count
        if not block.pending:
            self.let_go.append(block)

    def drop(self, request: Request) -> None:
        """A request will not be answered here: it is left to whoever comes next."""
        if request is self.alone:
            self.end_turn(monotonic())
        block = request.block
        block.whole = False
        block.source.batch.unanswered -= 1
        self.bytes -= len(request.text)
        self.settle(block)

    def close(self, batch: Batch) -> None:
        """Start nothing more of a batch; what runs may end."""
        batch.closed = True
        for flow in batch.sources:
            self._give_up(batch, flow)

    def give_up_stuck(self, now: float, *, may_start: bool) -> None:
        """Leave to others what waits for a server that has taken nothing for a while, as they may have one that does;
        or all that waits, where nothing `may_start` in this process.
        """
        for flow in self.flows.values():
            route = flow.route
            takes = may_start and route.most_running(now) > 0 and not route.is_on_trial
            if takes or now < flow.held_until:
                flow.stuck_since = None
            elif flow.stuck_since is None:
                flow.stuck_since = now
            elif now - flow.stuck_since >= STUCK_FOR:
                flow.stuck_since = now
                for source in list(flow.sources.values()):
                    self._give_up(source.batch, flow)

    def _give_up(self, batch: Batch, flow: Flow) -> None:
        """Leave what a flow has of a batch and was not sent to whoever comes next."""
        written, others = flow.drop(batch)
        for request in written:
            self.unsend(request)
        for request in others:
            self.drop(request)

    def give_back(self, source: Source, blocks: Set[Block]) -> None:
        """Leave what was not sent of some blocks to whoever comes next."""
        written, others = source.flow.drop(source.batch, blocks)
        for request in written:
            self.unsend(request)
        for request in others:
            self.drop(request)

    def unsend(self, request: Request) -> None:
        """Drop a request that was written down, so that it does not count as tried."""
        self.unsent.append((request.block.source.batch.no, request.group, request.line))
        self.drop(request)

    def give_back_reserve(self, flow: Flow, most: int = 0) -> None:
        """What is written down and was not sent gets its turn again, but for `most` requests that come first."""
        while len(flow.reserve) > most:
            request = flow.reserve.pop()
            source = request.block.source
            flow.unchoose(request)
            request.sent -= 1
            self.unsent.append((source.batch.no, request.group, request.line))
            self.put_back(request, first=True)

    def running_of(self, model: str) -> int:
        """Requests of a model that run, on whatever route."""
        return self._running_of.get(model, 0)

    @property
    def running_of_closed(self) -> dict[int, int]:
        """By batch, the requests that run of those that start nothing more here."""
        closed = [batch for batch in self.batches.values() if batch.closed]
        return {batch.no: sum(source.in_flight for source in batch.sources.values()) for batch in closed}

    @property
    def waiting(self) -> list[int]:
        """Batches of which a request is held or left to others that does not run: the oldest that may start more here,
        and all that may not, since these may only be paused.
        """
        written = {request.block.source.batch.no for flow in self.flows.values() for request in flow.reserve}
        found = [batch for batch in self.batches.values() if batch.no in written or batch.has_more_than_runs]
        oldest = min((batch.no for batch in found if not batch.closed), default=None)
        closed = [batch.no for batch in found if batch.closed]
        return closed if oldest is None else [oldest, *closed]

    def note_start(self, model: str, count: int) -> None:
        """So many more requests of a model run."""
        self.running += count
        self._running_of[model] = self._running_of.get(model, 0) + count

    def note_end(self, model: str) -> None:
        """One fewer does."""
        self.running -= 1
        left = self._running_of[model] - 1
        if left:
            self._running_of[model] = left
        else:
            del self._running_of[model]

    def end_turn(self, now: float, *, in_vain: bool = False) -> None:
        """The request whose turn it was has run alone, or will not run now: others go on."""
        self.alone = None
        self.alone_runs = False
        self.turns = self.turns.end_in_vain(now) if in_vain else self.turns.end(now)

    def wait(self, request: Request, until: float) -> None:
        """A request's next try is due at a moment of the monotonic clock."""
        request.block.source.flow.waiting.add(request, until)
        self._let_text_go(request)

    def put_back(self, request: Request, *, first: bool = False) -> None:
        """A request may start as soon as its turn comes, or `first` of all; or it waits for its turn to run alone."""
        if request.alone:
            request.block.source.flow.waiting.add_lone(request, first=first)
            self._let_text_go(request)
        else:
            request.block.source.put_back(request, first=first)

    def _let_text_go(self, request: Request) -> None:
        """A request waits. So that those that do take no room from others, few of their bytes are kept."""
        flow = request.block.source.flow
        if sum(each.waiting.bytes for each in self.flows.values()) + len(request.text) <= WAITING_BYTES:
            flow.waiting.bytes += len(request.text)
        else:
            self.bytes -= len(request.text)
            request.text = b""

    def take_text(self, request: Request, text: bytes) -> None:
        """A request that gave its text back has it again."""
        request.text = text
        self.bytes += len(text)

    def take_up_due(self, now: float) -> None:
        """Requests whose next try is due get a turn again."""
        for flow in self.flows.values():
            while flow.waiting.again and flow.waiting.again[0][0] <= now:
                request = heappop(flow.waiting.again)[2]
                if not (request.text or request.alone):
                    flow.waiting.unread.append(request)
                    continue
                flow.waiting.bytes -= len(request.text)
                request.block.source.waiting -= 1
                self.put_back(request)

    def next_due(self) -> float | None:
        """When the next try of a waiting request is due, by the monotonic clock."""
        return min((flow.waiting.again[0][0] for flow in self.flows.values() if flow.waiting.again), default=None)

    def part_with(self, block: Block) -> None:
        """A block is no longer leased; forget its batch with the last one."""
        batch = block.source.batch
        batch.blocks.discard(block)
        if not batch.blocks:
            del self.batches[batch.no]
            for flow in batch.sources:
                del flow.sources[batch.no]
                self._forget_if_idle(flow)

    def _forget_if_idle(self, flow: Flow) -> None:
        """Where any name is a model, callers make up new ones without end. A few are kept, for their rates."""
        if not flow.sources and len(self.flows) > IDLE_FLOWS:
            del self.flows[flow.route.name, flow.model]
            flow.siblings.remove(flow)
