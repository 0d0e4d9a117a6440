"""A process without a worker tells the others of its interactive requests of models that have a cap."""

from __future__ import annotations

from overnight.catalog.load import Load
from overnight.domain.limits import Limits
from overnight.store import grants
from overnight.store.answers import Fenced
from overnight.store.grants import Ask
from overnight.store.life import Life
from overnight.store.pool import LOST, Store

TELL_EVERY = 0.25
"""Seconds between two looks; without interactive requests a look asks the database nothing."""


class Telling:
    """What workers do beside asking for slots (`worker/grants`), for processes that want none."""

    def __init__(self, store: Store, life: Life, limits: Limits, load: Load) -> None:
        self._store = store
        self._life = life
        self._limits = limits
        self._load = load
        self._told: dict[str, int] = {}
        life.on_new_life.append(lambda _: self._told.clear())

    async def round(self) -> bool:
        """Tell what changed, and no more of what there is no more."""
        now = self._to_tell()
        if now == self._told:
            return False
        worker = self._life.no
        try:
            async with self._store.session() as session:
                changed = [model for model, count in now.items() if count != self._told.get(model)]
                if changed:
                    await grants.share(session, worker, [_ask(model, now[model]) for model in changed])
                over = sorted(self._told.keys() - now.keys())
                if over:
                    await grants.give_back(session, worker, over)
        except Fenced:
            await self._life.reborn(worker)
            return True
        except LOST:
            # What was told and what was not is unknown: all of it is told again.
            self._told = dict.fromkeys({*self._told, *now}, -1)
            return False
        self._told = now
        return False

    def _to_tell(self) -> dict[str, int]:
        limits = self._limits
        if limits.per_model is None or not limits.yields_to_interactive or not limits.shares_interactive_load:
            return {}
        return {model: self._load.of(model) for model in self._load.models}


def _ask(model: str, interactive: int) -> Ask:
    return Ask(model, running=0, holds=0, wanted=0, target=0, allowed=0, cap=0, interactive=interactive)
