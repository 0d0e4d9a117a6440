"""A job of `overnight run`: its input files, and what makes each of them known again when the command is repeated."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overnight.cli.inputs import Input
from overnight.cli.parameters import check_output
from overnight.domain.errors import InputRefused, Unusable
from overnight.domain.limits import MIB
from overnight.domain.targets import ENDPOINTS, TARGETS
from overnight.store import flock

MARK = "overnight_run"
"""The name under which a batch carries the mark of its input in its metadata."""

AGAIN = "overnight_again"
"""The name in the metadata that tells a batch which was to run everything anew."""


@dataclass(frozen=True, slots=True)
class Task:
    """One input file of a job, which becomes a batch: what it is for, where its results go, how it is known again."""

    input: Input
    endpoint: str
    out: Path
    mark: str


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done, and how."""

    tasks: tuple[Task, ...]
    window: str
    defaults: dict[str, Any]
    again: bool
    overwrite: bool
    retry_failed: bool
    ordered: bool
    is_printed: bool = False
    """The output is a file only until it is whole; then it goes to standard output."""

    @property
    def outputs(self) -> dict[Path, list[Task]]:
        """The files to write, each with whose results go there, in the order in which they were named."""
        found: dict[Path, list[Task]] = {}
        for task in self.tasks:
            found.setdefault(task.out, []).append(task)
        return found


def tasks_of(
    inputs: Sequence[Input], out: Path, endpoint: str | None, defaults: dict[str, Any], known_as: str | None = None
) -> tuple[Task, ...]:
    """The tasks of a job. Results go to the file `out`, or into the folder `out`, to a file for each input.

    By `known_as` the output is known again on a later day, where it is not by its path.

    Raises Unusable where they cannot go there, and InputRefused for a file that names no endpoint.
    """
    as_folder = out.is_dir()
    outputs = [out / f"{Path(i.name).stem}.answers.jsonl" if as_folder else out for i in inputs]
    for path in outputs if as_folder else [out]:
        if outputs.count(path) > 1 and as_folder:
            raise Unusable(f"Two inputs would write to {path}. Give them different names, or name a file with -o.")
        if path.exists() and any(path.samefile(i.path) for i in inputs):
            raise Unusable(f"{path} is an input; the results would replace it. Name another file with -o.")
        check_output(path)
    endpoints = [endpoint or _known_endpoint_of(i) for i in inputs]
    found: list[Task] = []
    copies: Counter[str] = Counter()
    for given, path, named in zip(inputs, outputs, endpoints, strict=True):
        mark = mark_of(given.path, known_as or str(path.absolute()), named, defaults)
        copies[mark] += 1
        if copies[mark] > 1:
            # A copy of another input is a task of its own: whoever names both wants both answered.
            mark = hashlib.sha256(f"{mark} {copies[mark]}".encode()).hexdigest()
        found.append(Task(given, named, path, mark))
    return tuple(found)


@contextmanager
def only_one(data_dir: Path, tasks: Sequence[Task]) -> Iterator[None]:
    """Hold the tasks while the block runs. Raises Unusable while another process on this host does one of them."""
    folder = data_dir / "runs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise Unusable(
            f"The data directory {data_dir} cannot be made ({e.strerror}). Name another: --data-dir."
        ) from None
    with ExitStack() as held:
        for task in tasks:
            lock = flock.open_lock(folder / f"{task.mark[:32]}.lock")
            held.callback(os.close, lock)
            if not flock.try_alone(lock):
                raise Unusable("This job is being run already, by another process with the same data directory.")
        yield


def mark_of(file: Path, output: str, endpoint: str, defaults: dict[str, Any]) -> str:
    """The mark of a task: the same for the same input, output file, endpoint and defaults, on any later day."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while piece := source.read(MIB):
            digest.update(piece)
    rest = json.dumps([output, endpoint, defaults], sort_keys=True)
    digest.update(rest.encode())
    return digest.hexdigest()


def _known_endpoint_of(given: Input) -> str:
    endpoint = endpoint_of(given)
    if endpoint not in TARGETS:
        raise InputRefused(
            f"The first request of {given.name} has the url {endpoint!r}; it must be one of {ENDPOINTS}."
        )
    return endpoint


def endpoint_of(given: Input) -> str:
    """The endpoint that an input's first request names. Raises InputRefused where it cannot be read from there."""
    with given.path.open("rb") as source:
        for _ in range(1_000):
            line = source.readline(16 * MIB)
            if not line:
                break
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                return _url_of(given.name, line)
    raise InputRefused(f"{given.name} holds no request. Each line is one: custom_id, method, url, body.")


def _url_of(name: str, line: bytes) -> str:
    try:
        request = json.loads(line.decode("utf-8-sig"))
        url = request["url"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputRefused(
            f"The first request of {name} has no readable url. Each line is an object: custom_id, method, url, body."
        ) from None
    return str(url)
