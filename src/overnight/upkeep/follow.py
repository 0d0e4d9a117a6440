"""Keeps a file of each batch's results on this host, growing while the batch runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

from overnight.domain import events, ids
from overnight.store import batches, flock
from overnight.store.answers import ERROR, OUTPUT
from overnight.store.days import read_clock
from overnight.store.pool import Row, Store
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.incremental import DiskRefused, IncrementalFile
from overnight.upkeep.unfollow import Unfollow

PAGE = 500

LONGEST_COMMIT = timedelta(minutes=2)
"""A batch may become visible so long after the moment that its row says it ended at."""


class _Followed:
    """The two files of one batch."""

    def __init__(self, store: Store, folder: Path, row: Row) -> None:
        name = ids.show(ids.BATCH, row["id"])
        self.name = name
        self.failing = False
        self._output = IncrementalFile(store, row["no"], OUTPUT, folder / f"{name}.jsonl")
        self._errors = IncrementalFile(store, row["no"], ERROR, folder / f"{name}.errors.jsonl")

    async def catch_up(self, row: Row) -> bool:
        """Append what came since. The output is there from the start, to be tailed; errors when there is one."""
        has_all = await self._output.catch_up(row["output_bytes"])
        if row["error_bytes"]:
            has_all &= await self._errors.catch_up(row["error_bytes"])
        return has_all


class Follow:
    """Follows all batches; of the processes of a host only the one that holds the folder's lock does so.

    The lock's file says up to which moment all batches that ended are complete here, so that after a restart those
    are looked at which ended since. Nothing is written again that is right.
    """

    def __init__(self, deps: Upkeep) -> None:
        self._store = deps.store
        self._folder = deps.incremental_dir
        self._lock: int | None = None
        self._followed: dict[int, _Followed] = {}
        self._complete: dict[int, datetime] = {}
        """Batches that ended lately and whose files are complete: number → end."""
        self._since: datetime | None = None
        self._unfollow = Unfollow(deps.store)

    @property
    def is_busy(self) -> bool:
        """Whether there are batches whose files are not complete."""
        return bool(self._followed)

    async def round(self) -> bool:
        """Look at all batches that run or ended lately once; says whether some have more to come at once."""
        if self._folder is None or not self._holds_lock(self._folder):
            return False
        if self._since is None:
            self._since = self._remembered() or await read_clock(self._store)
        seen: set[int] = set()
        all_done = True
        async for row in self._running():
            seen.add(row["no"])
            all_done &= await self._follow(self._folder, row) is not False
        last, all_ended_done = self._since, True
        async for row in self._ended(self._since - LONGEST_COMMIT):
            seen.add(row["no"])
            if row["no"] not in self._complete:
                done = await self._follow(self._folder, row)
                all_done &= done is not False
                all_ended_done &= done is True
                if done:
                    self._complete[row["no"]] = row["ended_at"]
            last = max(last, row["ended_at"])
        if all_ended_done and last > self._since:
            self._remember(last)
        self._forget(seen)
        await self._unfollow.look(self._folder)
        return not all_done

    def close(self) -> None:
        """Let another process of this host follow."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _holds_lock(self, folder: Path) -> bool:
        if self._lock is not None:
            if (folder / ".lock").exists():
                return True
            # Somebody removed the folder: begin anew in another one of the same name.
            self.close()
            self._followed.clear()
            self._complete.clear()
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock = flock.open_lock(folder / ".lock")
        if not flock.try_alone(lock):
            os.close(lock)
            return False
        self._lock = lock
        return True

    async def _running(self) -> AsyncIterator[Row]:
        rows = await batches.list_running(self._store, 0, PAGE)
        while rows:
            for row in rows:
                yield row
            rows = await batches.list_running(self._store, rows[-1]["no"], PAGE) if len(rows) == PAGE else []

    async def _ended(self, since: datetime) -> AsyncIterator[Row]:
        rows = await batches.list_ended(self._store, since, 0, PAGE)
        while rows:
            for row in rows:
                yield row
            last = rows[-1]
            more = len(rows) == PAGE
            rows = await batches.list_ended(self._store, last["ended_at"], last["no"], PAGE) if more else []

    async def _follow(self, folder: Path, row: Row) -> bool | None:
        """Let one batch's files catch up; None where the disk refused, which is told once."""
        followed = self._followed.get(row["no"])
        if followed is None:
            followed = self._followed[row["no"]] = _Followed(self._store, folder, row)
        try:
            done = await followed.catch_up(row)
        except DiskRefused as e:
            if not followed.failing:
                events.tell("incremental_failed", e, batch=followed.name)
            followed.failing = True
            return None
        followed.failing = False
        return done

    def _forget(self, seen: set[int]) -> None:
        """Drop what is complete, and batches that were deleted."""
        for no in [no for no in self._followed if no not in seen or no in self._complete]:
            del self._followed[no]
        for no in [no for no in self._complete if no not in seen]:
            del self._complete[no]

    def _remembered(self) -> datetime | None:
        assert self._lock is not None
        text = os.pread(self._lock, 64, 0).decode("ascii", "replace").strip()
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return moment if moment.tzinfo is not None else None

    def _remember(self, moment: datetime) -> None:
        assert self._lock is not None
        self._since = moment
        text = moment.isoformat().encode().ljust(40) + b"\n"
        os.pwrite(self._lock, text, 0)
