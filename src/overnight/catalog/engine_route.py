"""A route to a local engine, whose address and key change with every start of it."""

from __future__ import annotations

from collections.abc import Callable

from overnight.catalog.found_room import FoundRoom
from overnight.catalog.measure import Measure
from overnight.catalog.route import V1, Route, close_all
from overnight.domain.context import may_need_more, room_for
from overnight.domain.targets import TARGETS
from overnight.domain.waiting import SERVER_BUSY, SERVER_DOWN, SERVER_LOADING
from overnight.engine.supervise import EngineState, LocalEngine, Phase
from overnight.store.served import Offer
from overnight.upstreams.http import Call, Endpoint, Pool
from overnight.upstreams.streamed import StreamPool

MOST_WAITING = 4
"""Interactive requests at the engine beyond its slots. The others wait here: an engine has a thread for each
connection, and must have one left for those who ask for its health."""
MOST_AHEAD = 16
"""Requests at the engine beyond those it is given to run, at the most."""


class EngineRoute(Route):
    """Requests wait while the engine is down; what it was running is no try of theirs.

    llama.cpp is given as many as the slots that it was started with. Where all share one cache, how many requests fit
    depends on their lengths, so the number is found while the engine runs, and anew after each of its starts.
    """

    is_local = True

    def __init__(self, engine: LocalEngine, *, most_reply_bytes: Callable[[], int]) -> None:
        super().__init__(engine.model.id)
        self._engine = engine
        self._most_reply_bytes = most_reply_bytes
        self._pool: Pool | None = None
        self._streams: StreamPool | None = None
        self._measure: Measure | None = None
        self._room: FoundRoom | None = None
        self._ahead = 0
        self._unused: list[Pool | StreamPool | Measure | FoundRoom] = []
        self._told = self.offers
        engine.on_change(self._heard)
        self._heard(engine.state)

    @property
    def slots(self) -> int:
        return self._engine.slots

    @property
    def soon(self) -> int:
        return self.slots if self._room is None else self._room.soon

    @property
    def slot_caches(self) -> int | None:
        # Embeddings are computed whole, with no cache.
        apart = not self._engine.model.embedding and not self._engine.launch.slots_share_cache
        return self._engine.slots if apart else None

    @property
    def offers(self) -> tuple[Offer, ...]:
        model = self._engine.model
        targets = tuple(target.name for target in TARGETS.values() if (target.name == "embeddings") == model.embedding)
        lacks = tuple(sorted(self._engine.launch.lacks))
        return (Offer(model.id, model.aliases, self._context_length, targets, lacks=lacks),)

    @property
    def _context_length(self) -> int:
        """What was asked for: an engine may have rounded it up."""
        return min(self._engine.context_length, self._engine.launch.context_length or self._engine.context_length)

    @property
    def blocked(self) -> str | None:
        if self._engine.is_ready:
            is_paused = self._room is not None and self._room.is_paused
            return SERVER_BUSY if is_paused and not self.tally.running else None
        return SERVER_LOADING if self._engine.state.phase is Phase.LOADING else SERVER_DOWN

    @property
    def pool(self) -> Pool | None:
        return self._pool

    @property
    def streams(self) -> StreamPool | None:
        return self._streams

    def most_running(self, now: float) -> int:
        if self._pool is None:
            return 0
        if self._room is None:
            return self.slots + self._ahead
        allowed = self._room.most_running(now)
        return allowed and allowed + self._ahead

    def send(self, call: Call, most_tokens: int | None) -> None:
        pool, measure = self._pool, self._measure
        assert pool is not None
        url = V1 + call.path
        of_engine = self._engine.context_length
        room = room_for(self._context_length, of_engine, most_tokens)
        refuses = room.tokens == of_engine and self._engine.launch.refuses_exactly
        if measure is None or refuses or not may_need_more(call.body, url, room):
            self._ahead = 0
            pool.send(call)
            return
        # While one is counted another is at the engine already, so that no slot waits for its next request.
        self._ahead = min(MOST_AHEAD, max(2, (self.slots if self._room is None else self._room.allowed) // 4))
        measure.send(call, url, room, pool)

    def cancel(self, call: Call) -> None:
        if self._measure is None or not self._measure.cancel(call):
            super().cancel(call)

    def note_answer(self) -> None:
        """The supervisor knows better than the answers whether the engine is well."""

    def note_failure(self, now: float, began: float, *, answered: bool = False) -> None:
        """See `note_answer`."""

    def _heard(self, state: EngineState) -> None:
        self._put_away()
        base_url, key = self._engine.base_url, self._engine.api_key
        if state.phase is Phase.READY and base_url is not None:
            endpoint, most = Endpoint(base_url + V1, key), self.slots + MOST_AHEAD
            self._pool = Pool(endpoint, most_connections=most, most_reply_bytes=self._most_reply_bytes)
            self._streams = StreamPool(endpoint, most_connections=self.slots + MOST_WAITING)
            count = self._engine.launch.count
            self._measure = Measure(Endpoint(base_url, key), count) if count is not None else None
            bounds = self._engine.launch.room
            self._room = FoundRoom(self.name, endpoint, bounds, self.tally) if bounds is not None else None
            self.tell_change()

    def _put_away(self) -> None:
        """Use the connections no more; they are closed with the next round."""
        used = (self._measure, self._pool, self._streams, self._room)
        self._unused += [one for one in used if one is not None]
        self._pool = self._streams = self._measure = self._room = None
        self._ahead = 0

    async def tend(self) -> bool:
        """Close the connections to engines that are gone; says whether this one differs from what it offered."""
        unused, self._unused = self._unused, []
        await close_all(unused)
        changed = self.offers != self._told
        self._told = self.offers
        return changed

    async def watch(self) -> None:
        if self._room is not None:
            await self._room.watch()

    async def close(self) -> None:
        self._put_away()
        await self.tend()
