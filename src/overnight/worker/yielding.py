"""What batches leave to interactive requests, in this process and at once."""

from __future__ import annotations

from overnight.catalog.load import Load
from overnight.catalog.route import Route
from overnight.domain.grants import left_to_batches
from overnight.domain.limits import Limits


def most_running(route: Route, limits: Limits, now: float) -> int:
    """How many requests of batches may run on a route now, `now` by the monotonic clock."""
    return _left(route, limits, route.most_running(now))


def most_soon(route: Route, limits: Limits) -> int:
    """How many may within a moment, if people send no more requests than now."""
    return _left(route, limits, route.soon)


def _left(route: Route, limits: Limits, most: int) -> int:
    reserve = kept_free(limits)
    # Those at a server that failed too often may hang there as well: they are not to keep it from being tried.
    interactive = 0 if route.is_on_trial else route.interactive
    if not (reserve or interactive) or not limits.yields_to_interactive:
        return most
    return left_to_batches(most, route.slots, interactive, reserve)


def kept_free(limits: Limits) -> int:
    """Slots that nothing but interactive requests may use."""
    return limits.interactive_reserve if limits.yields_to_interactive else 0


def yielded_to(load: Load, limits: Limits, model: str) -> int:
    """Interactive requests of a model that batches give way to."""
    return load.of(model) if limits.yields_to_interactive else 0
