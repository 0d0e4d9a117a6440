"""One way to reach models: a server, what it serves, and whether it may be used now."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from overnight.catalog.tally import Tally
from overnight.store.served import Offer
from overnight.upstreams.http import Call, Pool
from overnight.upstreams.streamed import StreamPool

MOST_INTERACTIVE = 1_024
"""Interactive requests that one process has in flight on one route."""

V1 = "/v1"
"""What the paths of OpenAI-compatible servers begin with."""


class _Closes(Protocol):
    async def close(self) -> None: ...


class Route(ABC):
    """A server that runs requests.

    `slots` is how many of them it runs at once. `on_change` hears of everything that may let requests start: the
    server came up, or lists other models.
    """

    is_local = False
    """The server is an engine of this process: when it dies under a request, that was no try."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tally = Tally()
        """Hears of every request that starts and ends on it."""
        self.interactive = 0
        """Interactive requests in flight on it."""
        self.failing: dict[int, None] = {}
        """Batches whose last request that ended here failed as it does where a server is down, by their numbers."""
        self.on_change: list[Callable[[], None]] = []

    @property
    @abstractmethod
    def slots(self) -> int:
        """Requests that the server may run at once."""

    @property
    def soon(self) -> int:
        """Requests that it may run at once within a moment: so many are worth holding."""
        return self.slots

    @property
    @abstractmethod
    def offers(self) -> tuple[Offer, ...]:
        """The models it serves; empty while that is not known."""

    @property
    @abstractmethod
    def pool(self) -> Pool | None:
        """The connections to it; None while it is down."""

    @property
    def streams(self) -> StreamPool | None:
        """The connections for interactive requests, so that none waits behind a batch's; None while it is down."""
        return None

    @abstractmethod
    def most_running(self, now: float) -> int:
        """How many requests may run on it now, `now` by the monotonic clock: 0 while it is down.

        Interactive ones are among them, though nobody keeps these back.
        """

    @property
    def slot_caches(self) -> int | None:
        """The server caches the beginnings of prompts in so many slots, each for itself; None: all slots share them.

        What the first kind has computed in one slot it computes again in any other. vLLM, SGLang and hosted servers
        share them.
        """
        return None

    is_troubled = False
    """Requests failed lately by the server's fault: only then it has to hear of answers."""

    @abstractmethod
    def note_answer(self) -> None:
        """A request was answered, well or not: the server is there."""

    @abstractmethod
    def note_failure(self, now: float, began: float, *, answered: bool = False) -> None:
        """A request that `began` at some moment failed by the server's fault; `answered` where it said so itself."""

    def probe_early(self, now: float) -> None:
        """Requests have come of which none failed here: while it is on trial one may show that it is well again."""
        return

    @abstractmethod
    async def tend(self) -> bool:
        """One round of looking after it; says whether its offers changed."""

    async def watch(self) -> None:
        """Ask the server how busy it is, where it tells; called every second or two."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Give up all calls and close the connections."""

    def is_up(self, now: float) -> bool:
        """Whether a request may start on it."""
        return self.most_running(now) > 0

    @property
    def is_on_trial(self) -> bool:
        """It failed too often: what is sent to it now shows whether it is well again."""
        return False

    @property
    def blocked(self) -> str | None:
        """Why nothing can start on it now, one of `domain.waiting`; None where something can."""
        return None

    @property
    def takes_any_model(self) -> bool:
        """Its server does not say what it serves."""
        return any(offer.any_model for offer in self.offers)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it says it serves."""
        return tuple(offer.model for offer in self.offers if not offer.any_model)

    def name_of(self, model: str) -> str | None:
        """The name that a body must have for this server; None: whatever it has is fine."""
        return None

    def send(self, call: Call, most_tokens: int | None) -> None:
        """Send a request of a batch that allows so many tokens for prompt and answer. The server must be up."""
        pool = self.pool
        assert pool is not None
        pool.send(call)

    def cancel(self, call: Call) -> None:
        """Give up a call that was sent here; one that has ended stays as it is."""
        if self.pool is not None:
            self.pool.cancel(call)

    def tell_change(self) -> None:
        """Tell everyone that requests may be able to start."""
        for hear in self.on_change:
            hear()


async def close_all(pools: Sequence[_Closes]) -> None:
    """Close pools that are no longer used."""
    await asyncio.gather(*(pool.close() for pool in pools))
