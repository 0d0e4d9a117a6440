"""Model servers in simulated time, each with another limit."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from overnight.domain.concurrency.state import Signals

STEP = 0.05
"""Seconds of simulated time between two looks at a server."""
READS = 20_000.0
WRITES = 60.0
"""Tokens a second that a memory-limited server reads in all, and writes for one request that it has alone."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that was answered: how long it took, in seconds, and its tokens."""

    took: float
    tokens: float


class Server(Protocol):
    """A model server in simulated time."""

    def start(self, now: float) -> bool:
        """Take one more request; False: 429."""

    def advance(self, now: float) -> list[Ended]:
        """What ended in the step until `now`."""

    def signals(self) -> Signals | None:
        """What it says of itself."""


class Lengths:
    """Tokens of requests: prompts of 100 to 300, outputs of 50 to 250."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def draw(self) -> tuple[float, float]:
        return self._draw.uniform(100, 300), self._draw.uniform(50, 250)


class QueueLimited:
    """Computes so many requests at full speed; all others wait in it, without an error and without an end."""

    def __init__(self, slots: int = 24, speed: float = 50.0, seed: int = 1, *, tells: bool = False) -> None:
        self._slots = slots
        self._speed = speed
        self._lengths = Lengths(seed)
        self._tells = tells
        self._running: list[tuple[float, float, float]] = []
        self._waiting: deque[float] = deque()

    def start(self, now: float) -> bool:
        self._waiting.append(now)
        self._fill(now)
        return True

    def _fill(self, now: float) -> None:
        while self._waiting and len(self._running) < self._slots:
            prompt, output = self._lengths.draw()
            heappush(self._running, (now + output / self._speed, self._waiting.popleft(), prompt + output))

    def advance(self, now: float) -> list[Ended]:
        ended = []
        while self._running and self._running[0][0] <= now:
            at, began, tokens = heappop(self._running)
            ended.append(Ended(at - began, tokens))
            self._fill(at)
        return ended

    def signals(self) -> Signals | None:
        return Signals(len(self._running), len(self._waiting)) if self._tells else None


class MemoryLimited:
    """Computes all requests side by side, each a little slower the more there are, while their tokens fit in memory.

    Beyond that it throws out the youngest, which begin anew. Reading a prompt keeps the others waiting, so what was
    thrown out costs twice.
    """

    def __init__(self, memory: float = 30_000.0, seed: int = 1, *, tells: bool = False) -> None:
        self._memory = memory
        self._lengths = Lengths(seed)
        self._tells = tells
        self._running: list[list[float]] = []
        """Of each: when it came, tokens of its prompt and of its output, how many of these it has."""
        self._waiting: deque[list[float]] = deque()
        self._used = 0.0
        self._reading = 0.0

    def start(self, now: float) -> bool:
        prompt, output = self._lengths.draw()
        self._waiting.append([now, prompt, output, 0.0])
        return True

    def advance(self, now: float) -> list[Ended]:
        self._reading = max(0.0, self._reading - STEP)
        while self._reading < STEP and self._waiting and self._used + self._waiting[0][1] <= self._memory:
            taken = self._waiting.popleft()
            self._used += taken[1]
            self._reading += taken[1] / READS
            self._running.append(taken)
        made = WRITES / (1 + len(self._running) / 100) * (STEP - min(STEP, self._reading))
        for one in self._running:
            one[3] += made
        ended = [Ended(now - one[0], one[1] + one[2]) for one in self._running if one[3] >= one[2]]
        self._running = [one for one in self._running if one[3] < one[2]]
        self._used = sum([one[1] + one[3] for one in self._running])
        while self._used > self._memory:
            lost = self._running.pop()
            self._used -= lost[1] + lost[3]
            lost[3] = 0.0
            self._waiting.appendleft(lost)
        return ended

    def signals(self) -> Signals | None:
        told = Signals(len(self._running), len(self._waiting), self._used / self._memory)
        return told if self._tells else None


class RateLimited:
    """Takes so many requests a second, a second's worth at once, and computes them all at full speed; else 429."""

    def __init__(self, rate: float = 20.0, speed: float = 50.0, seed: int = 1) -> None:
        self._rate = rate
        self._speed = speed
        self._lengths = Lengths(seed)
        self._left = rate
        self._at = 0.0
        self._running: list[tuple[float, float, float]] = []

    def start(self, now: float) -> bool:
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        prompt, output = self._lengths.draw()
        heappush(self._running, (now + output / self._speed, now, prompt + output))
        return True

    def advance(self, now: float) -> list[Ended]:
        ended = []
        while self._running and self._running[0][0] <= now:
            at, began, tokens = heappop(self._running)
            ended.append(Ended(at - began, tokens))
        return ended

    def signals(self) -> Signals | None:
        return None


class CountLimited(RateLimited):
    """Takes so many requests at once; 429 to every further one."""

    def __init__(self, most: int = 100, speed: float = 50.0, seed: int = 1) -> None:
        super().__init__(1e9, speed, seed)
        self._most = most

    def start(self, now: float) -> bool:
        return len(self._running) < self._most and super().start(now)


class Moody(QueueLimited):
    """Refuses one request of forty by chance, however many there are."""

    def __init__(self, slots: int = 24, refused: float = 0.025, seed: int = 1) -> None:
        super().__init__(slots, seed=seed)
        self._refused = refused
        self._draw = random.Random(seed)

    def start(self, now: float) -> bool:
        return self._draw.random() >= self._refused and super().start(now)
