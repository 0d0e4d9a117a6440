"""A route to any OpenAI-compatible server by its URL; the server is asked what it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from overnight.catalog.circuit import Circuit
from overnight.catalog.found_room import FoundRoom
from overnight.catalog.listing import ask_for_models
from overnight.catalog.route import MOST_INTERACTIVE, V1, Route, close_all
from overnight.domain import events
from overnight.domain.concurrency.state import Bounds
from overnight.domain.targets import TARGETS
from overnight.domain.waiting import SERVER_BUSY, SERVER_UNREACHABLE
from overnight.monotonic import monotonic
from overnight.store.served import ANY, Offer
from overnight.upstreams.address import read_address
from overnight.upstreams.http import Endpoint, Pool
from overnight.upstreams.streamed import StreamPool

LIST_EVERY = 60.0
"""Seconds between two looks at what the server serves."""
_NEVER = float("-inf")
_ALL_TARGETS = tuple(target.name for target in TARGETS.values())
_ANY_MODEL = (Offer(ANY, (), None, _ALL_TARGETS, any_model=True),)


class UpstreamRoute(Route):
    """Make it inside the event loop. `url` is the base URL; one without a path gets the usual `/v1`.

    How many requests it is given at once is found by `domain.concurrency`, up to `slots` where that is given.
    `lacks` names what it cannot carry of a body, as `domain.bodies.carry` does.

    ValueError when the URL cannot be called.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        slots: int | None = None,
        lacks: Iterable[str] = (),
        ca_file: str | None = None,
        most_reply_bytes: Callable[[], int],
    ) -> None:
        address = read_address(url)
        base_url = url.rstrip("/") + ("" if address.prefix else V1)
        super().__init__(base_url)
        endpoint = Endpoint(base_url, api_key, ca_file)
        bounds = Bounds.of(slots)
        self._room = FoundRoom(base_url, endpoint, bounds, self.tally)
        self._pool = Pool(endpoint, most_connections=bounds.most + 16, most_reply_bytes=most_reply_bytes)
        self._streams = StreamPool(endpoint, most_connections=MOST_INTERACTIVE)
        self._circuit = Circuit()
        self._trial: float | None = None
        """The pause of the circuit after which the present trial began."""
        self._lacks = tuple(sorted(lacks))
        self._offers: tuple[Offer, ...] = ()
        self._listed_at = _NEVER
        self._is_silent = False

    @property
    def slots(self) -> int:
        return self._room.most

    @property
    def soon(self) -> int:
        return self._room.soon

    @property
    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    @property
    def blocked(self) -> str | None:
        # While requests run there it is well, whatever it says to the question for its models.
        if self._circuit.is_open or (self._is_silent and not self.tally.running):
            return SERVER_UNREACHABLE
        return SERVER_BUSY if self._room.is_paused and not self.tally.running else None

    @property
    def pool(self) -> Pool | None:
        return self._pool

    @property
    def streams(self) -> StreamPool:
        return self._streams

    @property
    def is_on_trial(self) -> bool:
        return self._circuit.is_open

    def most_running(self, now: float) -> int:
        most = self._circuit.most_running(self._room.most_running(now), now)
        if most and self._circuit.is_open:
            most += self._beside(now)
        return most

    def _beside(self, now: float) -> int:
        """Requests of batches that were sent before the trial and may hang for long: the probe runs beside them."""
        if self._trial != self._circuit.until:
            self._trial = self._circuit.until
            self.tally.set_aside(self.tally.running - self.interactive, now)
        return self.tally.aside

    def note_answer(self) -> None:
        was_open = self._circuit.is_open
        self._circuit.note_answer()
        self.is_troubled = False
        if was_open:
            events.tell("route_up", route=self.name)
            self.tell_change()

    def probe_early(self, now: float) -> None:
        self._circuit.probe_early(now)

    def note_failure(self, now: float, began: float, *, answered: bool = False) -> None:
        was_open = self._circuit.is_open
        self._circuit.note_failure(now, began, answered=answered)
        self.is_troubled = True
        if self._circuit.is_open and not was_open:
            events.tell("route_down", route=self.name)

    async def tend(self) -> bool:
        """Ask what it serves, once a minute; each time while it cannot be asked. What it listed stays meanwhile."""
        if monotonic() - self._listed_at < LIST_EVERY:
            return False
        listed = await ask_for_models(self._pool)
        self._is_silent = listed is None
        if listed is not None:
            self._listed_at = monotonic()
        offers = tuple(replace(offer, lacks=self._lacks) for offer in listed or self._offers or _ANY_MODEL)
        if offers == self._offers:
            return False
        self._offers = offers
        events.tell("models_listed", route=self.name, models=list(self.models)[:20], any_model=self.takes_any_model)
        return True

    async def watch(self) -> None:
        await self._room.watch()

    async def close(self) -> None:
        await close_all([self._pool, self._streams, self._room])
