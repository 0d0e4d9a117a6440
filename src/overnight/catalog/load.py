"""Interactive requests that are in flight through this process: what batches give way to."""

from __future__ import annotations

from collections.abc import Callable

from overnight.catalog.route import Route
from overnight.monotonic import monotonic


class Load:
    """Counts them by model, and on their routes.

    `on_end` hears of each that ends, with its route: a batch's request may start in its place.
    """

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self.on_end: list[Callable[[Route], None]] = []

    @property
    def models(self) -> tuple[str, ...]:
        """The models that some are in flight of."""
        return tuple(self._of)

    def of(self, model: str) -> int:
        """How many of a model are in flight."""
        return self._of.get(model, 0)

    def begin(self, route: Route, model: str) -> None:
        """One is sent."""
        self._of[model] = self._of.get(model, 0) + 1
        route.interactive += 1
        route.tally.begin(monotonic())

    def end(self, route: Route, model: str) -> None:
        """One has ended."""
        left = self._of[model] - 1
        if left:
            self._of[model] = left
        else:
            del self._of[model]
        route.interactive -= 1
        route.tally.end(monotonic())
        for hear in self.on_end:
            hear(route)
