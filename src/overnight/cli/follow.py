"""Hands the tasks of a job over, each as a batch, and follows these to their end."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from overnight.cli import output
from overnight.cli.job import AGAIN, MARK, Job, Task
from overnight.cli.parameters import check_options
from overnight.cli.progress import Bars, Counts, stage_of
from overnight.client import AsyncClient
from overnight.client.errors import ApiError, ConnectionFailed, NotFound, OvernightError, ServerFault, TooManyRequests
from overnight.domain.errors import Unusable
from overnight.domain.states import FINAL

if TYPE_CHECKING:
    from overnight.server import Server as Process

Batch = dict[str, Any]

LOOK_EVERY = 0.5
LOOKS_AT_ONCE = 20
"""Batches that are asked for in one look; of more, others in the next."""
LONG_WAIT = 5.0
"""Seconds after which it is said, once, what everything waits for, where no line at a terminal shows it."""
LONGEST_AWAY = 60.0
"""Seconds without its server after which a run gives up; what was answered is kept."""


@dataclass(slots=True)
class Course:
    """How far a task is: its batch, then the retries of what that left, each of what the one before left."""

    task: Task
    batches: list[Batch] = field(default_factory=list)
    new: bool = False
    """This command has something of it run."""
    is_cut: bool = False
    """What ran before these batches is no longer on the server; its answers may be in the output file."""
    written: Counts | None = None
    """Of a task of which the server has not everything any more: what its output file has now."""
    kept: int = 0
    """Answers that were in its output file and are no longer on the server."""

    @property
    def last(self) -> Batch:
        return self.batches[-1]

    @property
    def is_anew(self) -> bool:
        """It was to be run anew, whatever was answered before."""
        return bool(self.batches) and AGAIN in (self.last["metadata"] or {})

    @property
    def is_over(self) -> bool:
        return bool(self.batches) and self.last["status"] in FINAL

    @property
    def counts(self) -> Counts:
        """Of all of the task's requests; of one that is cut, until its results are written, of those still known."""
        if self.written is not None:
            return self.written
        if not self.batches:
            return Counts()
        counts = [batch["request_counts"] for batch in self.batches]
        tokens = sum((batch.get("usage") or {}).get("output_tokens", 0) for batch in self.batches)
        return Counts(counts[0]["total"], sum(c["completed"] for c in counts), counts[-1]["failed"], tokens)

    @property
    def has_left(self) -> bool:
        """The last batch has requests without a response."""
        counts = self.last["request_counts"]
        return bool(counts["completed"] < counts["total"])

    @property
    def all_answered(self) -> bool:
        return self.is_over and self.last["status"] == "completed" and self.counts.completed == self.counts.total


async def earlier(client: AsyncClient, task: Task) -> Course:
    """What earlier runs made of a task; batches that were refused don't count."""
    last = await _newest(client, task)
    course = Course(task)
    while last is not None:
        course.batches.insert(0, last)
        try:
            last = await client.get_batch(last["retry_of"]) if last["retry_of"] else None
        except NotFound:
            # Deleted, or its retention is over, which ends before that of its retry.
            course.is_cut, last = True, None
    return course


async def _newest(client: AsyncClient, task: Task) -> Batch | None:
    after = None
    while True:
        page = await client.list_batches(limit=100, q=task.mark, after=after)
        for batch in page["data"]:
            refused = batch["status"] == "failed" and not batch["request_counts"]["completed"]
            if (batch["metadata"] or {}).get(MARK) == task.mark and not refused:
                found: Batch = batch
                return found
        if not page["has_more"]:
            return None
        after = page["last_id"]


