"""A job of `overnight run`: what makes it the same job when the command is given again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from overnight.domain.errors import Unusable
from overnight.domain.limits import MIB
from overnight.store import flock

MARK = "overnight_run"
"""The name under which a batch carries the mark of its job in its metadata."""


AGAIN = "overnight_again"
"""The name in the metadata that tells a batch which was to run everything anew."""


@contextmanager
def only_one(data_dir: Path, mark: str) -> Iterator[None]:
    """Hold the job while the block runs. Raises Unusable while another process on this host does the same job."""
    folder = data_dir / "runs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise Unusable(
            f"The data directory {data_dir} cannot be made ({e.strerror}). Name another: --data-dir."
        ) from None
    lock = flock.open_lock(folder / f"{mark[:32]}.lock")
    try:
        if not flock.try_alone(lock):
            raise Unusable("This job is being run already, by another process with the same data directory.")
        yield
    finally:
        os.close(lock)


def mark_of(file: Path, output: Path, endpoint: str, defaults: dict[str, Any]) -> str:
    """The mark of a job: the same for the same input, output file, endpoint and defaults, on any later day."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while piece := source.read(MIB):
            digest.update(piece)
    rest = json.dumps([str(output.absolute()), endpoint, defaults], sort_keys=True)
    digest.update(rest.encode())
    return digest.hexdigest()


def endpoint_of(file: Path) -> str:
    """The endpoint that the file's first request names. Raises Unusable where it cannot be read from there."""
    with file.open("rb") as source:
        for _ in range(1_000):
            line = source.readline(16 * MIB)
            if not line:
                break
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                return _url_of(file, line)
    raise Unusable(f"{file} holds no request. Each line is one: custom_id, method, url, body.")


def _url_of(file: Path, line: bytes) -> str:
    try:
        request = json.loads(line.decode("utf-8-sig"))
        url = request["url"]
    except (ValueError, KeyError, TypeError):
        raise Unusable(
            f"The first request of {file} has no readable url. Each line is an object: custom_id, method, url, body."
        ) from None
    return str(url)
