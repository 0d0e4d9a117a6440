"""Starts requests that are written down, one in the place of each that ends.

All of it runs in callbacks: the connection that brings an answer hands it over, and the next request starts on it.
There is no task and no future for a request. Answers that come in the same turn of the loop are taken in together, so
that what may start, and on which connections, is found out once for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from overnight.catalog.route import Route
from overnight.domain import events
from overnight.domain.body import prepare, read_request
from overnight.domain.limits import Limits
from overnight.domain.outcome import within_context
from overnight.monotonic import monotonic
from overnight.store.life import Life
from overnight.upstreams.answer import read_reply
from overnight.upstreams.http import Broken, Call, Reply
from overnight.worker.clock import Clock
from overnight.worker.ending import Endings
from overnight.worker.flow import Flow
from overnight.worker.grants import Grants
from overnight.worker.held import Held
from overnight.worker.laned import bring_forward
from overnight.worker.record import Recorder
from overnight.worker.request import Request
from overnight.worker.yielding import most_running

AT_ONCE = 64
"""Answers that are taken in together at the most, so that the first of them does not wait for long."""
MANY = 5_000
PART = 0.001
"""With so many requests in flight answers are gathered for this part of the time that one took. By Little's law it is
the time in which at least five of them come; their slots are empty for half of it."""
LONGEST_WINDOW = 0.005


class Starter:
    """Keeps the slots of all flows full for as long as there are requests written down."""

    def __init__(
        self,
        held: Held,
        life: Life,
        limits: Limits,
        grants: Grants,
        clock: Clock,
        recorder: Recorder,
        endings: Endings,
        ring: Callable[[], None],
    ) -> None:
        self._held = held
        self._life = life
        self._limits = limits
        self._grants = grants
        self._clock = clock
        self._recorder = recorder
        self._ring = ring
        self._endings = endings
        self._told_cut_off = False
        self._given_up: set[Call] = set()
        """Calls that were cancelled here: they were no tries, and may start again."""
        self._came_in: deque[tuple[Call, Reply | Broken, float]] = deque()
        """What ended and when, to be taken in together."""
        self._is_due = False

    # -- starting ----------------------------------------------------------------------------------------------

    def pump_all(self) -> None:
        """Start what may start, on all flows."""
        for flow in list(self._held.flows.values()):
            self.pump(flow)

    def pump_route(self, route: Route) -> None:
        """Start what may start on a route."""
        for flow in self._held.flows_of(route):
            self.pump(flow)

    def pump(self, flow: Flow) -> None:
        """Start requests of a flow while there are free slots; ask for more to be written down in good time."""
        if flow.reserve and not self._endings.stopping:
            now = monotonic()
            room = self._room(flow, now)
            if room > 0:
                self._start(flow, self._take(flow, room, now), now)
        if len(flow.reserve) < flow.low and flow.untaken and flow.wants_since is None and not flow.is_blocked:
            flow.wants_since = monotonic()
            self._ring()

    async def give_up_if_cut_off(self) -> None:
        """Stop what runs of models with a cap once others may go on with it.

        Replies that came while this process stood still are read before, which takes the loop two turns: what is
        answered need not run again.
        """
        if self._is_to_give_up():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if self._is_to_give_up():
            if not self._told_cut_off:
                events.tell("worker_cut_off", running=self._held.running)
            self._told_cut_off = True
            self.give_up_running()
        elif not self._is_cut_off():
            self._told_cut_off = False

    def _is_cut_off(self) -> bool:
        return self._limits.per_model is not None and self._life.is_cut_off()

    def _is_to_give_up(self) -> bool:
        return self._held.running > 0 and self._is_cut_off()

    def give_up_running(self) -> None:
        """Cancel what runs, where its server is there to be told."""
        for flow in self._held.flows.values():
            for call in list(flow.running):
                if flow.route.pool is not None and not call.ended:
                    self._given_up.add(call)
                    flow.route.cancel(call)

    def _take(self, flow: Flow, room: int, now: float) -> list[Request]:
        """Take what may start from a flow's reserve, for so many free slots."""
        taken: list[Request] = []
        while flow.reserve and len(taken) < room:
            if flow.lanes is not None:
                bring_forward(flow, taken)
            request = flow.reserve[0]
            batch = request.block.source.batch
            if not batch.may_start(now):
                self._held.close(batch)
            elif batch.is_full:
                flow.reserve.popleft()
                self._endings.refuse(request, now)
            else:
                flow.reserve.popleft()
                taken.append(request)
        return taken

    def _room(self, flow: Flow, now: float) -> int:
        held = self._held
        if now < flow.held_until or not self._life.may_start() or not self._limits.slots:
            return 0
        if held.alone is not None and (held.running or flow.reserve[0] is not held.alone):
            return 0
        on_route = sum([len(sibling.running) for sibling in flow.siblings])
        room = most_running(flow.route, self._limits, now) - on_route
        room = min(room, self._recorder.most_running(self._limits.slots) - held.running)
        return min(room, self._grants.room(flow))

    def _start(self, flow: Flow, requests: list[Request], now: float) -> None:
        calls = [self._make_call(flow, request, now) for request in requests]
        if not calls:
            return
        flow.running.update(calls)
        flow.route.tally.begin(now, len(calls))
        self._held.note_start(flow.model, len(calls))
        self._held.alone_runs = requests[0] is self._held.alone
        if flow.route.is_local:
            for call, request in zip(calls, requests, strict=True):
                flow.route.send(call, request.block.source.batch.defaults.get("max_context_length"))
            return
        pool = flow.route.pool
        assert pool is not None
        pool.send(*calls)

    def _make_call(self, flow: Flow, request: Request, now: float) -> Call:
        batch = request.block.source.batch
        stored = read_request(request.text)
        request.custom_id = stored.custom_id
        request.started = now
        body: bytes | memoryview = memoryview(stored.body)
        if batch.defaults or flow.server_name is not None:
            body = prepare(bytes(body), batch.url, batch.defaults, flow.server_name)
        return Call(batch.path, body, self._limits.request_seconds, request, self._ended)

    # -- what became of it -------------------------------------------------------------------------------------

    def _ended(self, call: Call, came: Reply | Broken) -> None:
        now = monotonic()
        self._came_in.append((call, came, now))
        if not self._is_due:
            self._is_due = True
            self._soon(call, now)
        elif len(self._came_in) >= AT_ONCE:
            self._take_in()

    def _soon(self, call: Call, now: float) -> None:
        """Take in what has come when the loop has turned, or when some more may have come."""
        loop = asyncio.get_running_loop()
        request = call.what
        assert type(request) is Request
        window = min((now - request.started) * PART, LONGEST_WINDOW)
        if self._held.running < MANY or window < 0.001:
            loop.call_soon(self._take_in_due)
        else:
            loop.call_later(window, self._take_in_due)

    def _take_in_due(self) -> None:
        self._is_due = False
        self._take_in()

    def _take_in(self) -> None:
        """Hand over what has ended, and start what may start in its place."""
        alone = self._held.alone
        on_routes: dict[Route, list[Flow]] = {}
        while self._came_in:
            flow = self._end(*self._came_in.popleft())
            if flow is not None:
                on_routes[flow.route] = flow.siblings
        if alone is not None and not self._held.running:
            # It has ended, or is to be written down.
            self._ring()
            return
        for flows in on_routes.values():
            for flow in flows:
                self.pump(flow)

    def _end(self, call: Call, came: Reply | Broken, now: float) -> Flow | None:
        """One of them; returns its flow, None where it belongs to others now."""
        request = call.what
        assert type(request) is Request
        source = request.block.source
        flow = source.flow
        flow.route.tally.end(now, request.started)
        given_up = call in self._given_up
        if given_up:
            self._given_up.discard(call)
        if source.batch.forgotten:
            return None
        flow.running.discard(call)
        flow.in_flight -= 1
        flow.ended += 1
        source.in_flight -= 1
        self._held.note_end(flow.model)
        if self._held.alone is request:
            self._held.end_turn(now)
        came_to = read_reply(
            came, most_bytes=self._limits.result_bytes, local_engine=flow.route.is_local, now=self._clock.about(now)
        )
        if source.batch.defaults:
            came_to = within_context(came_to, source.batch.defaults.get("max_context_length"), request.text)
        flow.settle(request, came_to.usage)
        if came_to.code is None:
            flow.route.failing.pop(source.batch.no, None)
            flow.route.tally.answer(now - request.started, came_to.usage)
            if flow.route.is_troubled:
                flow.route.note_answer()
            self._endings.answer(request, came_to, now)
        else:
            self._endings.failed(request, came_to, came, now, given_up or self._endings.cutting)
        return flow