class Following:
    """A job under way."""

    def __init__(self, client: AsyncClient, process: Process | None, job: Job, line: Bars) -> None:
        self._client = client
        self._process = process
        self._job = job
        self._line = line
        self.courses: list[Course] = []
        self._open: deque[Course] = deque()
        """Handed over and not over, in the order in which they are looked at."""
        self._handing = ""
        self._cause: str | None = None
        self._since = 0.0
        self._told: set[str] = set()

    async def run(self) -> list[Course]:
        """Do what is left of the job; return how each task ended. Raises Unusable, and what the client raises."""
        for task in self._job.tasks:
            self.courses.append(await self._begin(task))
        self._check_outputs()
        handing = asyncio.ensure_future(self._hand_over())
        try:
            while not handing.done() or self._open:
                await self._look()
                if handing.done():
                    handing.result()
                    await asyncio.sleep(LOOK_EVERY if self._open else 0)
                else:
                    await asyncio.wait([handing], timeout=LOOK_EVERY)
            handing.result()
        finally:
            handing.cancel()
            await asyncio.wait([handing])
        return self.courses

    async def _begin(self, task: Task) -> Course:
        course = await earlier(self._client, task)
        if self._job.again and course.batches and (course.is_over or not course.is_anew):
            return Course(task)
        return course

    def _check_outputs(self) -> None:
        for path, tasks in self._job.outputs.items():
            ours = any(course.batches for course in self.courses if course.task in tasks)
            if path.exists() and path.stat().st_size and not (ours or self._job.overwrite or self._job.again):
                raise Unusable(
                    f"{path} exists and is not of an earlier run of this job that the server still knows. "
                    "Pass --overwrite to replace it."
                )

    async def _hand_over(self) -> None:
        for course in self.courses:
            if not course.batches:
                self._handing = "handing over" if len(self.courses) == 1 else f"handing over {course.task.input.name}"
                course.batches.append(await self._create(course.task))
                course.new = True
            elif course.is_over and self._job.retry_failed and course.has_left:
                course.batches.append(await self._patiently(self._client.retry_batch, course.last["id"]))
                course.new = True
            elif not course.is_over:
                course.new = True
                done = course.counts.completed + course.counts.failed
                output.say(f"Going on with {course.last['id']}: {done:,} of {course.counts.total:,} are done.")
            if not course.is_over:
                if self._process is not None:
                    await self._process.care_for(course.last["id"])
                self._open.append(course)
            self._handing = ""

    async def _create(self, task: Task) -> Batch:
        stored = await self._client.upload_file(task.input.path)
        marks = {MARK: task.mark, "file": task.input.name[:512], **({AGAIN: "yes"} if self._job.again else {})}
        try:
            return await self._patiently(
                self._client.create_batch,
                input_file_id=stored["id"],
                endpoint=task.endpoint,
                completion_window=self._job.window,
                metadata=marks,
                **self._job.defaults,
            )
        except ApiError as e:
            with suppress(OvernightError):
                await self._client.delete_file(stored["id"])
            check_options(e)
            raise

    async def _patiently(self, call: Any, *given: Any, **named: Any) -> Batch:
        """Make a batch; while others of this job fill the server, wait for these."""
        while True:
            try:
                batch: Batch = await call(*given, **named)
                return batch
            except TooManyRequests:
                if not self._open:
                    raise

    async def _look(self) -> None:
        """Look at some of the batches that are not over, and show how far all are."""
        for _ in range(min(len(self._open), LOOKS_AT_ONCE)):
            course = self._open.popleft()
            course.batches[-1] = await self._patient_look(course.last["id"])
            if not course.is_over:
                self._open.append(course)
        waiting = self._process.why_waiting() if self._process is not None else None
        self._line.show(total(self.courses), self._handing or waiting or stage(self.courses))
        self.tell_waiting(waiting, monotonic())

    def tell_waiting(self, cause: str | None, now: float) -> None:
        """Say what everything has waited for since a while, `now` by the monotonic clock."""
        if cause != self._cause:
            self._cause, self._since = cause, now
        elif cause is not None and now - self._since >= LONG_WAIT and cause not in self._told:
            self._told.add(cause)
            if not output.aside.is_terminal:
                output.say(f"Waiting: {cause}. It goes on by itself as soon as that is over.")

    async def _patient_look(self, batch_id: str) -> Batch:
        """The batch as it is now; a server that is away for a moment is waited for."""
        ends = monotonic() + LONGEST_AWAY
        while True:
            try:
                return await self._client.get_batch(batch_id)
            except (ServerFault, ConnectionFailed):
                if monotonic() > ends:
                    raise
                self._line.say("waiting for the server")
                await asyncio.sleep(LOOK_EVERY)


def total(courses: list[Course]) -> Counts:
    """The counts of all tasks together."""
    counts = [course.counts for course in courses]
    return Counts(*(sum(each) for each in zip(*counts, strict=True)))


def stage(courses: list[Course]) -> str:
    """What is going on, in a few words."""
    if len(courses) == 1 and courses[0].batches:
        return stage_of(courses[0].last)
    over = sum(course.is_over for course in courses)
    current = next((course.last for course in courses if course.batches and not course.is_over), None)
    if current is None:
        return "completed" if over == len(courses) else "starting"
    return f"{stage_of(current)} ({over}/{len(courses)} files)"
