"""Log files of bounded size that several processes append to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from overnight.store.flock import give_to_owner

LARGEST = 8 << 20
"""Bytes of a log before it is moved aside; one older file of that size is kept."""


def open_log(path: Path) -> int:
    """Open the log for appending and return its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    give_to_owner(descriptor, path.parent)
    return descriptor


def bound(path: Path, largest: int = LARGEST) -> None:
    """Move the content of a log that has grown too large aside.

    Its writers keep the file open, so it is copied and emptied, and a line written in between is lost. On a
    full disk it is emptied all the same.
    """
    log = open_log(path)
    try:
        if os.fstat(log).st_size <= largest:
            return
        os.lseek(log, -largest, os.SEEK_END)
        with contextlib.suppress(OSError):
            _copy(log, path.with_name(f"{path.name}.1"))
        os.ftruncate(log, 0)
    finally:
        os.close(log)


def _copy(log: int, aside: Path) -> None:
    aside.unlink(missing_ok=True)
    older = open_log(aside)
    try:
        while block := os.read(log, 1 << 20):
            os.write(older, block)
    finally:
        os.close(older)
