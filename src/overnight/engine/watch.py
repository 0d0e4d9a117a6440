"""Looks at a running engine, time after time, and says when it must be given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from overnight.engine.child import Child, Ready
from overnight.engine.probe import get_page, health_of
from overnight.engine.pulse import Pulse
from overnight.settings import LOAD_SECONDS

WELL = 200


@dataclass(frozen=True, slots=True)
class Pace:
    """How often an engine is looked at and how patient its supervisor is, in seconds."""

    look_every: float = 1.0
    answer_within: float = 5.0
    """For one health check; a machine that is short of cores must not look like a hung engine."""
    misses: int = 3
    """Health checks in a row without an answer that count as hung."""
    pulse_every: float = 10.0
    """Between two looks at whether its requests get on."""
    still_within: float = 600.0
    """So long without a step, with requests to work on, counts as hung. One step of a long prompt on a slow processor
    takes minutes, and an engine given up too early would never get through it."""
    load_within: float = LOAD_SECONDS
    """So long without reading anything counts as hung while it loads: nothing else tells from outside that it compiles
    or waits for a network, which may take an hour."""
    grace: float | None = None
    """Between SIGTERM and SIGKILL; None: what the engine needs."""
    ran_well: float = 60.0
    """After so long in service, the wait before a restart begins anew at its shortest."""


class Watch:
    """Over one life of an engine, from when it is ready."""

    def __init__(self, child: Child, ready: Ready, pace: Pace) -> None:
        self._child = child
        self._ready = ready
        self._pace = pace
        self._missed = 0
        self._clock = asyncio.get_running_loop().time
        self._pulse = Pulse(self._clock())
        self._felt_at = self._clock()

    async def look(self) -> str | None:
        """Why it must be ended, as the rest of a sentence about it; None while it is well."""
        status = await health_of(self._ready.base_url, self._pace.answer_within)
        self._missed = 0 if status == WELL else self._missed + 1
        if self._missed >= self._pace.misses:
            did = "did not answer" if status is None else f"answered {status} to"
            return f"it {did} {self._missed} health checks in a row"
        if self._clock() - self._felt_at >= self._pace.pulse_every:
            return await self._feel()
        return None

    async def _feel(self) -> str | None:
        self._felt_at = self._clock()
        page = await get_page(self._ready.base_url, "/metrics", self._child.api_key, self._pace.answer_within)
        reading = self._child.launch.pulse(page) if page is not None else None
        if page is not None and reading is None:
            # It tells nothing of its work.
            return None
        still = self._pulse.still_for(reading, self._clock())
        if still < self._pace.still_within:
            return None
        return f"it has been at work for {still:,.0f} seconds without a step"
