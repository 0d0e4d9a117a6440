"""What was really sent of a batch, held against what was written down, answered and asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.faults.job import Job
from tests.faults.recorder import Outcome, Send
from tests.faults.senders import Senders, senders_of
from tests.faults.stage import Stage
from tests.faults.tries import Tries, miscounted, tries_of, unjustified

TOLD_WITHIN = 0.5
"""Seconds until a worker that is told of an end has looked: its round under way, and what it waits for in that."""
NOTICED = 1.0
"""Seconds between two looks of a worker at the batches that it holds, whatever it was told."""
HEARS_AGAIN = 5.0
"""Seconds after a trouble until a process surely listens again."""


@dataclass(frozen=True)
class Record:
    """A batch's row and its answers, by line."""

    row: Any
    answers: dict[int, Any]


async def check_sends(stage: Stage, job: Job, record: Record) -> list[str]:
    """Say what is wrong with what was sent."""
    tries = await tries_of(stage, record.row["no"])
    senders = await senders_of(stage)
    problems: list[str] = []
    for line, name in enumerate(job.names):
        sends = sorted(stage.recorder.sends.get(name, []), key=lambda send: send.at)
        found = [
            *_unwritten(sends, tries[line], senders),
            *_needless(sends, senders),
            *_given_up(sends, senders),
        ]
        answer = record.answers.get(line)
        if answer is not None:
            found += [
                *_against_answer(sends, answer, senders),
                *miscounted(answer, tries[line], sends, senders),
                *(unjustified(stage, job, answer, tries[line], sends, senders) if answer["kind"] != 0 else ()),
            ]
        problems += [f"{name}: {problem} — sends {[_show(s) for s in sends]}" for problem in found]
    problems += _after_the_end(stage, job, tries)
    problems += _in_pauses(stage, job, tries)
    return problems


async def check_unmade(stage: Stage, job: Job) -> list[str]:
    """The same of a batch that was refused or deleted: of that nothing is written any more."""
    sent = stage.recorder.of(job.names)
    if job.deleted_at is None:
        return [f"{len(sent)} requests were sent of a batch that was refused"] if sent else []
    senders = await senders_of(stage)
    problems = []
    for name in job.names:
        sends = sorted(stage.recorder.sends.get(name, []), key=lambda send: send.at)
        found = [*_needless(sends, senders), *_given_up(sends, senders)]
        problems += [f"{name}: {problem} — sends {[_show(s) for s in sends]}" for problem in found]
    late = sent_late(stage, job, job.stopped_at or job.deleted_at, told=job.stopped_at != job.expires_at)
    return [
        *problems,
        *([f"{len(late)} requests were sent after the batch was deleted: {_show(late[0])}"] if late else []),
    ]


def sent_late(stage: Stage, job: Job, at: float, *, told: bool, until: float = float("inf")) -> list[Send]:
    """What was sent of a batch that had to start nothing more from a moment on, in which that was acknowledged.

    What is left to a worker: it may have written requests down before, which it sends until it knows better. Whoever is
    told of an end, with its commit, looks at once. One that is not told (a window closes by itself; a connection had
    just broken, the process had just been started or stood still) looks every second; and where it cannot reach the
    database then, it goes on until its last heartbeat, of that second at the latest, is too old to start anything. The
    rules promise no more: cancelling waits for no worker.
    """

    # The worker may have been as late as the witness.
    late = 2 * stage.late.worst

    def allowed(send: Send) -> float:
        process = stage.processes[send.process]
        since = at - HEARS_AGAIN
        troubles = (process.wire.troubles, process.still, process.began, stage.outages)
        if any(spans.touching(since, send.at) for spans in troubles):
            return at + NOTICED + stage.dead_after / 2 + late
        return at + TOLD_WITHIN + (0 if told else NOTICED) + late

    return [send for send in stage.recorder.of(job.names) if allowed(send) < send.at < until]


def _unwritten(sends: list[Send], tries: Tries, senders: Senders) -> Iterator[str]:
    """Each send was written down before: so a crash leaves no unknown spending."""
    written = [at for at, _ in tries.written]
    for number, send in enumerate(sends, 1):
        if bisect_right(written, send.at + senders.moment) < number:
            yield f"send {number} had not been written down; {len(written)} were"


def _needless(sends: list[Send], senders: Senders) -> Iterator[str]:
    """It was sent again only where the server had failed it, or its sender was lost meanwhile."""
    for send, following in pairwise(sends):
        failed = send.outcome in (Outcome.FAILED, Outcome.BROKEN)
        if not failed and not senders.lost(send, following.at):
            yield f"sent again at {following.at:.3f} without need"


def _given_up(sends: list[Send], senders: Senders) -> Iterator[str]:
    """Nobody alive and well leaves a request that its server works on, whether it is sent again or not."""
    for send in sends:
        if not senders.lives_of(send):
            yield f"sent at {send.at:.3f} by a process that was no worker"
        if send.outcome is Outcome.GONE and not senders.had_reason_to_go(send):
            yield f"given up at {send.ended:.3f} without a reason"


def _against_answer(sends: list[Send], answer: Any, senders: Senders) -> Iterator[str]:
    """It was sent before it was answered and not after, and a reply that somebody living heard is its answer."""
    committed = answer["at"].timestamp()
    for send in sends:
        if send.at > committed + senders.moment:
            yield f"sent at {send.at:.3f} though its answer was stored at {committed:.3f}"
        is_final = send.outcome in (Outcome.ANSWERED, Outcome.REFUSED)
        heard = is_final and not senders.lost(send, float("inf"))
        if heard and (answer["kind"] == 0) is not (send.outcome is Outcome.ANSWERED):
            yield f"the reply was {send.status} and the answer is {answer['code']}"


def _after_the_end(stage: Stage, job: Job, tries: dict[int, Tries]) -> Iterator[str]:
    """Once its end is acknowledged nothing more is written down; what was may still be sent for a moment."""
    if job.stopped_at is None:
        return
    late = [line for line, of_line in tries.items() for at, _ in of_line.written if at > job.stopped_at]
    if late:
        yield f"{len(late)} requests were written down after the end was acknowledged: lines {late[:5]}"
    sent = sent_late(stage, job, job.stopped_at, told=job.stopped_at != job.expires_at)
    if sent:
        yield (
            f"{len(sent)} requests were sent long after the end was acknowledged at {job.stopped_at:.3f}: "
            f"{_show(sent[0])}"
        )


def _in_pauses(stage: Stage, job: Job, tries: dict[int, Tries]) -> Iterator[str]:
    for began, ended in job.pauses:
        late = [line for line, of_line in tries.items() for at, _ in of_line.written if began < at < ended]
        if late:
            yield f"{len(late)} requests were written down during a pause: lines {late[:5]}"
        sent = sent_late(stage, job, began, told=True, until=ended)
        if sent:
            yield f"{len(sent)} requests were sent during a pause since {began:.3f}: {_show(sent[0])}"


def _show(send: Send) -> str:
    return f"{send.process}({send.pid}) {send.at:.3f}–{send.ended:.3f} {send.outcome}"
