"""All routes of this process, and what it tells the deployment about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from overnight.catalog.load import Load
from overnight.catalog.route import Route
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.store.served import Offer, list_served, serve

TEND_EVERY = 5.0
"""Seconds between two rounds of looking after the routes."""
WATCH_EVERY = 1.5
"""Seconds between two looks at how busy their servers say they are, while requests run there."""


_Offered: TypeAlias = tuple[tuple[Offer, ...], str | None]
"""The offers of one route, and why it starts nothing now."""


class Routes:
    """The routes that a process reaches models by. Where it has a worker, they are told to everybody, as `served`."""

    def __init__(self, routes: Sequence[Route] = (), *, runs_batches: bool = True) -> None:
        self._routes = list(routes)
        self._runs_batches = runs_batches
        self.load = Load()
        self._offered: tuple[tuple[_Offered, ...], tuple[Offer, ...]] = ((), ())
        self._told: tuple[int, tuple[Offer, ...]] | None = None
        self._elsewhere: frozenset[str] = frozenset()
        self.on_change: list[Callable[[], None]] = []
        self.all_blocked: Callable[[], str | None] = lambda: None
        """Why this process starts nothing at all, one of `domain.waiting`."""
        for route in self._routes:
            route.on_change.append(self._tell_change)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """What all routes together offer, each model once.

        It is blocked where all that offer it are, and lacks what any of them does: a request may go to each.
        """
        # Each interactive request asks, and hardly ever is it other than before.
        now = tuple([(route.offers, self.all_blocked() or route.blocked) for route in self._routes])
        if now != self._offered[0]:
            self._offered = (now, _merged(now))
        return self._offered[1]

    def models_of_others(self, route: Route) -> tuple[str, ...]:
        """Models that somebody lists, so that a route which takes any name leaves them alone."""
        listed = {model for other in self._routes if other is not route for model in other.models}
        return tuple(sorted(listed | self._elsewhere))

    async def round(self, store: Store, life: Life) -> bool:
        """Look after each route, then tell what is offered, where that or this worker's number changed."""
        changed = False
        for route in self._routes:
            changed |= await route.tend()
        if changed:
            self._tell_change()
        offers = self.offers
        if self._runs_batches and self._told != (life.no, offers):
            told = (life.no, offers)
            await serve(store, life.no, offers)
            self._told = told
        if any(route.takes_any_model for route in self._routes):
            served = await list_served(store)
            self._elsewhere = frozenset(s.model for s in served if s.worker != life.no and not s.any_model)
        return False

    async def watch(self) -> bool:
        """Ask the servers that run requests how busy they are."""
        await asyncio.gather(*(route.watch() for route in self._routes if route.tally.running))
        return False

    async def close(self) -> None:
        """Close all connections."""
        for route in self._routes:
            await route.close()

    def _tell_change(self) -> None:
        for hear in self.on_change:
            hear()


def _merged(offered: Sequence[_Offered]) -> tuple[Offer, ...]:
    found: dict[str, Offer] = {}
    for offers, blocked in offered:
        for offer in offers:
            known = found.get(offer.model, replace(offer, blocked=blocked))
            lacks = tuple(sorted({*known.lacks, *offer.lacks}))
            found[offer.model] = replace(known, blocked=known.blocked and blocked, lacks=lacks)
    return tuple(found[model] for model in sorted(found))
