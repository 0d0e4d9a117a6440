"""How late this process has been: what it says of moments is as far from the truth, and others may be as late."""

from __future__ import annotations

import asyncio

EVERY = 0.02


class Lateness:
    """`worst` is by how many seconds its loop came to something too late, on a machine that has too much to do."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + EVERY
            await asyncio.sleep(EVERY)
            self.worst = max(self.worst, clock() - due)
