"""The limits of a process while it runs: what the settings in the database say, and nothing starts on a full disk."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from overnight.domain import events, settings_table
from overnight.domain.errors import BadRequest, Unusable
from overnight.domain.limits import GIB, Limits
from overnight.domain.settings_table import TABLE
from overnight.loops import Bell
from overnight.monotonic import monotonic
from overnight.store import settings
from overnight.store.pool import LOST, Store

REFRESH_EVERY = 1.75
"""Seconds after a look until the next one where nothing rings and no heartbeat tells. What changes rings the worker, so
that it has its effect everywhere within two seconds."""
LEAST_WAIT = 0.05
LEAST_FREE_BYTES = GIB
LEAST_FREE_SHARE = 0.05


class CurrentLimits:
    """Keeps the one `Limits` of a process, which all its rooms hold, as it is to be now."""

    def __init__(self, store: Store, limits: Limits, disk_is_low: Callable[[], bool]) -> None:
        self._store = store
        self._limits = limits
        self._slots = limits.slots
        self._disk_is_low = disk_is_low
        self._was_low = False
        self._looked_at = self._asked = float("-inf")
        self.bell = Bell()
        """A setting may have been changed."""
        self._heard = 0

    @property
    def is_disk_low(self) -> bool:
        """Whether nothing starts because the disk was almost full at the last look."""
        return self._was_low

    async def take_first(self, environment: Mapping[str, str]) -> None:
        """Let the environment give those settings a value that nobody has set yet.

        Raises Unusable where it names one that cannot be taken.
        """
        stored = await settings.read(self._store)
        named = [setting for setting in TABLE if environment.get(setting.name) and setting.name not in stored]
        try:
            first = {setting.name: setting.read(environment[setting.name]) for setting in named}
        except BadRequest as e:
            raise Unusable(f"{e.message} It was given in the environment.") from None
        if first:
            await settings.set_first(self._store, first)

    async def round(self) -> bool:
        """Look at the settings and at the disk; says whether anything is other than before."""
        asked = self._looked_at = monotonic()
        self._heard = self.bell.rings
        try:
            return self.take(await settings.read(self._store), asked)
        except LOST:
            # What was known holds on; whoever needs the database tells that it is gone.
            return self._follow(None)

    async def round_if_due(self) -> bool:
        """`round`, where the bell rang or no heartbeat told of the settings lately."""
        if self.bell.rings == self._heard and self._due_in() > 0:
            return False
        return await self.round()

    def wait(self) -> float:
        """Seconds to wait for the next look."""
        return max(LEAST_WAIT, self._due_in())

    def take(self, stored: Mapping[str, object], asked: float) -> bool:
        """Follow what was set, as a look says that was asked for at a moment of the monotonic clock; see `round`.

        One that was asked for before the last one is passed over: it may not know yet what that one knew.
        """
        if asked < self._asked:
            return False
        self._asked = asked
        self._looked_at = max(self._looked_at, asked)
        return self._follow(stored)

    def _due_in(self) -> float:
        return self._looked_at + REFRESH_EVERY - monotonic()

    def _follow(self, stored: Mapping[str, object] | None) -> bool:
        before = copy.copy(self._limits)
        if stored is not None:
            settings_table.apply(self._limits, settings_table.in_force(stored))
        low = self._disk_is_low()
        if low != self._was_low:
            events.tell("disk_low" if low else "disk_has_room")
            self._was_low = low
        self._limits.slots = self._slots if self._limits.enabled and not low else 0
        return self._limits != before


def disk_is_low(folder: Path) -> bool:
    """Whether less than 5 % or 1 GiB of the disk below `folder` is free."""
    usage = shutil.disk_usage(folder)
    return usage.free < min(LEAST_FREE_BYTES, LEAST_FREE_SHARE * usage.total)
