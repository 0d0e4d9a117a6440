"""One interactive request on its way: the routes it may take, the one that answers, and the reply as it comes."""

from __future__ import annotations

from datetime import UTC, datetime

from overnight.catalog.find import is_known, lacks_of, resolve, routes_to
from overnight.catalog.route import MOST_INTERACTIVE, Route
from overnight.catalog.routes import Routes
from overnight.domain.body import prepare
from overnight.domain.errors import ModelNotFound, NotReady
from overnight.domain.limits import Limits
from overnight.domain.outcome import Try
from overnight.interactive.asked import Asked, refuse_what_is_lacking
from overnight.interactive.refused import LONGEST_ERROR, Refused, as_refused, judge
from overnight.monotonic import monotonic
from overnight.store.pool import Store
from overnight.store.served import list_served
from overnight.upstreams.http import Broken, Reply
from overnight.upstreams.streamed import CutError, Exchange, Head

BUSY_AGAIN = 1


class Asking:
    """Tries the routes of a model one after the other until one begins to answer.

    Whoever has one must `cancel` it in the end; that may come at any time, from anywhere in the loop.
    """

    def __init__(self, store: Store, routes: Routes, limits: Limits, asked: Asked) -> None:
        self._store = store
        self._routes = routes
        self._limits = limits
        self._asked = asked
        self._exchange: Exchange | None = None
        self._given_up = False

    async def begin(self) -> Head | Refused:
        """Wait for the head of a good reply, or for what is answered instead. Raises ModelNotFound and NotReady."""
        model, routes = await self._find()
        while True:
            route = routes.pop(0)
            began = monotonic()
            head = await self._send(route, model)
            if isinstance(head, Head) and 200 <= head.status < 300:
                if route.is_troubled:
                    route.note_answer()
                return head
            came = await self._read_error(head)
            tried = judge(came, is_local=route.is_local, now=datetime.now(UTC))
            _tell(route, tried, began, answered=isinstance(came, Reply))
            if self._given_up or not routes or not tried.may_pass:
                return as_refused(came, tried)

    async def next(self) -> bytes:
        """The next piece of the reply's body, empty at its end. Raises CutError."""
        assert self._exchange is not None
        return await self._exchange.next()

    @property
    def is_whole(self) -> bool:
        """Whether the last piece was the last of the reply's body, which is known no later than with the next."""
        return self._exchange is not None and self._exchange.is_whole

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._given_up = True
        if self._exchange is not None:
            self._exchange.cancel()

    # -- where to ----------------------------------------------------------------------------------------------

    async def _find(self) -> tuple[str, list[Route]]:
        """The model's own id, and the routes to it that can be used, the best first."""
        asked = self._asked
        model = resolve(self._routes.offers, asked.model, asked.target.name)
        if model is None:
            raise await self._not_found()
        routes = [route for route in routes_to(self._routes, model) if route.streams is not None]
        if not routes:
            raise NotReady(f"The server of {asked.model[:200]!r} is loading or down. Try again in a moment.")
        routes = [route for route in routes if route.interactive < MOST_INTERACTIVE]
        if not routes:
            raise NotReady(
                f"{MOST_INTERACTIVE:,} calls to {asked.model[:200]!r} are under way.", retry_after=BUSY_AGAIN
            )
        refuse_what_is_lacking(asked, lacks_of((o for route in routes for o in route.offers), model))
        now = monotonic()
        routes.sort(key=lambda route: (route.is_on_trial, route.tally.running / max(1, route.most_running(now))))
        return model, routes

    async def _not_found(self) -> ModelNotFound | NotReady:
        """Other processes may serve what this one cannot reach; so may one that was just asked what it serves."""
        name = self._asked.model[:200]
        elsewhere = await list_served(self._store)
        if resolve((o for o in elsewhere if not o.any_model), self._asked.model, self._asked.target.name) is not None:
            return NotReady(f"The model {name!r} is served by another process of this deployment: call that one.")
        if is_known(elsewhere, name):
            says = f"The model {name!r} does not answer to {self._asked.target.url}."
        else:
            says = f"No server that is connected serves the model {name!r}."
        return ModelNotFound(says, param="model")

    # -- on the way --------------------------------------------------------------------------------------------

    async def _send(self, route: Route, model: str) -> Head | Broken:
        pool = route.streams
        if pool is None or self._given_up:
            raise NotReady(f"The server of {self._asked.model[:200]!r} has just gone. Try again in a moment.")
        load = self._routes.load
        target, body = self._asked.target, self._asked.body
        body = prepare(body, target.url, {}, route.name_of(model))
        exchange = Exchange(pool, target.path, body, self._limits.request_seconds, lambda _: load.end(route, model))
        load.begin(route, model)
        self._exchange = exchange
        return await exchange.begin()

    async def _read_error(self, head: Head | Broken) -> Reply | Broken:
        """The whole of a reply that is none, up to a length that no error has."""
        exchange = self._exchange
        assert exchange is not None
        if isinstance(head, Broken):
            return head
        body = bytearray()
        try:
            while len(body) < LONGEST_ERROR and (piece := await exchange.next()):
                body += piece
        except CutError as cut:
            if not body:
                return cut.broken
        exchange.cancel()
        return Reply(head.status, bytes(body), head.retry_after, head.content_type, 0.0)


def _tell(route: Route, tried: Try, began: float, *, answered: bool) -> None:
    """What the rules that keep batches from a server have to know of an interactive request that failed there."""
    route.tally.fail(tried)
    if tried.blames_route:
        route.note_failure(monotonic(), began, answered=answered)
    elif tried.status is not None:
        route.note_answer()
