"""The connections to a server that carry no call."""

from __future__ import annotations

import select
from collections.abc import Iterable

from overnight.upstreams.connection import Connection

_MOST_ASKED = 64
"""Connections taken at once: so few that what was found out is still true when the last of them is written to."""


class Idle:
    """Idle connections, those used last on top."""

    def __init__(self) -> None:
        # A dict is a stack that also forgets any of its members at once.
        self._connections: dict[Connection, None] = {}

    def add(self, connection: Connection, now: float) -> None:
        """A connection is free from a moment of the monotonic clock."""
        connection.idle_since = now
        self._connections[connection] = None

    def discard(self, connection: Connection) -> None:
        """A connection is idle no more."""
        self._connections.pop(connection, None)

    def put_back(self, connections: Iterable[Connection]) -> None:
        """Connections were taken and not used."""
        for connection in connections:
            self._connections[connection] = None

    def take(self, most: int, now: float) -> list[Connection]:
        """Some connections that can carry a call, at most so many; empty where there are none.

        The kernel is asked about all of them at once, because the loop learns of a server's goodbye only at its next
        turn. A request that is never written can go out on another connection; one written after the goodbye could
        have been processed for all we know (RFC 9110, section 9.2.2), and a model call is not free.
        """
        most = min(most, _MOST_ASKED)
        idle = self._connections
        found: list[Connection] = []
        while idle and not found:
            poll = select.poll()
            while idle and len(found) < most:
                connection = idle.popitem()[0]
                if connection.close_unless_fresh(now):
                    found.append(connection)
                    poll.register(connection.number, select.POLLIN)
            gone = {number for number, _ in poll.poll(0)}
            if gone:
                for connection in found:
                    if connection.number in gone:
                        connection.close()
                found = [connection for connection in found if connection.number not in gone]
        return found
