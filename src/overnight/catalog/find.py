"""Which model a name means."""

from __future__ import annotations

from collections.abc import Iterable

from overnight.catalog.route import Route
from overnight.store.served import Offer


def resolve(served: Iterable[Offer], name: str, target: str) -> str | None:
    """The canonical id of the model that `name` means for a target; None where nobody serves that.

    An id wins over an alias, and both over servers that do not say what they serve and take every name as it is.
    """
    by_alias = as_it_is = None
    for offer in served:
        if target not in offer.targets:
            continue
        if offer.any_model:
            as_it_is = name
        elif offer.model == name:
            return name
        elif name in offer.aliases and by_alias is None:
            by_alias = offer.model
    return by_alias or as_it_is


def is_known(served: Iterable[Offer], name: str) -> bool:
    """Whether some server lists a model that `name` means, for whatever target."""
    return any(name in (offer.model, *offer.aliases) for offer in served)


def routes_to(routes: Iterable[Route], model: str) -> list[Route]:
    """The routes to a model, by its canonical id; those of servers that take every name only where none lists it."""
    known = list(routes)
    return [r for r in known if model in r.models] or [r for r in known if r.takes_any_model]


def lacks_of(served: Iterable[Offer], model: str) -> frozenset[str]:
    """What some server of a model cannot carry, named as in `domain.bodies.carry`: a request may go to any of them."""
    return frozenset(name for offer in served if offer.any_model or offer.model == model for name in offer.lacks)
