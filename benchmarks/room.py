"""How many requests at once: the rule against fixed numbers and against counting errors alone, on simulated servers.

Time is simulated in steps, chance comes from fixed seeds: every run prints the same. A server always has work waiting.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from benchmarks import choice
from benchmarks.budgets import note
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

SERVERS: dict[str, tuple[str, Callable[[int], Server]]] = {
    "queue": ("queue-limited, 24 slots", lambda seed: QueueLimited(seed=seed)),
    "queue-told": ("… and tells it", lambda seed: QueueLimited(seed=seed, tells=True)),
    "memory": ("memory-limited", lambda seed: MemoryLimited(seed=seed)),
    "memory-told": ("… and tells it", lambda seed: MemoryLimited(seed=seed, tells=True)),
    "rate": ("rate-limited, 20 a second", lambda seed: RateLimited(seed=seed)),
    "count": ("429 above 100 at once", lambda seed: CountLimited(seed=seed)),
    "chance-10": ("24 slots, 503 to 1 of 10 by chance", lambda seed: Moody(refused=0.1, seed=seed)),
    "chance-40": ("… 1 of 40", lambda seed: Moody(refused=0.025, seed=seed)),
    "chance-100": ("… 1 of 100", lambda seed: Moody(refused=0.01, seed=seed)),
    "chance-200": ("… 1 of 200", lambda seed: Moody(refused=0.005, seed=seed)),
    "chance-500": ("… 1 of 500", lambda seed: Moody(refused=0.002, seed=seed)),
}


def best_fixed(make: Callable[[int], Server]) -> int:
    """The lowest of the fixed numbers that brings within 1 % of the most tokens a second."""
    paces = [(number, simulate(make(1), Fixed(number)).pace()) for number in FIXED]
    most = max(pace for _, pace in paces)
    return next(number for number, pace in paces if pace >= 0.99 * most)


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a rule with one seed: throughput as a part of the best, errors of 1,000, seconds to 90 %."""

    part: float
    errors: float
    to_most: float


def came(run: Run, best: Run) -> Came:
    """Beside the best fixed number with the same seed."""
    reached = run.reaches(0.9 * best.pace())
    return Came(run.pace() / best.pace(), run.errors(), math.inf if reached is None else reached)


def show(server: str, rule: str, runs: list[Came], verdict: str = "") -> None:
    """Print a row: median and worst of all seeds."""
    parts, errors, times = ([getattr(run, name) for run in runs] for name in Came.__slots__)
    reached = statistics.median(times)
    after = "never" if reached == math.inf else f"{reached:.0f} s"
    print(
        f"| {server} | {rule} | {statistics.median(parts):.1%} | {min(parts):.1%} | {statistics.median(errors):.1f} "
        f"| {max(errors):.1f} | {after} | {verdict} |",
        flush=True,
    )


def compare(name: str, seeds: range, *, only_ours: bool) -> None:
    """Print the rows of a server."""
    server, make = SERVERS[name]
    number = best_fixed(make)
    best = {seed: simulate(make(seed), Fixed(number)) for seed in seeds}
    rivals: dict[str, Callable[[], Rule]] = {f"best fixed: {number}": partial(Fixed, number)}
    rivals |= {f"fixed: {fixed}": partial(Fixed, fixed) for fixed in SHOWN}
    rivals["errors only"] = ErrorsOnly
    for rule, begin in () if only_ours else rivals.items():
        show(server, rule, [came(simulate(make(seed), begin()), best[seed]) for seed in seeds])
    numbers: list[int] = []
    runs = []
    for seed in seeds:
        ours = Ours()
        runs.append(came(simulate(make(seed), ours), best[seed]))
        numbers += ours.numbers[-400:]
    verdict = note("room", min(run.part for run in runs) * 100)
    show(server, f"Overnight: {min(numbers)}–{max(numbers)}", runs, verdict)


def main() -> None:
    """Print the table."""
    parser = choice.parser(__doc__, SERVERS)
    parser.add_argument("--seeds", type=int, help="how many (default: 7, 2 if quick)")
    parser.add_argument("--ours", action="store_true", help="leave out the rivals")
    given = parser.parse_args()
    print("| server | rule: in flight | of the best | the worst | errors of 1,000 | the worst | to 90 % | budget |")
    print("|---|---|---|---|---|---|---|---|")
    for name in choice.rows_of(given, SERVERS):
        compare(name, range(1, 1 + (given.seeds or (2 if given.quick else 7))), only_ours=given.ours or given.quick)


if __name__ == "__main__":
    main()
