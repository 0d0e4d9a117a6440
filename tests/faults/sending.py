"""What was really sent of a batch, held against what was written down, answered and asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.faults.job import Job
from tests.faults.recorder import Outcome, Send
from tests.faults.stage import Stage

NEVER_RAN = ("batch_cancelled", "batch_expired", "batch_failed")
UNREACHED = ("service_unavailable", "upstream_error")
"""The codes of a request of which the last try found no server, or one that was going."""
NOTICED = 1.0
"""Seconds between two looks of a worker at the batches that it holds."""
SAME_MOMENT = 0.25
"""Seconds between a commit's moment, which is that of its beginning, and what its callers do next."""


@dataclass(frozen=True)
class Record:
    """A batch's row and its answers, by line."""

    row: Any
    answers: dict[int, Any]


@dataclass(frozen=True)
class Life:
    """A process's time under one worker number; `dead_at` None while it lives."""

    began: float
    dead_at: float | None


@dataclass(frozen=True)
class Senders:
    """The lives of each process by its id, and by its name when it gave up what it ran, as others may take it over."""

    lives: dict[int, list[Life]]
    cut_off: dict[str, list[float]]


async def check_sends(stage: Stage, job: Job, record: Record) -> list[str]:
    """Say what is wrong with what was sent."""
    written = await _written_down(stage, record.row["no"])
    cut_off = {process.name: process.cut_off() for process in stage.processes.values()}
    senders = Senders(await _lives(stage), cut_off)
    problems: list[str] = []
    for line, name in enumerate(job.names):
        sends = sorted(stage.recorder.sends.get(name, []), key=lambda send: send.at)
        answer = record.answers.get(line)
        found = [
            *_unwritten(sends, written[line]),
            *_needless(sends, senders),
            *([] if answer is None else _against_answer(sends, answer, senders)),
            *([] if answer is None or sends else _unsent(stage, answer, written[line])),
        ]
        problems += [f"{name}: {problem} — sends {[_show(s) for s in sends]}" for problem in found]
    problems += _after_the_end(stage, job, record, written)
    problems += _in_pauses(job, written)
    return problems


def _unwritten(sends: list[Send], written: list[float]) -> Iterator[str]:
    """Each send was written down before: so a crash leaves no unknown spending."""
    for number, send in enumerate(sends, 1):
        if bisect_right(written, send.at + SAME_MOMENT) < number:
            yield f"send {number} had not been written down; {len(written)} were"


def _needless(sends: list[Send], senders: Senders) -> Iterator[str]:
    """It was sent again only where the send before had failed or its sender was lost."""
    for send, following in pairwise(sends):
        if send.outcome not in (Outcome.FAILED, Outcome.GONE) and not _lost(send, senders, following.at):
            yield f"sent again at {following.at:.3f} without need"


def _against_answer(sends: list[Send], answer: Any, senders: Senders) -> Iterator[str]:
    """It was sent before it was answered and not after, and a reply that somebody living heard is its answer."""
    committed = answer["at"].timestamp()
    for send in sends:
        if send.at > committed + SAME_MOMENT:
            yield f"sent at {send.at:.3f} though its answer was stored at {committed:.3f}"
        heard = send.outcome is Outcome.ANSWERED and not _lost(send, senders, float("inf"))
        if heard and answer["kind"] != 0:
            yield f"a good reply was given and the answer is {answer['code']}"


def _unsent(stage: Stage, answer: Any, written: list[float]) -> Iterator[str]:
    """What never arrived never ran, or was tried in vain while nothing could arrive."""
    if answer["code"] in NEVER_RAN:
        return
    committed = answer["at"].timestamp() + SAME_MOMENT
    downs = stage.recorder.downs
    tried = any(down <= committed and up + SAME_MOMENT >= at for at in written for down, up in downs)
    if answer["code"] not in UNREACHED or not tried:
        yield f"answered ({answer['code']}) and never sent"


def _after_the_end(stage: Stage, job: Job, record: Record, written: dict[int, list[float]]) -> Iterator[str]:
    """Once its end is acknowledged nothing more is written down; what was may still be sent for a moment.

    The allowance: a worker sends what it wrote down before until it looks at the batch again, which it does every
    second, or, where it cannot reach the database, until its heartbeat is too old to start anything.
    """
    if job.stopped_at is None:
        return
    late = [line for line, moments in written.items() for at in moments if at > job.stopped_at]
    if late:
        yield f"{len(late)} requests were written down after the end was acknowledged: lines {late[:5]}"
    allowed = job.stopped_at + NOTICED + stage.dead_after / 2
    sent = [send for send in stage.recorder.of(job.names) if send.at > allowed]
    if sent:
        yield f"{len(sent)} requests were sent long after the end was acknowledged: {_show(sent[0])}"


def _in_pauses(job: Job, written: dict[int, list[float]]) -> Iterator[str]:
    for began, ended in job.pauses:
        late = [line for line, moments in written.items() for at in moments if began < at < ended]
        if late:
            yield f"{len(late)} requests were written down during a pause: lines {late[:5]}"


def _lost(send: Send, senders: Senders, before: float) -> bool:
    """Whether the life in which a request was sent, or its call, ended after it was sent and before a moment."""
    if any(send.at - SAME_MOMENT <= at <= before + SAME_MOMENT for at in senders.cut_off[send.process]):
        return True
    of_sender = [life for life in senders.lives.get(send.pid, []) if life.began <= send.at + SAME_MOMENT]
    if not of_sender:
        return True
    dead_at = of_sender[-1].dead_at
    return dead_at is not None and send.at <= dead_at + SAME_MOMENT and dead_at <= before + SAME_MOMENT


async def _written_down(stage: Stage, batch: int) -> dict[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    rows = await stage.sql("SELECT at, lines FROM attempt WHERE batch = $1 ORDER BY at", batch)
    for row in rows:
        for line in row["lines"]:
            found[line].append(row["at"].timestamp())
    return found


async def _lives(stage: Stage) -> dict[int, list[Life]]:
    found: dict[int, list[Life]] = defaultdict(list)
    for row in await stage.sql("SELECT pid, started_at, dead_at FROM worker ORDER BY no"):
        dead_at = None if row["dead_at"] is None else row["dead_at"].timestamp()
        found[row["pid"]].append(Life(row["started_at"].timestamp(), dead_at))
    return found


def _show(send: Send) -> str:
    return f"{send.process}({send.pid}) {send.at:.3f}–{send.ended:.3f} {send.outcome}"
