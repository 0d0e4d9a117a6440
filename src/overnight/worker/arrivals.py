"""Takes up blocks that were leased: their requests get their turns, each where it stood when it was sent before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from overnight.catalog.route import Route
from overnight.domain.alone import POISON
from overnight.monotonic import monotonic
from overnight.store import leases
from overnight.store.leases import LeasedBlock, Past
from overnight.store.pool import Session
from overnight.worker.clock import Clock
from overnight.worker.flow import Batch, Flow, Source
from overnight.worker.held import Held
from overnight.worker.laned import LanedSource
from overnight.worker.request import Block, Request


class Arrivals:
    """Blocks that are leased and not yet held: of those leased before, what became of their requests is looked up."""

    def __init__(self, held: Held, clock: Clock, give_up: Callable[[Request], None]) -> None:
        """`give_up` answers a request that is not to run any more."""
        self._held = held
        self._clock = clock
        self._give_up = give_up
        self._arrived: deque[tuple[Route, LeasedBlock]] = deque()

    @property
    def known(self) -> set[tuple[int, int]]:
        """The blocks that came: (batch, seq) each."""
        return {(block.batch.no, block.seq) for _, block in self._arrived}

    def add(self, route: Route, blocks: Iterable[LeasedBlock]) -> None:
        """These were leased for a route."""
        self._arrived.extend((route, block) for block in blocks)

    def forget(self) -> None:
        """What was leased belongs to others."""
        self._arrived.clear()

    async def round(self, session: Session) -> bool:
        """Take up what was leased; says whether there was anything."""
        found = bool(self._arrived)
        worker = self._held.worker
        while self._arrived:
            route, leased = self._arrived[0]
            answered: set[int] = set()
            past: dict[int, Past] = {}
            if leased.was_leased_before:
                answered = await leases.answered(session, leased.batch.no, leased.lines)
                past = await leases.past(session, leased.batch.no, leased.seq, leased.lines)
                self._held.check(worker)
            self._arrived.popleft()
            self._hold(route, leased, answered, past)
        return found

    def _hold(self, route: Route, leased: LeasedBlock, answered: set[int], past: dict[int, Past]) -> None:
        batch = self._batch(leased)
        source = self._source(batch, self._flow(route, leased.model))
        block = Block(source, leased.seq)
        batch.blocks.add(block)
        requests = [
            Request(block, line, text)
            for line, text in zip(leased.lines, leased.requests, strict=True)
            if line not in answered
        ]
        block.pending = len(requests)
        block.requests = [request for request in requests if request.line not in past] if past else requests
        batch.unanswered += block.pending
        self._held.bytes += sum([len(request.text) for request in requests])
        for request in requests if past else ():
            if request.line in past:
                self._recall(request, past[request.line])
        source.add(block)
        if not block.pending:
            self._held.let_go.append(block)

    def _recall(self, request: Request, before: Past) -> None:
        """Take up a request that was sent before where it stood then."""
        request.sent = before.sent
        request.uncounted = before.uncounted
        request.losses = before.losses
        request.alone = before.losses >= POISON
        until = None if before.again_at is None else self._clock.monotonic_of(before.again_at)
        if before.losses > POISON:
            self._give_up(request)
        elif until is not None and until > monotonic():
            self._held.wait(request, until)
        else:
            # It should have run by now: it comes before those that were never sent.
            self._held.put_back(request)

    def _batch(self, leased: LeasedBlock) -> Batch:
        batch = self._held.batches.get(leased.batch.no)
        if batch is None:
            ends = leased.batch.expires_at
            closes = None if ends is None else self._clock.monotonic_of(ends)
            due = self._clock.monotonic_of(leased.batch.due)
            batch = self._held.batches[leased.batch.no] = Batch(leased.batch, closes, due)
        batch.note_results_left(leased.batch.results_left)
        # A batch that was paused while some of its requests ran, and goes on now.
        batch.closed = False
        return batch

    def _flow(self, route: Route, model: str) -> Flow:
        key = (route.name, model)
        flow = self._held.flows.get(key)
        if flow is None:
            flow = self._held.flows[key] = Flow(route, model, monotonic())
            siblings = self._held.flows_of(route)
            for sibling in siblings:
                sibling.siblings = siblings
        return flow

    def _source(self, batch: Batch, flow: Flow) -> Source:
        source = batch.sources.get(flow)
        if source is None:
            source = Source(batch, flow) if flow.lanes is None else LanedSource(batch, flow, flow.lanes)
            batch.sources[flow] = flow.sources[batch.no] = source
        return source
