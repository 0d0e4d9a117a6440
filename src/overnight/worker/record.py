"""Stores answers: batch by batch, in one statement for all batches that are due."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import asyncpg

from overnight.domain import events
from overnight.domain.limits import MIB
from overnight.monotonic import monotonic
from overnight.store import answers, leases
from overnight.store.answers import Answer
from overnight.store.leases import FailedCall
from overnight.store.pool import LOST, Session
from overnight.worker.flow import Batch
from overnight.worker.held import Held
from overnight.worker.request import Block

ENOUGH = 64
"""Answers of a batch that are stored at once without waiting for more."""
LONGEST_WAIT = 0.3
"""Seconds that an answer waits for others of its batch."""
APART = 0.1
"""Seconds between the starts of two flushes, so that a busy worker's hold hundreds of answers."""
MOST_AT_ONCE = 4_096
MOST_BYTES_AT_ONCE = 4 * MIB
"""One statement stores up to either, so that writing down the next requests never waits for long behind it."""
MOST_BYTES = 16 * MIB
"""Of answers that are not stored yet; with more of them nothing starts."""
MANY_BYTES = 4 * MIB
"""With more of them fewer requests run, the fewer the more there are: the database is slower than the servers."""
CALLS_AT_ONCE = 5_000

Taken = list[tuple[Batch, list[Answer], list[Block]]]


