"""The rounds of upkeep: they change the state of batches and run nothing."""

from __future__ import annotations

from overnight.loops import Round
from overnight.upkeep.days import OpenDays
from overnight.upkeep.deps import Upkeep as Upkeep
from overnight.upkeep.expire import Expire
from overnight.upkeep.follow import Follow
from overnight.upkeep.purge import Purge
from overnight.upkeep.rescue import Rescue
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate

WOKEN = frozenset({"validate", "seal", "follow"})
"""Rounds for which a new batch, a cancel or a flush means work; the others look at the clock."""


def rounds(deps: Upkeep) -> list[tuple[str, Round, float]]:
    """Name, round and seconds between its looks, of all that one process does."""
    return [
        ("validate", Validate(deps).round, 0.5),
        ("seal", Seal(deps).round, 0.5),
        ("follow", Follow(deps).round, 1.0),
        ("expire", Expire(deps).round, 2.0),
        ("rescue", Rescue(deps).round, 2.0),
        ("purge", Purge(deps).round, 30.0),
        ("open days", OpenDays(deps).round, 3600.0),
    ]
