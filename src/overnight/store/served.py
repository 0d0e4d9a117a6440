"""What the living workers can run: one row for each worker and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from overnight.store.pool import Store
from overnight.store.statements import load

_SQL = load("worker")

ANY = "*"
"""Stands in for the model where a server does not say what it serves."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that a server says it serves, or `ANY` with `any_model`: then every name is worth a try.

    `targets` are names of `domain.targets`; `aliases` are other names that requests may use.
    """

    model: str
    aliases: tuple[str, ...]
    context_length: int | None
    targets: tuple[str, ...]
    any_model: bool = False
    lacks: tuple[str, ...] = ()
    """What it cannot carry of a request's body, named as in `domain.bodies.carry`."""
    blocked: str | None = None
    """Why nothing of it can start now, one of `domain.waiting`; None where something can."""


@dataclass(frozen=True, slots=True)
class Served(Offer):
    """An offer of one living worker."""

    worker: int = 0
    since: datetime | None = None
    """When the worker began."""


async def list_served(store: Store) -> list[Served]:
    """What the living workers offer, ordered by model."""
    rows = await store.rows(_SQL["list_served"])
    return [
        Served(
            model=row["model"],
            aliases=tuple(row["aliases"]),
            context_length=row["context_length"],
            targets=tuple(row["targets"]),
            any_model=row["any_model"],
            lacks=tuple(row["lacks"]),
            blocked=row["blocked"],
            worker=row["worker"],
            since=row["started_at"],
        )
        for row in rows
    ]


async def serve(store: Store, worker: int, offers: Sequence[Offer]) -> None:
    """Make these the offers of a worker, and no others. A dead worker offers nothing, whatever it says."""
    async with store.transaction() as session:
        for offer in offers:
            await session.run(
                _SQL["serve_model"],
                worker=worker,
                model=offer.model,
                aliases=offer.aliases,
                context_length=offer.context_length,
                targets=offer.targets,
                any_model=offer.any_model,
                lacks=offer.lacks,
                blocked=offer.blocked,
            )
        await session.run(_SQL["stop_serving_others"], worker=worker, models=[offer.model for offer in offers])
        await session.row(_SQL["tell_of_served"])