class Recorder:
    """Holds answers until they are durable; hands over each batch's when they are due.

    They are due when there are enough of them, when the oldest waited long enough, or when nothing of the batch is
    held that could still be answered. Limits over all batches instead would cut the answers of many mixed batches
    into segments of one or two lines.
    """

    def __init__(self, held: Held, ring: Callable[[], None], on_committed: Callable[[int], None]) -> None:
        self._held = held
        self._ring = ring
        self._on_committed = on_committed
        self._due: dict[Batch, None] = {}
        self._aging: deque[tuple[float, Batch]] = deque()
        self._flushed_at = float("-inf")
        self.bytes = 0
        """Of answers that are not stored yet."""
        self.calls: list[FailedCall] = []
        """Tries that were not final, to be noted."""

    def most_running(self, slots: int) -> int:
        """How many requests may run, of `slots`, with what waits to be stored: it is bounded in bytes."""
        if self.bytes <= MANY_BYTES:
            return slots
        return max(0, slots * (MOST_BYTES - self.bytes) // (MOST_BYTES - MANY_BYTES))

    @property
    def is_empty(self) -> bool:
        """Everything is stored."""
        return not self.bytes and not self.calls

    def forget(self) -> None:
        """What was answered belongs to others now, who answer it again."""
        self._due.clear()
        self._aging.clear()
        self.bytes = 0
        self.calls.clear()

    def add(self, block: Block, answer: Answer, now: float) -> None:
        """Take the final outcome of a request, at a moment of the monotonic clock."""
        batch = block.source.batch
        if not batch.answers:
            batch.first_answer_at = now
            self._aging.append((now, batch))
        batch.answers.append(answer)
        batch.answered.append(block)
        batch.unanswered -= 1
        self.bytes += len(answer.text)
        if (len(batch.answers) >= ENOUGH or not batch.unanswered) and batch not in self._due:
            self._due[batch] = None
            self._ring()

    def wait(self, now: float) -> float:
        """Seconds until the next flush is due, by the monotonic clock."""
        due = now if self._due else self._aging[0][0] + LONGEST_WAIT if self._aging else now + LONGEST_WAIT
        return max(due, self._flushed_at + APART) - now

    async def flush(self, session: Session, everything: bool = False) -> bool:
        """Store the answers that are due; says whether there were any.

        Whatever goes wrong, the answers are kept for the next flush, except where the worker was declared dead.
        """
        now = monotonic()
        if now < self._flushed_at + APART and not everything and self.bytes < MOST_BYTES_AT_ONCE:
            return False
        taken = self._take(now, everything)
        if not taken:
            return False
        self._flushed_at = now
        worker = self._held.worker
        try:
            taken = await self._leave_out_stored(session, taken)
            await self._record(session, taken)
        except _Conflict as conflict:
            taken = conflict.left
            self._keep(taken, worker)
            return True
        except BaseException as error:
            self._keep(taken, worker, unsure=isinstance(error, LOST))
            raise
        self._held.check(worker)
        self._settle(taken)
        return True

    async def note_calls(self, session: Session) -> bool:
        """Store tries that were not final; says whether there were any."""
        noted = self.calls[:CALLS_AT_ONCE]
        if not noted:
            return False
        worker = self._held.worker
        await leases.note_calls(session, worker, noted)
        self._held.check(worker)
        del self.calls[: len(noted)]
        return True

    # -- what is due -------------------------------------------------------------------------------------------

    def _take(self, now: float, everything: bool) -> Taken:
        while self._aging and (everything or self._aging[0][0] + LONGEST_WAIT <= now):
            since, batch = self._aging.popleft()
            if batch.answers and batch.first_answer_at == since:
                self._due[batch] = None
        taken: Taken = []
        room = MOST_AT_ONCE
        space = MOST_BYTES_AT_ONCE
        while self._due:
            # What does not fit comes first the next time; a statement holds the answers of a batch only once.
            batch = next(iter(self._due))
            count, size = _fitting(batch.answers, room, space)
            taken.append((batch, batch.answers[:count], batch.answered[:count]))
            batch.answers = batch.answers[count:]
            batch.answered = batch.answered[count:]
            room -= count
            space -= size
            if batch.answers:
                break
            del self._due[batch]
        return [one for one in taken if one[1]]

    def _keep(self, taken: Taken, worker: int, *, unsure: bool = False) -> None:
        """Put answers back in front of those that came meanwhile."""
        if worker != self._held.worker:
            return
        for batch, of_batch, blocks in taken:
            batch.answers = of_batch + batch.answers
            batch.answered = blocks + batch.answered
            self._due[batch] = None
            if unsure:
                batch.unsure.update(a.line for a in of_batch)

    def _settle(self, taken: Taken) -> None:
        """These answers are durable."""
        for batch, of_batch, blocks in taken:
            self.bytes -= sum([len(a.text) for a in of_batch])
            for block, count in Counter(blocks).items():
                self._held.settle(block, count)
            self._on_committed(batch.no)

    # -- what is stored already --------------------------------------------------------------------------------

    async def _record(self, session: Session, taken: Taken) -> None:
        """Store all answers or none. Raises _Conflict without those that had one already."""
        if not taken:
            return
        worker = self._held.worker
        try:
            await answers.record(session, worker, [(batch.no, of_batch) for batch, of_batch, _ in taken])
        except (asyncpg.UniqueViolationError, asyncpg.CheckViolationError):
            # The fence makes this impossible; should it happen, the first answer stands and an alarm is raised. The
            # statement stored nothing, and the other answers of the flush must not be lost with the second one.
            # (The check is that of the batch's counters: there are more answers than requests.)
            stored = await self._find_stored(session, taken)
            self._held.check(worker)
            left, second = _part(taken, stored)
            if not second:
                raise
            for batch, of_batch, _ in second:
                events.tell("answer_conflict", batch=batch.no, lines=[a.line for a in of_batch][:20])
            self._settle(second)
            raise _Conflict(left) from None

    async def _leave_out_stored(self, session: Session, taken: Taken) -> Taken:
        """Settle the answers that were stored by a statement whose end was not heard of; return the others."""
        if not any(batch.unsure for batch, _, _ in taken):
            return taken
        unsure: Taken = [(batch, [a for a in of_batch if a.line in batch.unsure], []) for batch, of_batch, _ in taken]
        if not any(of_batch for _, of_batch, _ in unsure):
            return taken
        worker = self._held.worker
        stored = await self._find_stored(session, unsure)
        self._held.check(worker)
        left, settled = _part(taken, stored)
        for batch, _, _ in taken:
            batch.unsure.clear()
        self._settle(settled)
        return left

    async def _find_stored(self, session: Session, taken: Taken) -> dict[int, set[int]]:
        return {
            batch.no: await leases.answered(session, batch.no, [a.line for a in of_batch])
            for batch, of_batch, _ in taken
            if of_batch
        }


class _Conflict(Exception):
    """Some requests were answered before; `left` are the answers of the others."""

    def __init__(self, left: Taken) -> None:
        super().__init__()
        self.left = left


def _fitting(some: list[Answer], room: int, space: int) -> tuple[int, int]:
    """How many of some answers fit, and their bytes; where nothing is taken yet, the first one always does."""
    size = sum([len(answer.text) for answer in some])
    if len(some) <= room and size <= space:
        return len(some), size
    count = size = 0
    for answer in some:
        if (count or space < MOST_BYTES_AT_ONCE) and (count >= room or size + len(answer.text) > space):
            break
        count += 1
        size += len(answer.text)
    return count, size


def _part(taken: Taken, stored: dict[int, set[int]]) -> tuple[Taken, Taken]:
    """Part answers in those to be stored and those of lines that have one, or have another one among them."""
    left: Taken = []
    second: Taken = []
    for batch, of_batch, blocks in taken:
        seen = set(stored.get(batch.no, ()))
        parts: tuple[tuple[list[Answer], list[Block]], ...] = (([], []), ([], []))
        for answer, block in zip(of_batch, blocks, strict=True):
            part = parts[answer.line in seen]
            part[0].append(answer)
            part[1].append(block)
            seen.add(answer.line)
        for whole, (some, their_blocks) in zip((left, second), parts, strict=True):
            if some:
                whole.append((batch, some, their_blocks))
    return left, second
