"""Leases blocks: enough to keep the slots full, from several batches at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil

from overnight.catalog.route import Route
from overnight.catalog.routes import Routes
from overnight.domain.limits import BLOCK_BYTES, BLOCK_LINES, MIB, Limits
from overnight.monotonic import monotonic
from overnight.store import leases
from overnight.store.leases import LeasedBlock, Wanted
from overnight.store.pool import Session
from overnight.worker import room
from overnight.worker.arrivals import Arrivals
from overnight.worker.clock import Clock
from overnight.worker.flow import Flow
from overnight.worker.grants import Grants
from overnight.worker.held import Held
from overnight.worker.request import Request
from overnight.worker.stock import Places, Stock, lacks_probe, note_more
from overnight.worker.surplus import Surplus
from overnight.worker.texts import Texts
from overnight.worker.yielding import most_soon

MOST_BYTES = 256 * MIB
"""Of the requests held; those that run are most of them where slots are many or requests large."""
MIX_BYTES = 64 * MIB
MIX = 256
"""Batches of which at least one block is held, so that a small batch need not wait for the end of a large block. More
are held only of owners of whom there is too little to have their share."""
LOOK_EVERY = 0.5
"""Seconds between two looks for blocks when the last one found none."""
IDLE_LOOK_EVERY = 4.0
"""The same while nothing is held: whoever has new work rings."""
LEAST_WAITING = 1_024
"""So many requests of a batch may wait for another try; with more of them no block of it is leased."""


class Lessee:
    """Leases blocks for the routes of a worker."""

    def __init__(
        self,
        held: Held,
        routes: Routes,
        limits: Limits,
        grants: Grants,
        clock: Clock,
        only: Callable[[], Sequence[int] | None],
        surplus: Surplus,
        give_up: Callable[[Request], None],
    ) -> None:
        """`give_up` answers a request that is not to run any more."""
        self._held = held
        self._surplus = surplus
        self._routes = routes
        self._limits = limits
        self._grants = grants
        self._clock = clock
        self._only = only
        self._arrivals = Arrivals(held, clock, give_up)
        self._texts = Texts(held)
        self._after: dict[str, int] = {}
        """The owner after whom to look next, by route."""
        self._places = Places()
        self._look_at: dict[tuple[str, bool], float] = {}
        self._lines_each = float(BLOCK_LINES)
        self._bytes_each = float(BLOCK_BYTES)

    def forget(self) -> None:
        """What was leased belongs to others."""
        self._arrivals.forget()
        self._places.forget()
        self._surplus.forget()
        self.look_now()

    def look_now(self) -> None:
        """There may be new work."""
        self._look_at.clear()

    async def reconcile(self, session: Session) -> None:
        """Give back what a broken statement may have leased without our knowing."""
        worker = self._held.worker
        mine = await leases.list_leases(session, worker)
        self._held.check(worker)
        known = {(block.source.batch.no, block.seq) for batch in self._held.batches.values() for block in batch.blocks}
        known |= self._arrivals.known
        unknown = [(batch, seq, False) for batch, seq in mine if (batch, seq) not in known]
        if unknown:
            await leases.end_leases(session, worker, unknown)
            self._held.check(worker)

    async def round(self, session: Session) -> bool:
        """Lease what there is room for; says whether anything came."""
        found = await self._arrivals.round(session)
        found |= await self._texts.round(session)
        for route in self._routes:
            for _ in range(room.STATEMENTS):
                wanted = self._wanted(route)
                if wanted is None or not await self._lease(session, route, wanted):
                    break
                found = True
            if route.is_on_trial and not lacks_probe(self._held.flows_of(route), monotonic()):
                route.probe_early(monotonic())
        return found

    # -- what to ask for ---------------------------------------------------------------------------------------

    def _wanted(self, route: Route) -> Wanted | None:
        now = monotonic()
        if not route.offers or self._limits.per_model == 0 or not self._limits.slots:
            return None
        flows = self._held.flows_of(route)
        if not (lacks_probe(flows, now) if route.is_on_trial else route.is_up(now)):
            return None
        lines = 1 if route.is_on_trial else self._lines(route, flows)
        is_early = now < self._look_at.get((route.name, lines > 0), 0.0)
        are_several = any(len(flow.shares.waiting) > 1 for flow in flows)
        if is_early and not are_several:
            return None
        stock = Stock(flows)
        short = self._held.more.get(route.name, set()) - stock.well_fed if are_several else set()
        if is_early and not short:
            return None
        self._look_at[route.name, lines > 0] = now + (LOOK_EVERY if self._held.batches else IDLE_LOOK_EVERY)
        if lines or short:
            # Where an owner is short, it comes first: without any requests it would lose turns.
            most = self._blocks(max(lines, ceil(stock.enough) * len(short)))
            return self._ask(route, stock, most, stock.well_fed if short else set(), in_order=True)
        return self._ask(route, stock, *self._mix(stock), in_order=False)

    def _ask(self, route: Route, stock: Stock, most: int, fed: set[int], *, in_order: bool) -> Wanted | None:
        """Ask for so many blocks of all owners but those in `fed`: what is due first, or one of each batch."""
        if most <= 0:
            return None
        flows = self._held.flows_of(route)
        of_others = self._routes.models_of_others(route) if route.takes_any_model else ()
        most_waiting = max(LEAST_WAITING, 2 * route.slots)
        full = [s.batch.no for s in stock.sources if s.waiting >= most_waiting]
        full += self._surplus.left(route, monotonic(), has_enough=not in_order)
        held = [] if in_order else [s.batch.no for s in stock.sources if s.untaken and s.owner in stock.well_fed]
        of_owner = -(-most // max(1, len(stock.owners.keys() - fed)))
        return Wanted(
            models=None if route.takes_any_model else route.models,
            other_models=(*self._full_models(flows, in_order and not fed), *of_others),
            most=most,
            of_owner=of_owner,
            of_each=of_owner if in_order else 1,
            after=self._after.get(route.name, 0),
            only=self._only(),
            skipped=full + held,
            held=[no for no in held if no not in full],
            fed=list(fed),
            places=self._places.of(route.name, monotonic()),
            in_order=in_order,
        )

    def _mix(self, stock: Stock) -> tuple[int, set[int]]:
        """There is enough for the slots: how many blocks to add, so that every owner and many batches are held.

        Also says which owners get none: with enough batches held, those of whom enough is held.
        """
        room_for = int((MIX_BYTES - self._held.bytes) // self._bytes_each)
        most = min(MIX - stock.batches, room.MOST_BLOCKS, room_for)
        if most > 0:
            return most, set()
        return min(room.MOST_BLOCKS, int((MOST_BYTES - self._held.bytes) // self._bytes_each)), stock.well_fed

    def _lines(self, route: Route, flows: list[Flow]) -> int:
        cap = min(most_soon(route, self._limits), self._limits.slots)
        if self._limits.per_model is not None and not route.takes_any_model:
            cap = min(cap, self._limits.per_model * len(route.models))
        return room.lines_to_lease(
            cap,
            sum(flow.in_flight for flow in flows),
            sum(flow.untaken for flow in flows),
            sum(flow.rate.value for flow in flows),
            sum(flow.low for flow in flows),
            route.slot_caches or 0,
        )

    def _blocks(self, lines: int) -> int:
        if not self._held.batches:
            # One block always fits, however large its requests are.
            return max(1, room.blocks_to_lease(lines, self._lines_each, self._bytes_each, MOST_BYTES))
        left = MOST_BYTES - self._held.bytes
        return room.blocks_to_lease(lines, self._lines_each, self._bytes_each, left)

    def _full_models(self, flows: list[Flow], for_slots: bool) -> list[str]:
        """Models that have no slot for what they have or, asked for the slots, enough under their cap."""
        cap = self._limits.per_model
        # A server on trial is asked for by one that may do well there, whatever else is held and has no slot.
        if cap is None or not flows or flows[0].route.is_on_trial:
            return []
        lanes = flows[0].route.slot_caches or 0
        return [
            f.model
            for f in flows
            if (f.untaken and self._grants.is_waiting(f.model))
            or (for_slots and not room.lines_to_lease(cap, f.in_flight, f.untaken, f.rate.value, f.low, lanes))
        ]

    # -- asking ------------------------------------------------------------------------------------------------

    async def _lease(self, session: Session, route: Route, wanted: Wanted) -> bool:
        worker = self._held.worker
        asked = monotonic()
        blocks, now = await self._find(session, route, wanted)
        self._held.check(worker)
        self._clock.set(now, asked)
        self._surplus.note_look(route, wanted, blocks)
        note_more(self._held.more.setdefault(route.name, set()), wanted, blocks)
        if not blocks:
            flows = self._held.flows_of(route)
            for flow in flows if self._lines(route, flows) else ():
                flow.is_dry = True
            return False
        self._look_at.clear()
        self._arrivals.add(route, blocks)
        self._after[route.name] = max((b.batch.owner for b in blocks), key=lambda no: (no <= wanted.after, no))
        if wanted.in_order and not route.is_on_trial:
            self._places.remember(route.name, blocks)
        self._lines_each = sum(len(b.lines) for b in blocks) / len(blocks)
        self._bytes_each = sum(sum(map(len, b.requests)) for b in blocks) / len(blocks)
        await self._arrivals.round(session)
        return True

    async def _find(self, session: Session, route: Route, wanted: Wanted) -> tuple[list[LeasedBlock], datetime]:
        """Lease; to probe a server first what did not fail there before, else anything where nothing is held."""
        worker = self._held.worker
        if not (route.is_on_trial and route.failing):
            return await leases.lease(session, worker, wanted)
        found = await leases.lease(session, worker, replace(wanted, skipped=[*wanted.skipped, *route.failing]))
        if found[0] or any(flow.untaken for flow in self._held.flows_of(route)):
            return found
        self._held.check(worker)
        return await leases.lease(session, worker, wanted)
