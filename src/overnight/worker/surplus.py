"""What this worker cannot start soon goes back where others have free slots and find nothing to lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from overnight.catalog.route import Route
from overnight.catalog.routes import Routes
from overnight.domain import events
from overnight.domain.limits import Limits
from overnight.monotonic import monotonic
from overnight.store.leases import LeasedBlock, Wanted
from overnight.store.life import Life
from overnight.store.served import ANY
from overnight.worker import room
from overnight.worker.flow import Flow, Source
from overnight.worker.grants import Grants
from overnight.worker.held import Held
from overnight.worker.request import Block, Request
from overnight.worker.yielding import most_running

LOOK_EVERY = 0.25
REST = 3.0
"""Seconds after blocks of a route went back in which no others do: until others had time to lease them and to tell."""
LONGEST_REST = 60.0
"""The rest doubles up to this while nobody leases what went back."""
LEAVE_FOR = 1.0
"""Seconds for which what went back is left to others where this worker could start it by now."""
LEAVE_LONGER = 15.0
"""The same while it has enough to do."""
MOST_TOLD = 100
"""Models of which it is told how many slots are free; those that are run come first."""


class Surplus:
    """Tells which slots are idle here, and gives back what could start in those of others.

    Nothing goes back unless somebody said with its heartbeat that it has slots for it and nothing to lease, or another
    route of this process has. So it costs nothing while there is work for all.
    """

    def __init__(
        self,
        held: Held,
        routes: Routes,
        limits: Limits,
        life: Life,
        grants: Grants,
        only: Callable[[], Sequence[int] | None],
    ) -> None:
        self._held = held
        self._routes = routes
        self._limits = limits
        self._life = life
        self._grants = grants
        self._only = only
        self._look_at = 0.0
        self.forget()

    def forget(self) -> None:
        """What was leased belongs to others."""
        self._dry: set[str] = set()
        """Routes for which there was nothing to lease at the last look."""
        self._going: list[Block] = []
        """Blocks that go back as soon as what runs of them has ended."""
        self._left: dict[tuple[str, int], float] = {}
        """By route and batch, when blocks went back last."""
        self._given: dict[str, set[tuple[int, int]]] = {}
        """By route, the blocks that went back last and were not leased here again."""
        self._rests: dict[str, float] = {}
        self._give_at: dict[str, float] = {}

    # -- what is idle here -------------------------------------------------------------------------------------

    def note_look(self, route: Route, wanted: Wanted, blocks: Sequence[LeasedBlock]) -> None:
        """A look for blocks for a route gave these."""
        name = route.name
        given = self._given.get(name, set())
        was_given = bool(given)
        given.difference_update((block.batch.no, block.seq) for block in blocks)
        if was_given and not given:
            # All of it came back: whoever has free slots does not want it.
            self._rests[name] = min(2 * self._rests.get(name, REST), LONGEST_REST)
            self._give_at[name] = monotonic() + self._rests[name]
        if blocks and name in self._dry:
            # There is new work: whoever had none a moment ago, as this worker, may have some of it by now.
            self._give_at[name] = max(self._give_at.get(name, 0.0), monotonic() + REST)
        self._dry.discard(name)
        if wanted.in_order and not (blocks or wanted.skipped or wanted.fed):
            self._dry.add(name)

    def idle(self, now: float) -> dict[str, int]:
        """By model, the slots that are free here and for which nothing could be leased."""
        idle: dict[str, int] = {}
        for route in self._routes:
            free = self._free(route, now)
            if free:
                lately = [flow.model for flow in reversed(self._held.flows_of(route)) if flow.model in route.models]
                models = [ANY] if route.takes_any_model else [*dict.fromkeys((*lately, *route.models))]
                for model in models[:MOST_TOLD]:
                    idle[model] = idle.get(model, 0) + free
        return idle

    def _free(self, route: Route, now: float) -> int:
        # One that failed too often has a slot where a request may show whether it is well again: else others that hold
        # all there is, such as at a server that hangs, would keep that from it.
        if route.name not in self._dry or self._only() is not None:
            return 0
        flows = self._held.flows_of(route)
        free = most_running(route, self._limits, now) - sum([flow.in_flight + flow.untaken for flow in flows])
        return max(0, min(free, self._limits.slots - self._held.running))

    def _idle_for(self, flow: Flow, here: dict[Route, int]) -> int:
        """The slots of others in which requests of a flow could start."""
        if self._grants.is_used_up(flow.model):
            return 0
        elsewhere = self._life.idle_elsewhere
        found = elsewhere.get(flow.model, 0) + (elsewhere.get(ANY, 0) if flow.route.takes_any_model else 0)
        for route, free in here.items():
            takes = flow.model in route.models or (route.takes_any_model and flow.route.takes_any_model)
            if free and takes and route is not flow.route:
                found += free
        return found

    # -- what goes back ----------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Give back what others could start now and this worker could not."""
        if now < self._look_at or self._held.alone is not None:
            return
        self._look_at = now + LOOK_EVERY
        here = {route: self._free(route, now) for route in self._routes} if len(self._routes) > 1 else {}
        if not (self._life.idle_elsewhere or any(here.values())):
            return
        for route in self._routes:
            if now >= self._give_at.get(route.name, 0.0) and not route.is_on_trial:
                self._look_at_route(route, here, now)

    def _look_at_route(self, route: Route, here: dict[Route, int], now: float) -> None:
        flows = [flow for flow in self._held.flows_of(route) if now >= flow.held_until]
        giving = {flow: idle for flow in flows if (idle := self._idle_for(flow, here))}
        if not giving:
            return
        running = sum(len(flow.running) for flow in flows)
        cap = min(most_running(route, self._limits, now), self._limits.slots)
        cap = min(cap, sum([self._grants.room(flow) + self._held.running_of(flow.model) for flow in flows]))
        kept = room.lines_to_keep(cap, running, sum(flow.rate.value for flow in flows), route.slot_caches or 0)
        surplus = sum(len(flow.reserve) + flow.untaken for flow in flows) - kept
        if surplus <= 0:
            return
        for flow in giving:
            self._held.give_back_reserve(flow, kept)
        self._give_at[route.name] = now + self._rests.setdefault(route.name, REST)
        most = room.lines_to_give(surplus, max(giving.values()))
        chosen = _choose(list(giving), most, surplus, room.WAVES * max(kept, cap))
        if chosen:
            self._give(route, chosen)

    def _give(self, route: Route, chosen: Sequence[Block]) -> None:
        if self._given.get(route.name):
            # Somebody wanted something of what went back last.
            self._rests[route.name] = REST
        by_source: dict[Source, set[Block]] = {}
        for block in chosen:
            by_source.setdefault(block.source, set()).add(block)
        before = sum(flow.untaken for flow in self._held.flows_of(route))
        for source, blocks in by_source.items():
            self._held.give_back(source, blocks)
        self._going += chosen
        self._given[route.name] = {(block.source.batch.no, block.seq) for block in chosen}
        after = sum(flow.untaken for flow in self._held.flows_of(route))
        events.tell("surplus_given_back", route=route.name, requests=before - after, blocks=len(chosen))

    def left(self, route: Route, now: float, *, has_enough: bool) -> list[int]:
        """Batches of which blocks of a route went back a moment ago, so that they are left to others."""
        for block in [block for block in self._going if block not in block.source.batch.blocks]:
            self._going.remove(block)
            self._left[block.source.flow.route.name, block.source.batch.no] = now
        self._left = {place: at for place, at in self._left.items() if now < at + LEAVE_LONGER}
        since = now - (LEAVE_LONGER if has_enough else LEAVE_FOR)
        return [batch for (name, batch), at in self._left.items() if name == route.name and at > since]


