"""Batches whose round failed: others come first for a while, so that one that can't be helped holds up nobody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from overnight.store.answers import Fenced
from overnight.store.pool import LOST
from overnight.upkeep.ingest import Lost

SECONDS = 30.0


class PutOff:
    """Remembers for a while which batches failed; a lost database or a lost batch is no fault of the batch."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def batches(self) -> list[int]:
        """The numbers of those that are not tried now."""
        now = time.monotonic()
        self._until = {batch: until for batch, until in self._until.items() if until > now}
        return list(self._until)

    @contextmanager
    def unless_done(self, batch: int) -> Iterator[None]:
        """Put a batch off where the block fails; the error goes on to whoever runs the round."""
        self._until[batch] = time.monotonic() + SECONDS
        try:
            yield
        except (Lost, Fenced, *LOST):
            del self._until[batch]
            raise
        del self._until[batch]
