"""Writes requests down before they are sent, in groups, a little ahead of time."""

from __future__ import annotations

from overnight.domain.last_part import is_last_part
from overnight.domain.limits import Limits
from overnight.monotonic import monotonic
from overnight.store import leases
from overnight.store.pool import LOST, Session
from overnight.worker import room
from overnight.worker.alone import Alone
from overnight.worker.flow import Flow, Source
from overnight.worker.grants import Grants
from overnight.worker.held import Held
from overnight.worker.laned import sort, survey
from overnight.worker.pick import Turns
from overnight.worker.record import Recorder
from overnight.worker.request import Block, Request
from overnight.worker.yielding import most_running

TAKEN_BACK_AT_ONCE = 5_000
SHORT_FOR = 1.0
"""Seconds in which more of an owner's requests must have been leased; else others may have leased them."""


class Attempts:
    """Keeps a reserve of written-down requests for each flow, so that a free slot never waits for a commit."""

    def __init__(self, held: Held, limits: Limits, grants: Grants, recorder: Recorder) -> None:
        self._held = held
        self._limits = limits
        self._grants = grants
        self._alone = Alone(held, limits, grants, recorder)
        self._groups = 0
        self._first: set[Request] = set()
        """Of those chosen last: the first request of each owner who has just come."""
        self._commit = 0.005
        """Seconds from noticing that a reserve is low until more is written down."""

    async def round(self, session: Session) -> bool:
        """Write down what the reserves lack, in one statement; says whether anything was chosen."""
        now = monotonic()
        for batch in list(self._held.batches.values()):
            if not batch.closed and not batch.may_start(now):
                self._held.close(batch)
        self._first.clear()
        self._alone.look(now)
        chosen: list[Request] = []
        for flow in self._held.flows.values():
            chosen += self._choose(flow, now)
        chosen = chosen or await self._alone.choose(session, now)
        if chosen:
            await self._write(session, chosen)
        return bool(chosen or self._held.unsent)

    async def take_back(self, session: Session) -> bool:
        """Unwrite what was written down and will not be sent; says whether there was any."""
        unsent = self._held.unsent[:TAKEN_BACK_AT_ONCE]
        if not unsent:
            return False
        worker = self._held.worker
        await leases.take_back(session, worker, unsent)
        self._held.check(worker)
        del self._held.unsent[: len(unsent)]
        return True

    def _choose(self, flow: Flow, now: float) -> list[Request]:
        flow.rate.add(flow.ended, now)
        flow.ended = 0
        if not flow.untaken:
            flow.wants_since = None
            self._see(flow, [], now)
            return []
        running = len(flow.running)
        cap = self._cap(flow, running, now)
        on_trial = flow.route.is_on_trial
        flow.is_blocked = cap <= 0 or (on_trial and _others_are_better_probes(flow, now))
        if flow.is_blocked:
            # Its server is down: how long that lasts says nothing about the database.
            flow.wants_since = None
            if on_trial:
                self._held.give_back_reserve(flow)
            return []
        lanes = flow.route.slot_caches or 0
        flow.low = room.reserve_low(cap, flow.rate.value, self._commit, lanes)
        lines = room.lines_to_write(cap, running, len(flow.reserve), flow.rate.value, self._commit, lanes)
        if on_trial:
            # One request shows whether the server is well again. What is written down beside it would be the next.
            lines = max(0, min(1, cap - running - len(flow.reserve)))
        newcomers = set() if on_trial else _newcomers(flow)
        if not lines and not newcomers:
            return []
        survey(flow)
        _sort_last_part(flow, cap)
        sources = [s for s in flow.sources.values() if s.untaken]
        self._see(flow, sources, now)
        if on_trial:
            # Requests that fail whatever the server does must not keep it from all the others.
            sources = [s for s in sources if s.may_do_well(now)] or [s for s in sources if s.blocks] or sources
        chosen = self._take_first(flow, [s for s in sources if s.owner in newcomers], min(len(newcomers), cap))
        lines -= len(chosen)
        if len(sources) == 1:
            chosen += _take_of_one(sources[0], lines, untried_first=on_trial)
        else:
            chosen += _take_in_turns(flow, sources, lines, untried_first=on_trial)
        return chosen

    def _take_first(self, flow: Flow, sources: list[Source], most: int) -> list[Request]:
        """Take a request of each owner who has just come."""
        chosen = _take_in_turns(flow, sources, most, untried_first=False)
        self._first.update(chosen)
        return chosen

    def _see(self, flow: Flow, sources: list[Source], now: float) -> None:
        """Tell who waits. An owner of whom all that is held was taken, while more is ready, has not left."""
        waiting = {source.batch.owner for source in sources}
        short = flow.shares.waiting - waiting
        if short or flow.short_since:
            since = flow.short_since
            more = self._held.more.get(flow.route.name, ())
            flow.short_since = {owner: since.get(owner, now) for owner in short if owner in more}
            waiting.update(owner for owner, at in flow.short_since.items() if now - at < SHORT_FOR)
        flow.shares.see(waiting)

    def _cap(self, flow: Flow, running: int, now: float) -> int:
        """How many requests of the flow could run, those that do included."""
        if now < flow.held_until or self._held.alone is not None:
            return 0
        others = sum(len(sibling.running) for sibling in flow.siblings) - running
        cap = min(
            most_running(flow.route, self._limits, now) - others,
            self._limits.slots - self._held.running + running,
        )
        return min(cap, self._grants.room(flow) + running)

    async def _write(self, session: Session, chosen: list[Request]) -> None:
        worker = self._held.worker
        self._groups += 1
        groups: dict[int, tuple[list[int], list[int]]] = {}
        lines: list[int] = []
        block: Block | None = None
        for request in chosen:
            if request.block is not block:
                block = request.block
                lines, blocks = groups.setdefault(block.source.batch.no, ([], []))
                if block.seq not in blocks:
                    blocks.append(block.seq)
            lines.append(request.line)
        asked = monotonic()
        try:
            written = await leases.write_down(session, worker, self._groups, groups)
        except BaseException as error:
            self._undo(chosen, worker, unsure=isinstance(error, LOST))
            raise
        self._held.check(worker)
        self._enter(chosen, written)
        now = monotonic()
        for flow in {request.block.source.flow for request in chosen}:
            self._commit = room.smooth(self._commit, now - (flow.wants_since or asked))
            flow.wants_since = None

    def _enter(self, chosen: list[Request], written: set[int]) -> None:
        """What was written down may be sent; a batch of which nothing was starts no more requests."""
        for request in chosen:
            source = request.block.source
            request.group = self._groups
            batch = source.batch
            if batch.no in written and not batch.closed:
                request.sent += 1
                if request in self._first and self._held.alone is None:
                    source.flow.reserve.appendleft(request)
                else:
                    source.flow.reserve.append(request)
                continue
            source.flow.unchoose(request)
            if batch.no in written:
                self._held.unsend(request)
            else:
                self._held.drop(request)
        for batch in {request.block.source.batch for request in chosen}:
            if batch.no not in written and not batch.closed:
                self._held.close(batch)

    def _undo(self, chosen: list[Request], worker: int, *, unsure: bool) -> None:
        """Nothing was written, or nobody knows: the requests get their turn again."""
        if worker != self._held.worker:
            return
        for request in reversed(chosen):
            source = request.block.source
            source.flow.unchoose(request)
            if unsure:
                self._held.unsent.append((source.batch.no, self._groups, request.line))
            if source.batch.closed:
                self._held.drop(request)
            else:
                self._held.put_back(request, first=True)


