"""Tells whether a file that stands where results are to go holds results of this job, before these replace it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Never

import msgspec
import numpy as np
import numpy.typing as npt

from overnight.cli.inputs import Input
from overnight.cli.job import Job
from overnight.cli.repeats import LONGEST, hashes_of
from overnight.domain.errors import Unusable
from overnight.domain.limits import MIB
from overnight.domain.lines import Splitter

AT_ONCE = 10_000
"""Lines that are looked up together."""

Hashes = npt.NDArray[np.int64]


class _Result(msgspec.Struct):
    custom_id: str
    response: msgspec.Raw
    """What a line of results has, and a request does not."""


_read = msgspec.json.Decoder(_Result).decode


def refuse_other_files(job: Job) -> None:
    """Raise Unusable where an output file holds a line that is no result of a request whose results go there.

    A last line that was cut before its end is taken for a result. Takes 16 bytes a request and a line at a time.
    """
    if job.overwrite:
        return
    for path, tasks in job.outputs.items():
        if path.exists() and path.stat().st_size:
            _refuse_other(path, [task.input for task in tasks])


def _refuse_other(path: Path, inputs: Sequence[Input]) -> None:
    wanted = np.sort(np.concatenate([hashes_of(given) for given in inputs]))
    found = _ids(path)
    while some := list(islice(found, AT_ONCE)):
        ids = np.frombuffer(array("q", (one for _, one in some)), dtype=np.int64)
        strange = np.flatnonzero(~_are_in(wanted, ids))
        if len(strange):
            _refuse(path, some[strange[0]][0])


def _are_in(wanted: Hashes, ids: Hashes) -> npt.NDArray[np.bool_]:
    """Which of some hashes are among those wanted, which are sorted."""
    ends = np.searchsorted(wanted, ids, side="right")
    return ends > np.searchsorted(wanted, ids, side="left")


def _ids(path: Path) -> Iterator[tuple[int, int]]:
    """The number of each line, from 1 on, and the hash of the custom_id that it is the result for."""
    splitter = Splitter(LONGEST)
    with path.open("rb") as source:
        while piece := source.read(MIB):
            for number, line in splitter.feed(piece):
                yield number + 1, _id(path, number + 1, line)
    for number, line in splitter.end():
        if line is None or not _is_cut(line):
            yield number + 1, _id(path, number + 1, line)


def _id(path: Path, number: int, line: bytes | None) -> int:
    try:
        return hash(_read(line or b"").custom_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        _refuse(path, number)


def _is_cut(line: bytes) -> bool:
    """Whether a line is the beginning of an object that does not end."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line.startswith(b"{")
    return False


def _refuse(path: Path, number: int) -> Never:
    raise Unusable(
        f"{path} exists and is of other origin: its line {number:,} is no result of this job's requests. "
        "Pass --overwrite to replace it, or name another file with -o."
    )
