"""Batches of which blocks are held, and what a worker runs of them: by batch, and by route and model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Set
from datetime import datetime
from typing import Any
from uuid import UUID

from overnight.catalog.route import Route
from overnight.domain.fairness import ExpectedOutput, Shares, cost, latest_start
from overnight.domain.lanes import Lanes
from overnight.domain.outcome import Usage
from overnight.domain.targets import TARGETS
from overnight.store.answers import Answer
from overnight.store.leases import LeasedBatch, Pace
from overnight.upstreams.http import Call
from overnight.worker.request import Block, Request
from overnight.worker.room import Rate
from overnight.worker.waiting import Waiting


class Source:
    """The held requests of one batch for one flow."""

    __slots__ = (
        "again",
        "batch",
        "blocks",
        "expected",
        "flow",
        "in_flight",
        "is_sorted",
        "last_turn",
        "untaken",
        "waiting",
    )

    def __init__(self, batch: Batch, flow: Flow) -> None:
        self.batch = batch
        self.flow = flow
        self.blocks: deque[Block] = deque()
        self.again: deque[Request] = deque()
        """Requests whose next try is due; they come before those that were never sent."""
        self.is_sorted = False
        """What is left is in the order of the last part of a batch."""
        self.untaken = 0
        self.in_flight = 0
        self.waiting = 0
        """Requests that wait until their next try is due, or for their turn to run alone."""
        self.last_turn = -1
        self.expected = ExpectedOutput(flow.expected)

    @property
    def owner(self) -> int:
        return self.batch.owner

    @property
    def latest_start(self) -> float:
        return self.batch.latest_start

    def may_do_well(self, now: float) -> bool:
        """Whether a request of it could start, and the last one that ended did not fail as servers do that are down."""
        if not self.untaken or now < self.flow.held_until:
            return False
        return self.batch.no not in self.flow.route.failing and self.batch.may_start(now)

    def add(self, block: Block) -> None:
        """The requests of a block may start as their turns come."""
        self.untaken += len(block.requests)
        self.flow.untaken += len(block.requests)
        self.flow.is_dry = self.is_sorted = False
        self.hold(block)

    def put_back(self, request: Request, *, first: bool = False) -> None:
        """The request may start as soon as its turn comes; or it gets its turn back."""
        if first:
            self.again.appendleft(request)
        else:
            self.again.append(request)
        self.untaken += 1
        self.flow.untaken += 1

    def take(self, *, untried_first: bool = False) -> Request:
        """The request whose turn it is; it counts as in flight from here."""
        self.untaken -= 1
        self.flow.untaken -= 1
        self.in_flight += 1
        self.flow.in_flight += 1
        if self.again and not (untried_first and self.blocks):
            request = self.again.popleft()
            self.flow.waiting.note_taken(request)
            return request
        return self._take_untried()

    def hold(self, block: Block) -> None:
        """Put its requests behind the others."""
        if block.requests:
            self.blocks.append(block)

    def _take_untried(self) -> Request:
        block = self.blocks[0]
        request = block.requests[block.next]
        block.next += 1
        if block.next == len(block.requests):
            # The requests live on by themselves, so that each is freed when it is answered.
            block.requests = []
            self.blocks.popleft()
        return request

    def _untried(self) -> Iterator[Request]:
        for block in self.blocks:
            yield from block.requests[block.next :]

    def list_untaken(self) -> list[Request]:
        """The requests whose turn has not come, in the order of their turns, about."""
        return [*self.again, *self._untried()]

    def drop_untried(self) -> list[Request]:
        """Take out those that were never sent."""
        dropped = list(self._untried())
        for block in self.blocks:
            block.requests = []
        self.blocks.clear()
        return dropped

    def hold_in_order(self, requests: list[Request]) -> None:
        """Put requests that were taken out behind the others, in the order given."""
        # Not a block that was leased: it only holds the order.
        order = Block(self, -1)
        order.requests = requests
        self.hold(order)

    def drop_untaken(self, blocks: Set[Block] | None) -> list[Request]:
        """Forget and return the requests whose turn has not come, or those of some blocks."""
        again, untried = list(self.again), self.drop_untried()
        dropped = [request for request in (*again, *untried) if blocks is None or request.block in blocks]
        gone = set(dropped)
        self.again = deque(request for request in again if request not in gone)
        for request in again:
            if request in gone:
                self.flow.waiting.note_taken(request)
        self.hold_in_order([request for request in untried if request not in gone])
        self.flow.untaken -= len(dropped)
        self.untaken -= len(dropped)
        return dropped


class Batch:
    """A batch of which blocks are held, with its answers that are not stored yet."""

    def __init__(self, leased: LeasedBatch, closes: float | None, due: float) -> None:
        self.no = leased.no
        self.id: UUID = leased.id
        self.owner = leased.owner
        self.url = leased.endpoint
        self.path = TARGETS[leased.endpoint].path
        self.defaults: dict[str, Any] = leased.defaults
        self.window_ends: datetime | None = leased.expires_at
        self.closes = closes
        """When its window closes, by the monotonic clock."""
        self.due = due
        """The same, or long after its creation where it has no window."""
        self.latest_start = due
        """When it must go on at the latest to be done when it is due, at its pace."""
        self.keep_pace(leased.pace)
        self.closed = False
        """Nothing of it starts any more, here."""
        self.results_left = leased.results_left
        """Bytes of responses that it may still store, as far as this process knows; None: there is no limit."""
        self.forgotten = False
        """It belongs to others: whatever still ends is ignored."""
        self.sources: dict[Flow, Source] = {}
        self.blocks: set[Block] = set()
        self.unanswered = 0
        """Its held requests that have no answer and were not dropped."""
        self.answers: list[Answer] = []
        self.answered: list[Block] = []
        """The block of each of `answers`."""
        self.first_answer_at = 0.0
        self.unsure: set[int] = set()
        """Lines of answers that may be stored already: the connection broke under the statement."""

    def keep_pace(self, pace: Pace) -> None:
        """It was this fast."""
        self.latest_start = latest_start(self.due, pace.left, pace.answered, pace.seconds)

    def may_start(self, now: float) -> bool:
        """Whether its requests may start at a moment of the monotonic clock."""
        return not self.closed and (self.closes is None or now < self.closes)

    @property
    def has_more_than_runs(self) -> bool:
        """Requests of its blocks are not answered and neither written down nor running."""
        in_flight = sum(source.in_flight for source in self.sources.values())
        return self.unanswered > in_flight or not all(block.whole for block in self.blocks)

    @property
    def is_full(self) -> bool:
        """It stores no more responses."""
        return self.results_left is not None and self.results_left <= 0

    def has_room_for(self, size: int) -> bool:
        """Take the room of a response of so many bytes; the first one that finds none leaves none to any other."""
        if self.results_left is None:
            return True
        fits = size <= self.results_left
        self.results_left = self.results_left - size if fits else 0
        return fits

    def note_results_left(self, left: int | None) -> None:
        """Hear what the database knows, where other processes store responses too."""
        if self.results_left is not None and left is not None:
            self.results_left = min(self.results_left, left)


class Flow:
    """The requests that this worker runs for one model on one route."""

    def __init__(self, route: Route, model: str, now: float) -> None:
        self.route = route
        self.model = model
        self.server_name = route.name_of(model)
        self.sources: dict[int, Source] = {}
        self.siblings: list[Flow] = []
        """All flows on the same route, this one too."""
        self.lanes = None if route.slot_caches is None else Lanes()
        self.is_dry = False
        """Nothing more can be leased: what is held is all there is."""
        self.reserve: deque[Request] = deque()
        """Requests that are written down and may be sent."""
        self.running: set[Call] = set()
        self.untaken = 0
        self.in_flight = 0
        self.waiting = Waiting()
        self.low = 1
        """The reserve is too small below this."""
        self.held_until = 0.0
        """The model is queued: nothing starts before."""
        self.stuck_since: float | None = None
        """Since when its server has taken nothing."""
        self.is_blocked = False
        """Nothing of it may start, so that nothing more is written down, however small the reserve is."""
        self.ended = 0
        """Requests that ended since they were counted last."""
        self.rate = Rate(now)
        self.shares = Shares()
        self.short_since: dict[int, float] = {}
        """Owners of whom more is ready than is held, and since when nothing is held."""
        self.expected = ExpectedOutput()
        self.wants_since: float | None = None
        """Since when the reserve has been too small."""

    def take_lone(self) -> Request:
        """The first of those that are to run alone; it counts as in flight from here."""
        request = self.waiting.take_lone()
        source = request.block.source
        source.in_flight += 1
        self.in_flight += 1
        request.expected = source.expected.tokens
        self.shares.charge(source.owner, request.charged)
        return request

    def refund(self, request: Request) -> None:
        """A request that was chosen is not sent."""
        self.shares.charge(request.block.source.owner, -request.charged)

    def unchoose(self, request: Request) -> None:
        """A request that was chosen is in flight no more, unsent: its owner gets back what it was charged."""
        request.block.source.in_flight -= 1
        self.in_flight -= 1
        self.refund(request)

    def settle(self, request: Request, usage: Usage) -> None:
        """A try has ended. Where no usage is known what was charged stands, since the try had its slot."""
        if usage.input or usage.output:
            source = request.block.source
            self.shares.charge(source.batch.owner, cost(usage.input, usage.output) - request.charged)
            source.expected.learn(usage.output)
            self.expected.learn(usage.output)

    def drop(self, batch: Batch, blocks: Set[Block] | None = None) -> tuple[list[Request], list[Request]]:
        """Forget and return the requests of a batch that were not sent, or those of some of its blocks: what is written
        down, and all others.
        """
        source = batch.sources[self]
        written = [r for r in self.reserve if r.block.source is source and (blocks is None or r.block in blocks)]
        if written:
            gone = set(written)
            self.reserve = deque(request for request in self.reserve if request not in gone)
            for request in written:
                self.unchoose(request)
        others = source.drop_untaken(blocks)
        if source.waiting:
            others += self.waiting.drop(source, blocks)
        return written, others
