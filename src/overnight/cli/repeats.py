"""Finds a custom_id that several inputs of one output have: a reader of the results could not tell these apart."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from overnight.cli.inputs import Input
from overnight.cli.job import Job
from overnight.domain.errors import Unusable
from overnight.domain.limits import MIB
from overnight.domain.lines import Splitter

LONGEST = 16 * MIB
NAMED = 1_000
"""Hashes that several inputs share, of which the ids are read."""


class _Request(msgspec.Struct):
    custom_id: str


_read = msgspec.json.Decoder(_Request).decode


def refuse_repeats(job: Job) -> None:
    """Raise Unusable where two inputs with one output have a custom_id in common.

    Takes 16 bytes a request. Lines that cannot be read, and ids that repeat within a file, are the server's to refuse.
    """
    for tasks in job.outputs.values():
        if len(tasks) > 1:
            _refuse_repeats([task.input for task in tasks])


def _refuse_repeats(inputs: Sequence[Input]) -> None:
    shared = _shared([hashes_of(given) for given in inputs])
    first: dict[str, Input] = {}
    for given in inputs if shared else ():
        for name in ids_of(given):
            if hash(name) in shared and first.setdefault(name, given) is not given:
                raise Unusable(
                    f"{first[name].name} and {given.name} both have the custom_id {name[:200]!r}: in one output their "
                    "results could not be told apart. Make a folder and name it with -o: each input has its own file "
                    "there."
                )


def hashes_of(given: Input) -> npt.NDArray[np.int64]:
    """The hash of each custom_id of a file, once, sorted."""
    return np.unique(np.frombuffer(array("q", map(hash, ids_of(given))), dtype=np.int64))


def _shared(hashes: Sequence[npt.NDArray[np.int64]]) -> frozenset[int]:
    """Some of the numbers that are in several of the arrays, each of which has a number once."""
    every = np.concatenate(hashes)
    every.sort()
    return frozenset(every[:-1][every[1:] == every[:-1]][:NAMED].tolist())


def ids_of(given: Input) -> Iterator[str]:
    """The custom_id of each request of a file, as far as its lines can be read."""
    splitter = Splitter(LONGEST)
    with given.path.open("rb") as source:
        while piece := source.read(MIB):
            yield from _read_ids(splitter.feed(piece))
    yield from _read_ids(splitter.end())


def _read_ids(lines: Iterator[tuple[int, bytes | None]]) -> Iterator[str]:
    for _, line in lines:
        try:
            yield _read(line or b"").custom_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
