"""Slots of models with a cap: which worker may use how many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from overnight.domain.grants import Share
from overnight.store.answers import Fenced
from overnight.store.pool import Row, Session, Store
from overnight.store.statements import load

_SQL = load("grant")

SETTLED_AFTER = timedelta(seconds=15)
"""By then every worker has heard of a new cap, or was declared dead."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a worker tells and asks of one model. All are numbers of requests at once."""

    model: str
    running: int
    holds: int
    """What runs, and what may start while the statement is under way."""
    wanted: int
    target: int
    """The share that it should have by what it knows of the others."""
    allowed: int
    """What it may run so far."""
    cap: int
    """What the cap leaves after the reserve."""
    interactive: int = 0
    """Interactive requests of it that are in flight there; they come out of the same cap."""


@dataclass(frozen=True, slots=True)
class Given:
    """What came of it: how many requests may run, how many slots are taken for them, and what the others have."""

    model: str
    allowed: int
    granted: int
    others: tuple[Share, ...]
    seconds: int
    """The database's clock, in unix seconds."""


async def share(session: Session, worker: int, asks: Sequence[Ask]) -> list[Given]:
    """Tell and take; without asks the worker only says that it takes part. Raises Fenced where it was declared dead."""
    rows = await session.rows(
        _SQL["share_slots_if_alive"],
        worker=worker,
        models=[ask.model for ask in asks],
        running=[ask.running for ask in asks],
        holds=[ask.holds for ask in asks],
        wanted=[ask.wanted for ask in asks],
        targets=[ask.target for ask in asks],
        allowed=[ask.allowed for ask in asks],
        caps=[ask.cap for ask in asks],
        interactive=[ask.interactive for ask in asks],
        settled_after=SETTLED_AFTER,
    )
    if not rows[0]["alive"]:
        raise Fenced
    return [_given(row) for row in rows if row["model"] is not None]


def _given(row: Row) -> Given:
    columns = (row["workers"], row["grants"], row["wants"], row["interactive"], row["lingering"])
    others = () if row["workers"] is None else tuple(Share(*one) for one in zip(*columns, strict=True))
    return Given(row["model"], row["allowed"], row["granted"], others, row["seconds"])


async def give_back(session: Session, worker: int, models: Sequence[str]) -> None:
    """A worker that runs nothing of these models lets others have its slots."""
    await session.run(_SQL["give_back_slots"], worker=worker, models=models)


async def leave(session: Session, worker: int) -> None:
    """A worker takes no part any more: its models have no cap."""
    await session.run(_SQL["leave_caps"], worker=worker)


async def release(session: Session, worker: int) -> None:
    """What a dead worker ran was given up: others may have its slots at once."""
    await session.run(_SQL["release_slots_of_dead"], worker=worker)


async def settle_death(session: Session, worker: int, name: str, lingers: timedelta) -> None:
    """In the transaction that declares a worker dead: free its slots, or let them stay taken while it may be frozen.

    `name` is that of its sessions.
    """
    await session.run(_SQL["keep_slots_of_frozen"], worker=worker, name=name, lingers=lingers)
    await session.run(_SQL["release_slots_without_session"], worker=worker)


async def expect_end_of_sessions(store: Store, worker: int, name: str) -> None:
    """The sessions of a worker, by their `name`, are about to be ended from outside, whatever its process does."""
    await store.run(_SQL["mark_sessions_to_be_ended"], worker=worker, name=name)


async def release_ended(store: Store, prefix: str) -> bool:
    """Free slots of dead workers whose time is over or whose session, named `prefix` and its number, has ended."""
    return await store.run(_SQL["release_ended"], prefix=prefix) > 0


async def hold(session: Session, worker: int, waits: dict[str, timedelta]) -> None:
    """Let nobody start anything of some models for so long. Raises Fenced where the worker was declared dead."""
    row = await session.row(_SQL["hold_models_if_alive"], worker=worker, models=list(waits), waits=list(waits.values()))
    if not row["alive"]:  # type: ignore[index]  # it always gives a row
        raise Fenced


async def held(session: Session, models: Sequence[str]) -> dict[str, timedelta]:
    """Those of some models of which nothing may start, and for how long."""
    rows = await session.rows(_SQL["list_held_models"], models=models)
    return {row["model"]: row["wait"] for row in rows}


async def note_long_queued(store: Store, after: timedelta) -> list[Row]:
    """Models that have waited for a machine for so long and were not told of: `model`, `queued_since`. Told once."""
    return await store.rows(_SQL["note_long_queued_if_not_told"], after=after)


async def end_queued(store: Store, quiet: timedelta) -> list[str]:
    """Models of whose wait it was told, and that did not say for so long that they wait. Told once."""
    return [row["model"] for row in await store.rows(_SQL["end_queued_if_served"], quiet=quiet)]


async def forget_models(store: Store) -> bool:
    """Forget some models that nobody asked for in a day; says whether there were any."""
    return await store.run(_SQL["forget_models"]) > 0
