"""What becomes of each request that was sent: an answer, another try, or back to whoever comes next."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from overnight.domain import events, ids, result
from overnight.domain.alone import POISON
from overnight.domain.body import read_request
from overnight.domain.outcome import Again, Done, GiveUp, Try, decide, without_room
from overnight.monotonic import monotonic
from overnight.store.answers import ERROR, OUTPUT, Answer
from overnight.store.leases import FailedCall
from overnight.upstreams.http import Broken, Reply
from overnight.worker.clock import Clock
from overnight.worker.held import Held
from overnight.worker.queued import Queued
from overnight.worker.record import Recorder
from overnight.worker.request import Request

LONGEST_QUEUED_WAIT = timedelta(minutes=15)
LOST_WAIT = 0.25
"""Seconds, doubling with each loss; the supervisor of a local engine needs a moment to see that it died."""
LONGEST_LOST_WAIT = 5.0
MOST_TRIES_STORED = 32_767
MOST_FAILING = 10_000
"""Batches of which a route remembers that they fail there."""


class Endings:
    """Decides about tries that ended, and tells the recorder."""

    def __init__(
        self,
        held: Held,
        queued: Queued,
        clock: Clock,
        recorder: Recorder,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._held = held
        self._queued = queued
        self._clock = clock
        self._recorder = recorder
        self._chance = chance
        self.stopping = False
        """Nothing starts any more."""
        self.cutting = False
        """What still runs is given up and goes back."""

    def failed(self, request: Request, tried: Try, came: Reply | Broken, now: float, given_up: bool) -> None:
        """A try came to no response; `given_up` where it was cancelled here."""
        flow = request.block.source.flow
        events.tell("try_failed", code=tried.code, status=tried.status, route=flow.route.name)
        self._blame(request, tried, came, now)
        flow.route.tally.fail(tried)
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

    def _blame(self, request: Request, tried: Try, came: Reply | Broken, now: float) -> None:
        """A failure counts against the server, unless that answered and requests of other batches may do better there:
        those of one batch may fail whatever the server does.
        """
        source = request.block.source
        route = source.flow.route
        if not tried.blames_route:
            if isinstance(came, Reply):
                route.failing.pop(source.batch.no, None)
                route.note_answer()
            return
        if source.batch.no not in route.failing and len(route.failing) >= MOST_FAILING:
            del route.failing[next(iter(route.failing))]
        route.failing[source.batch.no] = None
        others = (other for flow in source.flow.siblings for other in flow.sources.values())
        if isinstance(came, Broken) or not any(other.may_do_well(now) for other in others):
            route.note_failure(now, request.started, answered=isinstance(came, Reply))

    def _decide(self, request: Request, tried: Try, now: float) -> None:
        batch = request.block.source.batch
        match decide(tried, request.tries, self._clock.now(), batch.window_ends, self._chance()):
            case Done():
                self.answer(request, tried, now)
            case GiveUp(reason):
                self.answer(request, replace(tried, message=f"{tried.message} No further try: {reason}."), now)
            case Again(at):
                self._try_again(request, tried, self._clock.monotonic_of(at), now)

    def answer(self, request: Request, tried: Try, now: float) -> None:
        """What a try came to is final."""
        block = request.block
        batch = block.source.batch
        started_ms = self._clock.milliseconds(request.started)
        request_id = ids.new_text(ids.REQUEST, started_ms)
        text = result.of_try(batch.id, request.line, request.custom_id, request_id, tried)
        if tried.code is None and not batch.has_room_for(len(text)):
            tried = without_room(tried)
            text = result.of_try(batch.id, request.line, request.custom_id, request_id, tried)
        answer = Answer(
            line=request.line,
            text=text,
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

    def refuse(self, request: Request, now: float) -> None:
        """Answer a request that was written down and is not sent: its batch has no room for what would come."""
        source = request.block.source
        source.flow.unchoose(request)
        request.sent -= 1
        self._held.unsent.append((source.batch.no, request.group, request.line))
        if request is self._held.alone:
            self._held.end_turn(now)
        request.custom_id = read_request(request.text).custom_id
        request.started = now
        self.answer(request, without_room(None), now)

    def _try_again(
        self, request: Request, tried: Try, until: float, now: float, *, counted: bool = True, lost: bool = False
    ) -> None:
        """Note the try, and let the request wait; one of a batch that starts nothing more is left to its end, one of a
        block that goes back anyway to whoever has that next.
        """
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
        if source.batch.closed or self.cutting or not request.block.whole:
            self._held.drop(request)
        else:
            self._held.wait(request, until)

    def give_up(self, request: Request) -> None:
        """Answer a request that workers died of, as it comes back."""
        request.custom_id = read_request(request.text).custom_id
        request.started = monotonic()
        self.answer(request, _poison(request), request.started)

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
        if source.batch.closed or self.stopping or not request.block.whole:
            self._held.unsend(request)
            return
        self._held.unsent.append((source.batch.no, request.group, request.line))
        self._held.wait(request, now + LOST_WAIT)

    def _lose_server(self, request: Request, tried: Try, now: float) -> None:
        """The engine died: it is started again, and this was no try, unless the request is what it dies of."""
        request.losses += 1
        if request.losses > POISON:
            self.answer(request, _poison(request), now)
            return
        request.alone = request.losses >= POISON
        wait = min(LOST_WAIT * 2.0 ** min(request.losses - 1, 16), LONGEST_LOST_WAIT)
        self._try_again(request, tried, now + wait, now, counted=False, lost=True)


def _poison(request: Request) -> Try:
    says = f"{request.losses} times a worker or an engine died while this request ran, the last time it ran alone."
    return Try(status=None, code="upstream_error", message=f"{says} It is not tried again.")
