"""The rounds of upkeep: they change the state of batches and run nothing."""

from __future__ import annotations

import asyncio
import time

from overnight.loops import Round, Seconds
from overnight.upkeep.days import DropDays, OpenDays
from overnight.upkeep.deps import Upkeep as Upkeep
from overnight.upkeep.expire import Expire
from overnight.upkeep.follow import Follow
from overnight.upkeep.foresee import Foresee
from overnight.upkeep.purge import Purge
from overnight.upkeep.queued import WatchQueued
from overnight.upkeep.rescue import Rescue
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate

QUIET = 5.0
"""Seconds between two looks for what a bell tells of: it may go unheard."""


def rounds(deps: Upkeep) -> list[tuple[str, Round, Seconds]]:
    """Name, round and seconds between its looks, of all that one process does.

    All may be woken by one bell that rings with every commit: each paces itself.
    """
    follow = Follow(deps)
    return [
        ("validate", paced(Validate(deps).round, 0.05), QUIET),
        ("seal", paced(Seal(deps).round, 0.05), QUIET),
        ("follow", paced(follow.round, 0.25), lambda: 1.0 if follow.is_busy else QUIET),
        ("expire", paced(Expire(deps).round, 1.0), 3.0),
        ("foresee", paced(Foresee(deps).round, 30.0), 30.0),
        ("watch queued", paced(WatchQueued(deps).round, 60.0), 60.0),
        ("rescue", paced(Rescue(deps).round, 2.0), 2.0),
        ("purge", paced(Purge(deps).round, 30.0), 30.0),
        ("open days", paced(OpenDays(deps).round, 3600.0), 3600.0),
        ("drop days", paced(DropDays(deps).round, 600.0), 600.0),
    ]


def paced(one_round: Round, least: float) -> Round:
    """A round that after a look in vain looks no sooner than in `least` seconds, however often it is called."""
    quiet_until = float("-inf")

    async def slower() -> bool:
        nonlocal quiet_until
        early = quiet_until - time.monotonic()
        if early > 0:
            await asyncio.sleep(early)
        found = await one_round()
        quiet_until = float("-inf") if found else time.monotonic() + least
        return found

    return slower
