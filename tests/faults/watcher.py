"""Looks at all batches again and again while faults happen, and remembers what must never be seen."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from overnight.domain.states import FINAL, FOLLOWS, Status

EVERY = 0.1

_SEEN = """
    SELECT id, status, total, completed, failed, cancelled, output_lines, error_lines, output_file_id, error_file_id
    FROM batch"""


class Watcher:
    """`violations` says what it saw: an arrow that there is not, a final state that changed, a counter that fell."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._last: dict[str, Any] = {}
        self._reaches = {status: _reach(status) for status in Status}
        self.violations: list[str] = []
        self.looks = 0

    async def run(self) -> None:
        """Look until cancelled; while the database is away there is nothing to see."""
        while True:
            try:
                connection = await asyncpg.connect(self._dsn, timeout=10)
                try:
                    while True:
                        await self._look(connection)
                        await asyncio.sleep(EVERY)
                finally:
                    connection.terminate()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                await asyncio.sleep(EVERY)

    async def _look(self, connection: Any) -> None:
        for row in await connection.fetch(_SEEN, timeout=20):
            batch = str(row["id"])
            before, self._last[batch] = self._last.get(batch), row
            if before is not None:
                self._compare(batch, before, row)
        self.looks += 1

    def _compare(self, batch: str, before: Any, row: Any) -> None:
        was, now = Status(before["status"]), Status(row["status"])
        if was in FINAL and dict(before) != dict(row):
            self.violations.append(f"{batch} was final and changed: {dict(before)} → {dict(row)}")
        if now not in self._reaches[was]:
            self.violations.append(f"{batch} went from {was} to {now}")
        for counter in ("completed", "failed", "cancelled", "output_lines", "error_lines"):
            if row[counter] < before[counter]:
                self.violations.append(f"{counter} of {batch} fell from {before[counter]} to {row[counter]}")


def _reach(status: Status) -> set[Status]:
    """Every state that can be seen after this one."""
    found = {status}
    waiting = [status]
    while waiting:
        for after in FOLLOWS[waiting.pop()]:
            if after not in found:
                found.add(after)
                waiting.append(after)
    return found
