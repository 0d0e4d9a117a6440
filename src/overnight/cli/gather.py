"""Writes the results of a job: one line for each request, whatever batches answered them, all at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from overnight.cli.follow import Course
from overnight.cli.held import holds_more, join
from overnight.cli.job import Task
from overnight.client import AsyncClient


async def write_answers(
    client: AsyncClient, courses: Sequence[Course], out: Path, *, ordered: bool, overwrite: bool = False
) -> bool:
    """Write the results of tasks to `out`, in the order of the tasks; say whether there were any.

    Of each task they come as they finished, or with `ordered` in the order of its requests. What `out` holds already
    and the server does not have any more stays, unless it is to be overwritten or the task was to be run anew.
    """
    held = {course.task for course in courses if not overwrite and _may_hold_more(course, out)}
    if ordered or held or any(course.is_cut for course in courses):
        return await _write_in_parts(client, courses, out, ordered, held)
    files = [file for course in courses for file in _files(course)]
    if files:
        await client.download_files(files, out)
    return bool(files)


def _may_hold_more(course: Course, out: Path) -> bool:
    """Whether an output file that is there may have answers that the batches of a task don't have."""
    is_of_before = course.new and course.is_anew and len(course.batches) == 1
    return not (is_of_before or course.all_answered) and out.exists() and out.stat().st_size > 0


def _files(course: Course) -> list[str]:
    """The result files that together hold each request of a task once."""
    names = [batch["output_file_id"] for batch in course.batches]
    if course.batches:
        names.append(course.last["error_file_id"])
    return [name for name in names if name is not None]


async def _write_in_parts(
    client: AsyncClient, courses: Sequence[Course], out: Path, ordered: bool, held: Collection[Task]
) -> bool:
    # Beside the output, so that it can be put into its place by renaming.
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        whole = Path(folder) / "whole"
        with whole.open("wb") as target:
            for course in courses:
                parts = await (_ordered_parts if ordered else _parts)(client, course, Path(folder))
                given = course.task.input
                if course.is_cut or (course.task in held and await asyncio.to_thread(holds_more, out, parts, given)):
                    course.written, course.kept = await asyncio.to_thread(
                        join, out, parts, given, target, ordered=ordered
                    )
                else:
                    await asyncio.to_thread(target.writelines, merged(parts) if ordered else _lines(parts))
            target.flush()
            os.fsync(target.fileno())
        if not whole.stat().st_size:
            return False
        whole.replace(out)
    return True


async def _ordered_parts(client: AsyncClient, course: Course, folder: Path) -> list[Path]:
    parts = [folder / str(n) for n in range(len(course.batches))]
    return [
        part
        for part, batch in zip(parts, course.batches, strict=True)
        if await client.write_results(batch, part, ordered=True)
    ]


async def _parts(client: AsyncClient, course: Course, folder: Path) -> list[Path]:
    return [await client.download_file(file, folder / str(n)) for n, file in enumerate(_files(course))]


def _lines(parts: Sequence[Path]) -> Iterator[bytes]:
    for part in parts:
        with part.open("rb") as lines:
            yield from lines


def merged(parts: Sequence[Path]) -> Iterator[bytes]:
    """The lines of the first file, those without a response replaced by the lines of the next, and so on.

    Each file holds, in the same order, what the one before has left without a response.
    """
    if not parts:
        return
    later = merged(parts[1:])
    with parts[0].open("rb") as lines:
        for line in lines:
            if len(parts) == 1 or json.loads(line)["response"] is not None:
                yield line
            else:
                yield next(later, line)
