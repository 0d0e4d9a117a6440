"""What the rounds of upkeep work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from overnight.domain.limits import Limits
from overnight.store.life import Life
from overnight.store.pool import Store


def _all_batches() -> Sequence[int] | None:
    return None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The parts of a process that upkeep is given."""

    store: Store
    life: Life
    limits: Limits
    only: Callable[[], Sequence[int] | None] = _all_batches
    """The numbers of the batches that may be checked, closed and sealed here; None: all of them."""
    incremental_dir: Path | None = None
    """Where results are also written as they come; None: nowhere."""
