"""Joins what an output file holds already with later results, where a batch that gave some of it is gone."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from overnight.cli.inputs import Input
from overnight.cli.progress import Counts
from overnight.cli.repeats import hashes_of, ids_of

Hashes = npt.NDArray[np.int64]


class _Line(msgspec.Struct):
    custom_id: str
    response: msgspec.Raw = msgspec.Raw(b"null")


_read = msgspec.json.Decoder(_Line).decode


class Joined(NamedTuple):
    """What there is of an input, and how many of the answers are only from the old file."""

    counts: Counts
    kept: int


def holds_more(old: Path, parts: Sequence[Path], given: Input) -> bool:
    """Whether the file `old` has an answer to a request of an input that the later files don't have.

    Takes some 24 bytes a request.
    """
    held = np.intersect1d(_answered([old]), hashes_of(given))
    return bool(len(np.setdiff1d(held, _answered(parts))))


def _answered(files: Iterable[Path]) -> Hashes:
    """The hash of the custom_id of each line that has a response."""
    found = array("q")
    for path in files:
        with path.open("rb") as lines:
            found.extend(hash(name) for name, answered in map(_what, lines) if answered)
    return np.frombuffer(found, dtype=np.int64)


def join(old: Path, parts: Sequence[Path], given: Input, target: BinaryIO, *, ordered: bool) -> Joined:
    """Write a line for each request of an input that the file `old` or a later one has; return what there is now.

    A later line replaces an earlier one, but none without a response replaces one with it. Other lines of `old` are
    left out, and a file that is not there has none. Takes some hundred bytes a request.
    """
    wanted = dict.fromkeys(ids_of(given))
    sources = [path for path in (old, *parts) if path.exists()]
    chosen: dict[str, tuple[int, int, bool]] = {}
    for n, path in enumerate(sources):
        with path.open("rb") as lines:
            at = 0
            for line in lines:
                custom_id, answered = _what(line)
                if custom_id in wanted and (answered or not chosen.get(custom_id, (0, 0, False))[2]):
                    chosen[custom_id] = (n, at, answered)
                at += len(line)
    places = (chosen[one] for one in wanted if one in chosen) if ordered else sorted(chosen.values())
    files = [path.open("rb") for path in sources]
    try:
        for n, at, _ in places:
            files[n].seek(at)
            target.write(files[n].readline().rstrip(b"\n") + b"\n")
    finally:
        for file in files:
            file.close()
    completed = sum(answered for _, _, answered in chosen.values())
    kept = sum(answered and sources[n] == old for n, _, answered in chosen.values())
    return Joined(Counts(len(wanted), completed, len(chosen) - completed), kept)


def _what(line: bytes) -> tuple[str, bool]:
    """The custom_id of a line of results and whether it has a response; no id where it cannot be read."""
    try:
        found = _read(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", False
    return found.custom_id, bytes(found.response).strip() != b"null"
