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
from overnight.store import settings
from overnight.store.pool import LOST, Store

REFRESH_EVERY = 1.0
"""Seconds between two looks where nothing rings: with a round of the worker after it a change has its effect everywhere
within two seconds."""
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
        before = copy.copy(self._limits)
        try:
            settings_table.apply(self._limits, settings_table.in_force(await settings.read(self._store)))
        except LOST:
            pass  # what was known holds on; whoever needs the database tells that it is gone
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
