"""Drives the rounds of the house: each does one bounded helping and says whether it found work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from overnight.domain import events

Seconds = float | Callable[[], float]
Round = Callable[[], Awaitable[bool]]

LONGEST_AFTER_ERRORS = 30.0


class Away(Exception):
    """Something outside is away, which its own part of the house has told, and which is expected to come back."""


class Bell:
    """Wakes whoever waits for work. Nothing depends on it but speed: rounds come round by themselves.

    Ringing it rings `others` too.
    """

    def __init__(self, *others: Bell) -> None:
        self.rings = 0
        self._is_rung = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._others = others

    def ring(self) -> None:
        """Wake all that wait now, or else the next that will."""
        self.rings += 1
        self._is_rung = not self._waiting
        for waiter in self._waiting:
            _wake(waiter)
        for other in self._others:
            other.ring()

    async def wait(self, seconds: float, since: int | None = None) -> None:
        """Return when it rings, or after `seconds`; where several wait, each has its own time.

        With `since`, a count of `rings`, one that has rung after that is heard, whoever else heard it.
        """
        missed = self._is_rung if since is None else self.rings != since
        if missed:
            self._is_rung = False
            return
        # Not `asyncio.wait_for`: that of Python 3.11 forgets a cancellation that comes while it rings. Nor its
        # `timeout`, which early releases take for a cancellation in a task that was cancelled before and cleans up.
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        timer = loop.call_later(seconds, _wake, waiter)
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.discard(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def repeat(name: str, one_round: Round, *, every: Seconds, bell: Bell | None = None) -> None:
    """Run a round again and again: at once while it finds work, else every so many seconds or when woken.

    `every` may be a function, asked after each round.

    An error is told, unless it is Away, and the round comes again, later each time it fails in a row; cancelling ends
    it at once.
    """
    bell = bell or Bell()
    failures = 0
    while True:
        heard = bell.rings
        try:
            found = await one_round()
            failures = 0
        except Exception as e:  # noqa: BLE001 - a round must never end the process; the error is told
            failures += 1
            found = False
            if not isinstance(e, Away):
                events.tell("round_failed", e, round=name, in_a_row=failures)
        if found:
            await asyncio.sleep(0)
        else:
            seconds = every() if callable(every) else every
            later = min(seconds * 2**failures, max(LONGEST_AFTER_ERRORS, seconds)) if failures else seconds
            await bell.wait(later, heard)


def uncancel() -> None:
    """Let a task that was cancelled clean up with timeouts: the cancellation goes on as the exception that it is.

    Early releases of Python 3.11 take a timeout in such a task for one more cancellation.
    """
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
