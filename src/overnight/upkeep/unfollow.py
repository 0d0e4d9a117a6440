"""Removes from the folder of incremental files those of batches that were deleted, by whomever."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from overnight.domain import events
from overnight.store import deletion
from overnight.store.pool import Store

EVERY = 60.0
"""Seconds between looks at the folder."""

PAGE = 500

_NAME = re.compile(r"(batch_[0-9a-f]{32})(?:\.errors)?\.jsonl")


class Unfollow:
    """Goes by the names of deleted batches that the database keeps, and removes nothing else.

    Whatever was interrupted, or written by somebody who did not know of a deletion yet, is found by the next look.
    A file of a batch that the database has never heard of is left alone: it may be another database's.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = float("-inf")

    async def look(self, folder: Path) -> None:
        """Remove what should not be there, once a minute."""
        if time.monotonic() < self._next:
            return
        found = await asyncio.to_thread(_list, folder)
        known = sorted(found)
        for at in range(0, len(known), PAGE):
            for batch in await deletion.list_deleted(self._store, known[at : at + PAGE]):
                await asyncio.to_thread(_remove, found[batch])
        self._next = time.monotonic() + EVERY


def _list(folder: Path) -> dict[str, list[Path]]:
    """Public id of a batch → its files."""
    found: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match:
            found.setdefault(match[1], []).append(path)
    return found


def _remove(files: list[Path]) -> None:
    for path in files:
        try:
            path.unlink(missing_ok=True)
        except OSError as e:
            events.tell("incremental_failed", e, batch=path.name.partition(".")[0])
