"""How the workers of a deployment share the slots of a model that has a cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TURN_SECONDS = 10
"""How long one of too few slots is left to a worker before it is another one's turn."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker has of a model, and wants of it: numbers of requests at once."""

    worker: int
    granted: int
    wanted: int
    interactive: int = 0
    """Requests of people that run on the model there."""
    lingers: bool = False
    """The worker is dead, and what it ran may still run."""


def slots_for_batches(cap: int, reserve: int, shares: Sequence[Share]) -> int:
    """What a cap leaves to batches: people's requests take their slots one by one, and `reserve` is kept for more."""
    return max(0, cap - reserve - sum(share.interactive for share in shares))


def left_to_batches(most: int, slots: int, interactive: int, reserve: int) -> int:
    """What a server leaves to batches that may be given `most` requests now and runs at most `slots` at once.

    The reserve is kept of its slots: kept of the number that is found while it runs, it would keep that from growing.
    """
    return max(0, min(most, slots - reserve) - interactive)


def beside_interactive(allowed: int, told: int, interactive: int) -> int:
    """What a worker may run of a model at once, given what it was `allowed` when it told of `told` interactive ones.

    More of these take from what it has. Fewer give nothing back before it has asked: the cap need not have had room
    for those there were, as nobody keeps them back.
    """
    return max(0, allowed - max(0, interactive - told))


def fair_share(worker: int, shares: Sequence[Share], slots: int, turn: int) -> int:
    """How many of `slots` a worker should have: as many as it wants, up to a level that is the same for all.

    All shares together use the slots up where they are wanted. Where there are fewer slots than workers that want
    one, those whose `turn` it is have one each; a turn lasts `TURN_SECONDS`, so that nobody waits for ever.
    """
    left = max(0, slots - sum(share.granted for share in shares if share.lingers))
    wants = sorted(
        (min(share.wanted, left), share.worker) for share in shares if share.wanted > 0 and not share.lingers
    )
    workers = sorted(no for _, no in wants)
    if worker not in workers:
        return 0
    if left < len(wants):
        return int((workers.index(worker) - turn * left) % len(workers) < left)
    for index, (wanted, no) in enumerate(wants):
        given = min(wanted, left // (len(wants) - index))
        if no == worker:
            return given
        left -= given
    raise AssertionError("the worker is one of those that want slots")


def settle(holds: int, target: int, free: int) -> tuple[int, int]:
    """What a worker may run from now on, and what it is granted: `allowed`, `granted`.

    It aims at `target`; `free` slots are nobody else's. It `holds` what it runs or may have started by now, and keeps
    a grant for all of that: nothing is stopped when a cap or a share shrinks, but nothing starts above `allowed`.
    So all grants together never rise above the cap, however old the view is that `target` was made from.
    """
    allowed = max(0, min(target, free))
    return allowed, max(holds, allowed)
