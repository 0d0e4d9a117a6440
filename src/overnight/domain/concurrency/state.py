"""What is seen of a route in a period, and what is known of it from before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf, log

START = 8
"""Requests that any server may be given at once, to begin with."""
SURE_START = 16
"""… and this part of what it is known to bear."""
SURE = 64
"""A server of which nothing is known may be given so many before what they bring is compared."""
MOST = 1_024
"""… and at the most so many, where its operator names no number."""
PATIENCE = 10.0
"""Seconds of holding before other numbers are tried, at first."""


class Phase(StrEnum):
    """What the rule is about."""

    RAMP = "ramp"
    LOOK = "look"
    UP = "up"
    DOWN = "down"
    HOLD = "hold"


class Why(StrEnum):
    """What keeps the number from growing now."""

    GROWING = "growing"
    LIMIT = "limit"
    """It is the most that the operator allows."""
    WORK = "work"
    """There are not enough requests to fill it."""
    REFUSED = "refused"
    """The server answered 429 or 503, or took no connection."""
    QUEUE = "queue"
    """Requests wait in the server, as it says."""
    MEMORY = "memory"
    """The server's cache is almost full, as it says."""
    PACE = "pace"
    """More requests bring no more tokens a second."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The number never exceeds `most`; up to `sure` it grows without evidence that this helps."""

    sure: int
    most: int

    @classmethod
    def of(cls, slots: int | None) -> Bounds:
        """A number that an operator names is one that the server is known to bear."""
        return cls(SURE, MOST) if slots is None else cls(slots, slots)


@dataclass(frozen=True, slots=True)
class Signals:
    """What a server says of itself: requests that it computes, that wait in it, and the share of its cache in use."""

    running: float
    waiting: float
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened in a period. `seconds` is its length, `in_flight` the mean and `peak` the most of our requests."""

    seconds: float
    in_flight: float
    peak: int
    left: int = 0
    """In flight at its end."""
    ended: int = 0
    """Requests that were answered well."""
    work: float = 0.0
    """Their tokens, read and written; requests where no usage is told."""
    taken: float = 0.0
    """Seconds that each of them took, added up."""
    refused: int = 0
    """429, 503, no connection, no answer in time. Each took one off the number until the period ended."""
    retry_after: float = 0.0
    """Seconds; the longest that a refusal asked for."""
    signals: Signals | None = None
    """Where the server was asked in this period."""
    lost: int = 0
    """Of those refused: the server took no connection, or went away."""


@dataclass(frozen=True, slots=True)
class Level:
    """A number of requests at once, and the tokens a second that it brought."""

    number: float
    pace: float

    def gain(self, other: Level) -> float:
        """What each per cent more in flight brings, in per cent, where the other level is the higher one."""
        if self.pace <= 0:
            return 1.0
        if other.pace <= 0:
            return -1.0
        return log(other.pace / self.pace) / log(other.number / self.number)


@dataclass(frozen=True, slots=True)
class Epoch:
    """What is gathered about the number in force, once what was sent under another has ended.

    `settling` is how many requests must still end for that: as many as were in flight when it began, or came then to
    fill the number, for in a queue these wait for less than those behind them. Seconds would not do, since what a
    request takes is what another number changes.
    """

    settling: float = 0.0
    seconds: float = 0.0
    area: float = 0.0
    """Seconds times requests in flight."""
    ended: int = 0
    work: float = 0.0
    taken: float = 0.0

    def plus(self, seen: Seen) -> Epoch:
        """With one more period."""
        if self.settling > 0:
            return Epoch(self.settling - seen.ended)
        return Epoch(
            0.0,
            self.seconds + seen.seconds,
            self.area + seen.in_flight * seen.seconds,
            self.ended + seen.ended,
            self.work + seen.work,
            self.taken + seen.taken,
        )

    @property
    def speed(self) -> float:
        """Tokens a second of one request."""
        return self.work / self.taken if self.taken > 0 else 0.0

    def level(self, number: float) -> Level:
        """What the number brought, by Little's law: it needs no full pipeline, and scatters less than a count of
        what ended, since requests that take longer have more tokens."""
        return Level(number, self.area / self.seconds * self.speed)


@dataclass(frozen=True, slots=True)
class Refusals:
    """What is known of a server's refusals: how many of the last requests, about."""

    count: float = 0.0
    refused: float = 0.0
    lone: float = 0.0
    """Of the refused those that did not come in a row."""
    took: float = 0.0
    """The number of requests at once that the server took when they began; 0 while there are none."""
    settled: bool = False
    """What was sent before they began has ended, so that it is known."""
    came_down: bool = False
    """The number is far below that, and what is counted is counted since."""
    tolerated: float = 0.0
    """So large a part is refused by chance: no smaller number would prevent it."""
    doubted: float = 0.0
    """Seconds for which none are tolerated."""
    since: float = inf
    """Requests that were started since the last refusal."""
    is_lone: bool = False
    """The refusal of this period did not come in a row with others."""

    @property
    def part(self) -> float:
        """The part of the requests that is refused."""
        return self.refused / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """How many requests may be in flight on a route, and what is known. Durations are in seconds."""

    bounds: Bounds
    number: float
    trusted: float
    """The ramp goes so far."""
    phase: Phase = Phase.RAMP
    why: Why = Why.GROWING
    in_flight: int = 0
    """At the end of the last period."""
    epoch: Epoch = Epoch()
    base: Level | None = None
    """The best level so far, which others are compared with."""
    step: float = 1.0
    """The next higher number to be tried is so much larger, as a part of the one before."""
    least_known: bool = False
    """A lower number was found to bring less, or need not be tried."""
    best_speed: float = 0.0
    """Tokens a second of one request, when it was fastest."""
    took: float = 0.0
    """What a request takes, smoothed."""
    holds: float = 0.0
    """What is left of holding."""
    patience: float = PATIENCE
    guard: float = 0.0
    """Refusals of requests that were sent before the last cut may come for so long."""
    idle: float = 0.0
    queued: int = 0
    """Looks at the server in a row that found requests waiting."""
    pause: float = 0.0
    """Nothing starts for so long: the server refused all there was."""
    last_pause: float = 0.0
    refusals: Refusals = Refusals()

    @classmethod
    def begin(cls, bounds: Bounds) -> Room:
        """The room on a server of which nothing is known."""
        start = max(START, bounds.sure // SURE_START)
        return cls(bounds, float(min(start, bounds.most)), float(min(bounds.sure, bounds.most)))

    @property
    def allowed(self) -> int:
        """How many requests may be in flight, at least one."""
        return max(1, int(self.number))

    def began_anew(self) -> Room:
        """Another number is in force from now on."""
        return replace(self, epoch=Epoch(max(self.number, float(self.in_flight))))
