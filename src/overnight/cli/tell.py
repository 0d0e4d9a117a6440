"""Says how a job of `overnight run` ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from overnight.cli import output
from overnight.cli.follow import Course, total
from overnight.cli.job import Job
from overnight.cli.show import problems_of


def tell(job: Job, courses: Sequence[Course], written: Collection[Path]) -> None:
    """Say what went wrong with each task, what may be done about it, and where the results are."""
    for course in courses:
        _complain(course)
        if course.is_cut:
            _tell_cut(job, course)
        elif course.kept:
            _tell_kept(course)
    counts = total(list(courses))
    if not any(course.new for course in courses):
        left = any(course.batches and course.has_left for course in courses)
        more = " Pass --retry-failed to run again what failed." if left else ""
        output.say(f"Nothing is left to do: every request of this job has been run.{more} Pass --again to run it anew.")
    failed = Text.assemble(", ", (f"{counts.failed:,} failed", "red")) if counts.failed else ""
    answered = Text.assemble(f"{counts.completed:,} of {counts.total:,} answered", failed, ".")
    where = [path for path in job.outputs if path in written]
    if job.is_printed:
        output.say(answered)
    elif len(where) == 1:
        output.say(Text.assemble(answered, f" The results are in {where[0]}"))
    elif where:
        output.say(Text.assemble(answered, f" The results are {len(where)} files in {where[0].parent}"))


def _tell_cut(job: Job, course: Course) -> None:
    """Say what became of the answers of batches that the server no longer has."""
    first, name, counts = course.batches[0], course.task.input.name, course.counts
    says = f"{first['retry_of']}, which {first['id']} has retried, is no longer on the server."
    if not job.is_printed:
        says += f" What {course.task.out} held of {name} has stayed there."
    missing = counts.total - counts.completed - counts.failed
    if missing:
        says += f" {missing:,} requests of {name} have no result any more: pass --again to run all of it anew."
    output.say(says)


def _tell_kept(course: Course) -> None:
    """Say that the output file has answers which the server does not know any more."""
    answers, name, out = output.many(course.kept, "answer"), course.task.input.name, course.task.out
    output.say(
        f"{answers} of {name} that {out} held already came from a batch that is no longer on the server and stayed. "
        "Pass --overwrite to have only what the server has."
    )


def _complain(course: Course) -> None:
    batch, counts = course.last, course.counts
    if batch["errors"]:
        output.complain(
            f"{course.task.input.name} was refused, and nothing of it has run. Correct it and give the command again."
        )
        problems_of(batch, to=output.aside)
    elif batch["status"] != "completed":
        why = (batch["error"] or {}).get("message") or f"The batch ended {batch['status']}."
        output.complain(
            f"{counts.completed:,} of {counts.total:,} requests of {course.task.input.name} were answered. {why}"
        )


def as_json(course: Course) -> dict[str, Any]:
    """How a task ended, for programs."""
    return {
        "input": course.task.input.name,
        "output": str(course.task.out),
        "all_answered": course.all_answered,
        "total": course.counts.total,
        "completed": course.counts.completed,
        "failed": course.counts.failed,
        "batches": course.batches,
    }
