"""How many requests at once: the rule against fixed numbers and against counting errors alone, on simulated servers.

Time is simulated in steps, chance comes from a fixed seed: every run prints the same. A server always has work waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.simulated_servers import (
    STEP,
    CountLimited,
    Ended,
    MemoryLimited,
    Moody,
    QueueLimited,
    RateLimited,
    Server,
)
from overnight.domain.concurrency.rule import follow
from overnight.domain.concurrency.state import MOST, Bounds, Room, Seen

PERIOD = 0.25
SECONDS = 400.0
"""Simulated of each pair of a server and a rule; the first quarter is left out where throughput is compared."""
WINDOW = 10.0
LOOK_EVERY = 1.5
FIXED = (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1_024)
SHOWN = (8, 64, 512)


# -- what decides how many -------------------------------------------------------------------------------------


class Rule(Protocol):
    """Decides how many requests may be in flight."""

    def allowed(self, refused: int) -> int:
        """How many now, with so many refused in this period."""

    def note(self, seen: Seen) -> None:
        """A period has passed."""


class Fixed:
    """Always the same number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def allowed(self, refused: int) -> int:
        return self._number

    def note(self, seen: Seen) -> None:
        pass


class ErrorsOnly:
    """One more each period, half after an error (additive increase, multiplicative decrease), at most MOST."""

    def __init__(self) -> None:
        self._number = 8.0

    def allowed(self, refused: int) -> int:
        return int(self._number)

    def note(self, seen: Seen) -> None:
        self._number = max(1.0, self._number / 2) if seen.refused else min(MOST, self._number + 1)


class Ours:
    """The rule of Overnight."""

    def __init__(self, slots: int | None = None) -> None:
        self.room = Room.begin(Bounds.of(slots))
        self.numbers: list[int] = []

    def allowed(self, refused: int) -> int:
        return 0 if self.room.pause > 0 else max(0, self.room.allowed - refused)

    def note(self, seen: Seen) -> None:
        self.room = follow(self.room, seen)
        self.numbers.append(self.room.allowed)


@dataclass(slots=True)
class Run:
    """What came of a rule on a server, period by period: tokens served, requests ended and refused."""

    tokens: list[float] = field(default_factory=list)
    ended: int = 0
    refused: int = 0

    def pace(self) -> float:
        """Tokens a second, without the first quarter."""
        kept = self.tokens[len(self.tokens) // 4 :]
        return sum(kept) / (len(kept) * PERIOD)

    def errors(self) -> float:
        """Refusals of 1,000 requests sent, from the first one on."""
        return 1_000 * self.refused / max(1, self.ended + self.refused)

    def reaches(self, pace: float) -> float | None:
        """Seconds until a window brings so many tokens a second."""
        width = int(WINDOW / PERIOD)
        for end in range(1, len(self.tokens) + 1):
            window = self.tokens[max(0, end - width) : end]
            if end >= width // 5 and sum(window) / (len(window) * PERIOD) >= pace:
                return end * PERIOD
        return None


def simulate(server: Server, rule: Rule, seconds: float = SECONDS) -> Run:
    """Let a rule fill a server for so long."""
    run = Run()
    in_flight = 0
    signals_at = LOOK_EVERY
    now = 0.0
    for _ in range(round(seconds / PERIOD)):
        area, peak, refused = 0.0, 0, 0
        ended: list[Ended] = []
        for _ in range(round(PERIOD / STEP)):
            now += STEP
            came = server.advance(now)
            ended += came
            in_flight -= len(came)
            while in_flight < (allowed := rule.allowed(refused)):
                free = allowed - in_flight
                accepted = sum([server.start(now) for _ in range(free)])
                in_flight += accepted
                refused += free - accepted
                if accepted < free:
                    break
            area += in_flight * STEP
            peak = max(peak, in_flight)
        told = None
        if now >= signals_at:
            told, signals_at = server.signals(), now + LOOK_EVERY
        tokens = sum(one.tokens for one in ended)
        taken = sum(one.took for one in ended)
        rule.note(Seen(PERIOD, area / PERIOD, peak, in_flight, len(ended), tokens, taken, refused, 0.0, told))
        run.tokens.append(tokens)
        run.ended += len(ended)
        run.refused += refused
    return run


# -- the table -------------------------------------------------------------------------------------------------

SERVERS: dict[str, Callable[[], Server]] = {
    "queue-limited, 24 slots": QueueLimited,
    "… and tells it": lambda: QueueLimited(tells=True),
    "memory-limited": MemoryLimited,
    "… and tells it ": lambda: MemoryLimited(tells=True),
    "rate-limited, 20 a second": RateLimited,
    "429 above 100 at once": CountLimited,
    "503 to 1 of 40 by chance, 24 slots": Moody,
}


def best_fixed(make: Callable[[], Server]) -> tuple[int, Run]:
    """The lowest of the fixed numbers that brings within 1 % of the most tokens a second."""
    runs = [(number, simulate(make(), Fixed(number))) for number in FIXED]
    most = max(run.pace() for _, run in runs)
    return next((number, run) for number, run in runs if run.pace() >= 0.99 * most)


def rows(make: Callable[[], Server]) -> Iterator[tuple[str, Run]]:
    """Each rule by its name, and what came of it; the best fixed number first."""
    number, best = best_fixed(make)
    yield f"best fixed: {number}", best
    for fixed in SHOWN:
        yield f"fixed: {fixed}", simulate(make(), Fixed(fixed))
    yield "errors only", simulate(make(), ErrorsOnly())
    ours = Ours()
    run = simulate(make(), ours)
    yield f"Overnight: {min(ours.numbers[-400:])}–{max(ours.numbers[-400:])}", run


def main() -> None:
    """Print the table."""
    print("| server | rule: in flight | of the best | errors of 1,000 | to 90 % |\n|---|---|---|---|---|")
    for name, make in SERVERS.items():
        best = 0.0
        for rule, run in rows(make):
            best = best or run.pace()
            reached = run.reaches(0.9 * best)
            after = "never" if reached is None else f"{reached:.0f} s"
            print(f"| {name} | {rule} | {run.pace() / best:.1%} | {run.errors():.1f} | {after} |", flush=True)


if __name__ == "__main__":
    main()
