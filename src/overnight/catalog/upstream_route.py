"""A route to any OpenAI-compatible server by its URL; the server is asked what it serves."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from overnight.catalog.circuit import Circuit
from overnight.catalog.listing import ask_for_models
from overnight.catalog.route import V1, Route
from overnight.domain import events
from overnight.domain.targets import TARGETS
from overnight.store.served import ANY, Offer
from overnight.upstreams.address import read_address
from overnight.upstreams.http import Endpoint, Pool

LIST_EVERY = 60.0
"""Seconds between two looks at what the server serves."""

_ALL_TARGETS = tuple(target.name for target in TARGETS.values())
_ANY_MODEL = (Offer(ANY, (), None, _ALL_TARGETS, any_model=True),)


class UpstreamRoute(Route):
    """Make it inside the event loop. `url` is the base URL; one without a path gets the usual `/v1`.

    ValueError when the URL cannot be called.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        slots: int,
        ca_file: str | None = None,
        most_reply_bytes: Callable[[], int],
    ) -> None:
        address = read_address(url)
        base_url = url.rstrip("/") + ("" if address.prefix else V1)
        super().__init__(base_url)
        self._slots = slots
        self._pool = Pool(
            Endpoint(base_url, api_key, ca_file), most_connections=slots + 16, most_reply_bytes=most_reply_bytes
        )
        self._circuit = Circuit()
        self._offers: tuple[Offer, ...] = ()
        self._listed_at = float("-inf")

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    @property
    def pool(self) -> Pool | None:
        return self._pool

    @property
    def is_on_trial(self) -> bool:
        return self._circuit.is_open

    def most_running(self, now: float) -> int:
        return self._circuit.most_running(self._slots, now)

    def note_answer(self) -> None:
        was_open = self._circuit.is_open
        self._circuit.note_answer()
        self.is_troubled = False
        if was_open:
            events.tell("route_up", route=self.name)
            self.tell_change()

    def note_failure(self, now: float) -> None:
        was_open = self._circuit.is_open
        self._circuit.note_failure(now)
        self.is_troubled = True
        if self._circuit.is_open and not was_open:
            events.tell("route_down", route=self.name)

    async def tend(self) -> bool:
        """Ask what it serves, once a minute; each time while it cannot be asked. What it listed stays meanwhile."""
        if monotonic() - self._listed_at < LIST_EVERY:
            return False
        listed = await ask_for_models(self._pool)
        if listed is not None:
            self._listed_at = monotonic()
        offers = listed or self._offers or _ANY_MODEL
        if offers == self._offers:
            return False
        self._offers = offers
        events.tell("models_listed", route=self.name, models=list(self.models)[:20], any_model=self.takes_any_model)
        return True

    async def close(self) -> None:
        await self._pool.close()
