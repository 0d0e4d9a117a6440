"""What is known of a database that has gone away: told once when it goes, and once when it is back."""

from __future__ import annotations

from overnight.domain import events
from overnight.loops import Away


class DatabaseLost(Away, ConnectionError):
    """The database has gone away; a later try may find it again. Its cause says how that showed itself."""


class Outage:
    """Whether the database of a process is away."""

    def __init__(self) -> None:
        self.is_on = False

    def lost(self, error: BaseException) -> DatabaseLost:
        """Tell that it is away, unless that is known; return what to raise."""
        if not self.is_on:
            self.is_on = True
            events.tell("database_lost", error)
        return DatabaseLost(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    def over(self) -> None:
        """Tell that it is back."""
        if self.is_on:
            self.is_on = False
            events.tell("database_back")
