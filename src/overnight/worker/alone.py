"""Gives requests that run alone their turns: one is written down when nothing else is in flight."""

from __future__ import annotations

from overnight.domain.limits import Limits
from overnight.store.pool import Session
from overnight.worker.flow import Flow
from overnight.worker.grants import Grants
from overnight.worker.held import Held
from overnight.worker.record import Recorder
from overnight.worker.request import Request
from overnight.worker.texts import Texts
from overnight.worker.yielding import most_running


class Alone:
    """Whose turn it is among the requests that are to run alone, by the rule of `domain.alone.Turns`."""

    def __init__(self, held: Held, limits: Limits, grants: Grants, recorder: Recorder) -> None:
        self._held = held
        self._limits = limits
        self._grants = grants
        self._recorder = recorder
        self._texts = Texts(held)

    def look(self, now: float) -> None:
        """End a turn that comes to nothing, and let one begin that is due, whatever else runs."""
        held = self._held
        if held.alone is not None and not held.alone_runs:
            flow = held.alone.block.source.flow
            is_over = held.turns.is_over(now, self._limits.request_seconds)
            if is_over or not self._may_start_soon(flow, now):
                if _is_written(held.alone):
                    held.give_back_reserve(flow)
                held.end_turn(now, in_vain=is_over)
        if held.alone is None and held.turns.is_due(now):
            self._begin(now)

    async def choose(self, session: Session, now: float) -> list[Request]:
        """The request to write down, once nothing else is in flight and all that was answered is stored.

        Should it kill this worker, it alone is lost: others must not count what was never sent as lost, either.
        """
        held = self._held
        if held.running:
            return []
        if held.alone is None and not any(flow.reserve for flow in held.flows.values()):
            # Others leave the slots free: none of them waits for it.
            self._begin(now)
        if held.alone is None or _is_written(held.alone):
            return []
        for other in held.flows.values():
            held.give_back_reserve(other)
        if held.unsent or not self._recorder.is_empty or not await self._has_text(session, held.alone):
            return []
        return [held.alone.block.source.flow.take_lone()]

    async def _has_text(self, session: Session, request: Request) -> bool:
        """Whether a request, of which the text is read again where it gave it back, still has its turn."""
        if request.text:
            return True
        text = (await self._texts.read(session, [request])).get(request)
        if request is not self._held.alone:
            return False
        if text is None:
            self._held.close(request.block.source.batch)
            return False
        self._held.take_text(request, text)
        request.block.source.flow.waiting.bytes += request.size
        return True

    def _begin(self, now: float) -> None:
        """The first of the flow that has waited longest has its turn, of those that could start now."""
        held = self._held
        able = [flow for flow in held.flows.values() if flow.waiting.lone and self._could_start(flow, now)]
        if able:
            flow = min(able, key=lambda flow: flow.waiting.had_turn_at)
            flow.waiting.had_turn_at = now
            held.alone = flow.waiting.lone[0]
            held.turns = held.turns.begin(now)

    def _could_start(self, flow: Flow, now: float) -> bool:
        """Whether it could start were it not for what this worker runs."""
        if not self._may_start_soon(flow, now) or most_running(flow.route, self._limits, now) <= 0:
            return False
        return self._grants.room(flow) + self._held.running_of(flow.model) > 0

    def _may_start_soon(self, flow: Flow, now: float) -> bool:
        """Whether it need not be waited for what may take long: a machine, a server that is down, an operator."""
        is_paused = not self._limits.slots or self._limits.per_model == 0
        return now >= flow.held_until and not is_paused and flow.route.is_up(now)


def _is_written(request: Request) -> bool:
    """Whether the request whose turn it is no longer waits for what runs."""
    lone = request.block.source.flow.waiting.lone
    return not lone or lone[0] is not request
