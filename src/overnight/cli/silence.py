"""Says that a server, or a database, does not answer, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic

from overnight.cli import output
from overnight.cli.progress import span

THE_DATABASE = "the database has not been ready"
SAID_AFTER = (5, 15, 30, 60, 120, 300)
"""Seconds of silence after which a line says so."""
SHOWN_AFTER = 3
"""Seconds of silence from which on something that is drawn over shows it."""
EVERY = 1.0


class Silence:
    """Hears how long somebody has not answered. Says it in a line now and then, or has it shown where that is set."""

    def __init__(self, what: str, *, most: float | None = None) -> None:
        """`what` is as in "the server has not answered"; after `most` seconds nobody waits any more."""
        self._what = what
        self._most = most
        self._said = 0.0
        self._show: Callable[[str], None] | None = None

    def __call__(self, seconds: float) -> None:
        if self._show is not None:
            if seconds >= SHOWN_AFTER:
                self._show(f"{self._what} for {span(seconds)}")
            return
        if seconds < self._said:
            self._said = 0.0
        due = max((after for after in SAID_AFTER if after <= seconds), default=0)
        if due > self._said:
            self._said = due
            until = "" if self._most is None else f", up to {span(self._most)}"
            output.say(f"Waiting{until}: {self._what} for {span(seconds)}.")

    @contextmanager
    def shown_by(self, show: Callable[[str], None]) -> Iterator[None]:
        """Have `show` draw it, a few words until others take their place, while the block runs at a terminal."""
        self._show = show if output.aside.is_terminal else None
        try:
            yield
        finally:
            self._show = None

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Hear of silence for as long as the block runs."""
        counting = asyncio.ensure_future(self._count())
        try:
            yield
        finally:
            counting.cancel()
            await asyncio.wait([counting])

    async def _count(self) -> None:
        begun = monotonic()
        while True:
            await asyncio.sleep(EVERY)
            self(monotonic() - begun)
