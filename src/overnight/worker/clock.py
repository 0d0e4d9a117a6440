"""The database's clock, which decides windows, as this process can know it without asking."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time

from overnight.monotonic import monotonic


class Clock:
    """Keeps the difference between the database's clock and this process's monotonic one.

    It is never behind the database by more than the clocks drift apart between two looks, and ahead by at most the
    time that a statement takes: so nothing starts after its window has closed.
    """

    def __init__(self) -> None:
        self._offset = time() - monotonic()
        self._about = (float("-inf"), datetime.fromtimestamp(0, UTC))

    def set(self, now: datetime, asked: float) -> None:
        """The database's clock stood at `now` at some moment after `asked`, by the monotonic clock."""
        self._offset = now.timestamp() - asked
        self._about = (float("-inf"), now)

    def now(self) -> datetime:
        """The database's time now."""
        return self.moment(monotonic())

    def moment(self, at: float) -> datetime:
        """The database's time for a moment of the monotonic clock."""
        return datetime.fromtimestamp(at + self._offset, UTC)

    def about(self, at: float) -> datetime:
        """As `moment`, up to a second behind and in a tenth of the time."""
        if at - self._about[0] > 1.0:
            self._about = (at, self.moment(at))
        return self._about[1]

    def milliseconds(self, at: float) -> int:
        """Unix milliseconds by the database's clock for a moment of the monotonic one."""
        return int((at + self._offset) * 1000)

    def monotonic_of(self, moment: datetime) -> float:
        """When a moment of the database's clock comes, by the monotonic one."""
        return moment.timestamp() - self._offset
