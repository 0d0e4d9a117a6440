"""Who sent what: the lives of the processes, and when and why each gave up what it ran."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tests.faults.process import GRACE, Process
from tests.faults.recorder import Send
from tests.faults.stage import Stage

SAME_MOMENT = 0.25
"""Seconds between a commit's moment, which is that of its beginning, and what its callers do next."""
CLOSED_WITHIN = 2.0
"""Seconds until the connections of what was given up are seen to be closed, on a machine that has much to do."""


@dataclass(frozen=True)
class Life:
    """A process's time under one worker number; `dead_at` None while it lives."""

    no: int
    began: float
    dead_at: float | None


class Senders:
    """What is known of those that send."""

    def __init__(self, lives: dict[int, list[Life]], processes: dict[str, Process], late: float) -> None:
        """`late` is by how many seconds the witness of what was sent may have been too late with it."""
        self.moment = SAME_MOMENT + late
        """Seconds that may lie between what happened at the same moment."""
        self._closed = CLOSED_WITHIN + late
        self._lives = lives
        self._gave_up = {name: process.gave_up() for name, process in processes.items()}
        self._processes = processes

    def lives_of(self, send: Send) -> list[Life]:
        """Those in which a request may have been sent, the likeliest first; none where its process had none."""
        lives = [life for life in self._lives.get(send.pid, []) if life.began <= send.at + SAME_MOMENT]
        surely = [at for at, life in enumerate(lives) if life.began < send.at - self.moment]
        return lives[max(surely, default=0) :][::-1]

    def lost(self, send: Send, before: float) -> bool:
        """Whether the life in which a request was sent, or its call, ended after it was sent and before a moment."""
        cut_off = self._gave_up[send.process]["worker_cut_off"]
        if any(send.at - self.moment <= at <= before + self.moment for at in cut_off) or self.is_cut_short(send):
            return True
        ends = [life.dead_at for life in self.lives_of(send) if life.dead_at is not None]
        return any(send.at <= at + self.moment and at <= before + self.moment for at in ends)

    def is_dead(self, worker: int) -> bool:
        """Whether a life is over; one that nobody knows is not."""
        return any(life.no == worker and life.dead_at is not None for lives in self._lives.values() for life in lives)

    def is_cut_short(self, send: Send) -> bool:
        """Whether it was given up because its process had been told to stop and the grace was over."""
        stops = self._processes[send.process].stops
        return any(
            send.at <= told_at + self.moment and told_at + GRACE - self.moment <= send.ended <= ended_at + self._closed
            for told_at, ended_at in stops
        )

    def had_reason_to_go(self, send: Send) -> bool:
        """Whether a caller that closed its connection was killed then, or gave up all it ran, or had to stop.

        One that stood still has not seen before it went on how a request ended.
        """
        process = self._processes[send.process]
        moments = [*process.killed_at, *(at for moments in self._gave_up[send.process].values() for at in moments)]
        first = last = send.ended
        for began, ended in process.still.touching(first - self.moment, last):
            first, last = min(first, began), max(last, ended)
        return any(at - self.moment <= last and first <= at + self._closed for at in moments) or self.is_cut_short(send)


async def senders_of(stage: Stage) -> Senders:
    """Those of a stage, as they are known now."""
    lives: dict[int, list[Life]] = defaultdict(list)
    for row in await stage.sql("SELECT no, pid, started_at, dead_at FROM worker ORDER BY no"):
        dead_at = None if row["dead_at"] is None else row["dead_at"].timestamp()
        lives[row["pid"]].append(Life(row["no"], row["started_at"].timestamp(), dead_at))
    return Senders(lives, stage.processes, stage.late.worst)
