"""Starts requests that are written down, and sees to what becomes of each.

All of it runs in callbacks: the connection that brings an answer hands it over, and the next request starts on it.
There is no task and no future for a request.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from msgspec.structs import replace

from overnight.domain import events, ids, result
from overnight.domain.body import prepare, read_request
from overnight.domain.concurrency.rule import is_refusal
from overnight.domain.limits import Limits
from overnight.domain.outcome import Again, Done, GiveUp, Try, decide
from overnight.store.answers import ERROR, OUTPUT, Answer
from overnight.store.leases import FailedCall
from overnight.store.life import Life
from overnight.upstreams.answer import read_reply
from overnight.upstreams.http import Broken, Call, Reply
from overnight.worker.clock import Clock
from overnight.worker.flow import Flow, Request
from overnight.worker.grants import Grants
from overnight.worker.held import Held
from overnight.worker.laned import bring_forward
from overnight.worker.lease import POISON
from overnight.worker.queued import Queued
from overnight.worker.record import Recorder

LONGEST_QUEUED_WAIT = timedelta(minutes=15)
LOST_WAIT = 0.25
"""Seconds, doubling with each loss; the supervisor of a local engine needs a moment to see that it died."""
LONGEST_LOST_WAIT = 5.0
MOST_TRIES_STORED = 32_767


class Starter:
    """Keeps the slots of all flows full for as long as there are requests written down."""

    def __init__(
        self,
        held: Held,
        life: Life,
        limits: Limits,
        grants: Grants,
        queued: Queued,
        clock: Clock,
        recorder: Recorder,
        ring: Callable[[], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._held = held
        self._life = life
        self._limits = limits
        self._grants = grants
        self._queued = queued
        self._clock = clock
        self._recorder = recorder
        self._ring = ring
        self._chance = chance
        self.stopping = False
        """Nothing starts any more."""
        self.cutting = False
        """What still runs is given up and goes back."""
        self.given_up: set[Call] = set()
        """Calls that were cancelled here: they were no tries, and may start again."""

    # -- starting ----------------------------------------------------------------------------------------------

    def pump_all(self) -> None:
        """Start what may start, on all flows."""
        for flow in list(self._held.flows.values()):
            self.pump(flow)

    def pump(self, flow: Flow) -> None:
        """Start requests of a flow while there are free slots; ask for more to be written down in good time."""
        if flow.reserve and not self.stopping:
            now = monotonic()
            room = self._room(flow, now)
            while room > 0 and flow.reserve:
                if flow.lanes is not None:
                    bring_forward(flow)
                request = flow.reserve[0]
                batch = request.block.source.batch
                if not batch.may_start(now):
                    self._held.close(batch)
                elif request.alone and not self._may_run_alone(request):
                    break
                else:
                    flow.reserve.popleft()
                    self._start(flow, request, now)
                    room -= 1
        if len(flow.reserve) < flow.low and flow.untaken and flow.wants_since is None:
            flow.wants_since = monotonic()
            self._ring()

    def _room(self, flow: Flow, now: float) -> int:
        held = self._held
        if now < flow.held_until or not self._life.may_start():
            return 0
        if held.alone is not None and self._keeps_others_waiting(held.alone, now):
            return 1 if held.running == 0 and flow.reserve[0] is held.alone else 0
        on_route = sum([len(sibling.running) for sibling in flow.siblings])
        room = flow.route.most_running(now) - on_route
        room = min(room, self._recorder.most_running(self._limits.slots) - held.running)
        return min(room, self._grants.room(flow))

    def _keeps_others_waiting(self, alone: Request, now: float) -> bool:
        """A request that is to run alone, unless its server is down and nobody knows for how long."""
        return self._held.alone_runs or alone.block.source.flow.route.is_up(now)

    def _may_run_alone(self, request: Request) -> bool:
        """From now on nothing starts until what runs has ended, and then this request runs by itself."""
        self._held.alone = request
        return self._held.running == 0

    def _start(self, flow: Flow, request: Request, now: float) -> None:
        batch = request.block.source.batch
        stored = read_request(request.text)
        request.custom_id = stored.custom_id
        request.started = now
        body = bytes(stored.body)
        if batch.defaults or flow.server_name is not None:
            body = prepare(body, batch.url, batch.defaults, flow.server_name)
        call = Call(batch.path, body, self._limits.request_seconds, request, self._ended)
        flow.running.add(call)
        flow.route.tally.begin(now)
        self._held.note_start(flow.model)
        self._held.alone_runs = request.alone
        pool = flow.route.pool
        assert pool is not None
        pool.send(call)

    # -- what became of it -------------------------------------------------------------------------------------

    def _ended(self, call: Call, came: Reply | Broken) -> None:
        request = call.what
        assert type(request) is Request
        source = request.block.source
        flow = source.flow
        now = monotonic()
        flow.route.tally.end(now)
        given_up = call in self.given_up
        self.given_up.discard(call)
        if source.batch.forgotten:
            return
        flow.running.discard(call)
        flow.in_flight -= 1
        flow.ended += 1
        source.in_flight -= 1
        self._held.note_end(flow.model)
        was_alone = self._held.alone is request
        if was_alone:
            self._held.alone = None
            self._held.alone_runs = False
        came_to = read_reply(
            came, most_bytes=self._limits.result_bytes, local_engine=flow.route.is_local, now=self._clock.about(now)
        )
        flow.settle(request, came_to.usage)
        if came_to.code is None:
            flow.route.tally.answer(now - request.started, came_to.usage)
            if flow.route.is_troubled:
                flow.route.note_answer()
            self._answer(request, came_to, now)
        else:
            self._failed(request, came_to, came, now, given_up or self.cutting)
        if was_alone:
            self.pump_all()
        else:
            for sibling in flow.siblings:
                self.pump(sibling)

    def _failed(self, request: Request, tried: Try, came: Reply | Broken, now: float, given_up: bool) -> None:
        flow = request.block.source.flow
        events.tell("try_failed", code=tried.code, status=tried.status, route=flow.route.name)
        if tried.blames_route:
            flow.route.note_failure(now)
        elif isinstance(came, Reply):
            flow.route.note_answer()
        if is_refusal(tried):
            flow.route.tally.refuse(tried.retry_after.total_seconds() if tried.retry_after else 0.0)
        if given_up and isinstance(came, Broken):
            self._hand_back(request, tried, now)
        elif tried.queued:
            self._wait_for_model(request, tried, now)
        elif flow.route.is_local and isinstance(came, Broken) and not came.sent:
            self._unsend(request, now)
        elif flow.route.is_local and tried.lost_server:
            self._lose_server(request, tried, now)
        else:
            self._decide(request, tried, now)

    def _decide(self, request: Request, tried: Try, now: float) -> None:
        batch = request.block.source.batch
        match decide(tried, request.tries, self._clock.now(), batch.window_ends, self._chance()):
            case Done():
                self._answer(request, tried, now)
            case GiveUp(reason):
                self._answer(request, replace(tried, message=f"{tried.message} No further try: {reason}."), now)
            case Again(at):
                self._try_again(request, tried, self._clock.monotonic_of(at), now)

    def _answer(self, request: Request, tried: Try, now: float) -> None:
        block = request.block
        batch = block.source.batch
        started_ms = self._clock.milliseconds(request.started)
        request_id = ids.new_text(ids.REQUEST, started_ms)
        answer = Answer(
            line=request.line,
            text=result.of_try(batch.id, request.line, request.custom_id, request_id, tried),
            kind=OUTPUT if tried.code is None else ERROR,
            tries=min(request.tries, MOST_TRIES_STORED),
            status=tried.status,
            code=tried.code,
            started_ms=started_ms,
            took_ms=int((now - request.started) * 1000),
            usage=tried.usage,
        )
        self._held.bytes -= len(request.text)
        self._recorder.add(block, answer, now)

    def _try_again(
        self, request: Request, tried: Try, until: float, now: float, *, counted: bool = True, lost: bool = False
    ) -> None:
        """Note the try, and let the request wait; one of a batch that starts nothing more is left to its end."""
        source = request.block.source
        request.uncounted += not counted
        self._recorder.calls.append(
            FailedCall(
                batch=source.batch.no,
                line=request.line,
                attempt=min(request.sent, MOST_TRIES_STORED),
                took_ms=int((now - request.started) * 1000),
                status=tried.status,
                code=tried.code or "",
                message=tried.message,
                again_at=self._clock.moment(until),
                counted=counted,
                lost=lost,
            )
        )
        if source.batch.closed or self.cutting:
            self._held.drop(request)
        else:
            source.flow.wait(request, until)

    def give_up(self, request: Request) -> None:
        """Answer a request that workers died of, as it comes back."""
        request.custom_id = read_request(request.text).custom_id
        request.started = monotonic()
        self._answer(request, _poison(request), request.started)

    def _hand_back(self, request: Request, tried: Try, now: float) -> None:
        """It was given up here: whoever takes the request over starts it at once, and this was no try."""
        self._try_again(request, tried, now, now, counted=False)

    def _wait_for_model(self, request: Request, tried: Try, now: float) -> None:
        """The model waits for a machine: nothing of it starts for a while, and this was no try."""
        wait = min(tried.retry_after or LONGEST_QUEUED_WAIT, LONGEST_QUEUED_WAIT).total_seconds()
        self._queued.hold(request.block.source.flow.model, now + wait)
        self._try_again(request, tried, now + wait, now, counted=False)

    def _unsend(self, request: Request, now: float) -> None:
        """The engine was gone before the request reached it: it waits for the next one, as if nothing had been."""
        source = request.block.source
        request.sent -= 1
        source.flow.refund(request)
        if source.batch.closed or self.stopping:
            self._held.unsend(request)
            return
        self._held.unsent.append((source.batch.no, request.group, request.line))
        source.flow.wait(request, now + LOST_WAIT)

    def _lose_server(self, request: Request, tried: Try, now: float) -> None:
        """The engine died: it is started again, and this was no try, unless the request is what it dies of."""
        request.losses += 1
        if request.losses > POISON:
            self._answer(request, _poison(request), now)
            return
        request.alone = request.losses >= POISON
        wait = min(LOST_WAIT * 2.0 ** min(request.losses - 1, 16), LONGEST_LOST_WAIT)
        self._try_again(request, tried, now + wait, now, counted=False, lost=True)


def _poison(request: Request) -> Try:
    says = f"{request.losses} times a worker or an engine died while this request ran, the last time it ran alone."
    return Try(status=None, code="upstream_error", message=f"{says} It is not tried again.")