def _others_are_better_probes(flow: Flow, now: float) -> bool:
    """Whether requests of other models may do well on the route, and none of this one."""
    if any(source.may_do_well(now) for source in flow.sources.values()):
        return False
    return any(source.may_do_well(now) for other in flow.siblings for source in other.sources.values())


def _newcomers(flow: Flow) -> set[int]:
    """Owners who did not wait before, and of whom nothing is written down: a request of each goes before all others.

    They need not wait for what was written down of others, however much that is.
    """
    new = {source.owner for source in flow.sources.values() if source.untaken} - flow.shares.waiting
    if new:
        new.difference_update(request.block.source.owner for request in flow.reserve)
    return new


def _take_of_one(source: Source, most: int, *, untried_first: bool) -> list[Request]:
    """Take requests of the only batch that has any."""
    chosen = []
    charged = 0
    expected = source.expected.tokens
    for _ in range(min(most, source.untaken)):
        request = source.take(untried_first=untried_first)
        request.expected = expected
        charged += request.charged
        chosen.append(request)
    source.flow.shares.charge(source.batch.owner, charged)
    return chosen


def _take_in_turns(flow: Flow, sources: list[Source], most: int, *, untried_first: bool) -> list[Request]:
    """Take requests of several batches, each of the one whose turn it is."""
    turns = Turns(flow.shares, sources)
    chosen: list[Request] = []
    while len(chosen) < most:
        source = turns.next()
        if source is None:
            break
        request = source.take(untried_first=untried_first)
        request.expected = source.expected.tokens
        turns.charge(request.charged)
        chosen.append(request)
    return chosen


def _sort_last_part(flow: Flow, cap: int) -> None:
    if flow.is_dry:
        for source in flow.sources.values():
            if not source.is_sorted and is_last_part(source.untaken, cap - flow.in_flight, cap):
                sort(source)
