"""Counts the prompts of requests that may be too long, before they are sent."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from overnight.domain.context import Room, fit, too_long
from overnight.engine.count import Count, Counting
from overnight.upstreams.http import Broken, BrokenKind, Call, Endpoint, Pool

MOST_AT_ONCE = 8
COUNT_WITHIN = 30.0
_GONE = frozenset({BrokenKind.CLOSED, BrokenKind.CUT, BrokenKind.REFUSED, BrokenKind.CONNECT_TIMEOUT})


class Measure:
    """Asks one engine. A request that it cannot count is sent as it is: the engine has the last word anyway."""

    def __init__(self, root: Endpoint, count: Count) -> None:
        self._count = count
        self._pool = Pool(root, most_connections=MOST_AT_ONCE)
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    def send(self, call: Call, url: str, room: Room, pool: Pool) -> None:
        """Count, then send the call to the pool, its answer limited to what its prompt leaves of the room.

        A call whose prompt leaves nothing ends as TOO_LONG, one that finds the engine gone as any other would.
        """
        # There is no task for a request but here, where it may be one of the few that are too long.
        task = asyncio.get_running_loop().create_task(self._measure(call, url, room, pool))
        self._tasks[call] = task
        task.add_done_callback(partial(self._done, call))

    def cancel(self, call: Call) -> bool:
        """Give up a call that is being counted; False where it is not."""
        task = self._tasks.get(call)
        if task is None or task.done():
            return False
        task.cancel()
        return True

    async def close(self) -> None:
        """Give up all calls that are being counted; afterwards their `on_end` has been called."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._pool.close()

    async def _measure(self, call: Call, url: str, room: Room, pool: Pool) -> None:
        body = bytes(call.body)
        try:
            counted = await self._drive(self._count(url, body, room.tokens))
        except msgspec.MsgspecError:
            counted = None
        if isinstance(counted, Broken):
            _end(call, counted)
            return
        if counted is not None:
            fitting = fit(body, url, counted, room)
            if fitting is None:
                _end(call, Broken(BrokenKind.TOO_LONG, too_long(counted, room), sent=True))
                return
            call.body = fitting
        pool.send(call)

    async def _drive(self, counting: Counting) -> int | Broken | None:
        """The number; None where the engine does not tell it; Broken where the engine is gone."""
        try:
            ask = next(counting)
            while True:
                came = await self._pool.ask("POST", ask.path, ask.body, COUNT_WITHIN)
                if isinstance(came, Broken):
                    return came if came.kind in _GONE else None
                if came.status != 200:
                    return None
                ask = counting.send(came.body)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _done(self, call: Call, task: asyncio.Task[None]) -> None:
        del self._tasks[call]
        if task.cancelled():
            _end(call, Broken(BrokenKind.CANCELLED, "The call was given up.", sent=False))
        else:
            task.result()


def _end(call: Call, broken: Broken) -> None:
    call.ended = True
    call.on_end(call, broken)