def _choose(flows: Sequence[Flow], most: int, surplus: int, large: int) -> list[Block]:
    """Blocks with about so many requests that wait for their turn, those that would start last first.

    Blocks go back whole, and with at most `surplus` requests. One that is not idle, since something of it runs, goes
    back when that has ended; it is chosen only where there is no other one, and where what waits of it is `large`.
    """
    busy = {call.what.block for flow in flows for call in flow.running if type(call.what) is Request}
    for flow in flows:
        busy.update(request.block for request in (*flow.reserve, *flow.waiting.lone))
    counts = _count(flows)
    chosen: list[Block] = []
    given = 0
    for block, count in counts.items():
        if given >= most:
            break
        if block not in busy and given + count <= surplus:
            chosen.append(block)
            given += count
    if not chosen:
        chosen = sorted((block for block in counts if counts[block] > large), key=lambda block: -counts[block])[:1]
    return chosen


def _count(flows: Sequence[Flow]) -> dict[Block, int]:
    """How many requests of each block wait for their turn; the blocks that would start last come first."""
    counts: dict[Block, int] = {}
    sources = [source for flow in flows for source in flow.sources.values() if source.untaken]
    for source in sorted(sources, key=lambda source: -source.latest_start):
        of_source = Counter(request.block for request in source.list_untaken())
        counts.update(reversed(of_source.items()))
    return counts
