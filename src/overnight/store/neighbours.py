"""Files by which the processes of one machine and one data directory know which of them are gone."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from overnight.domain.errors import Unusable
from overnight.store import flock

EVERY_MACHINE = "here"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

FORGET_AFTER = timedelta(days=30)
"""A file of another database or machine may stand for a living process whose lock is not seen from here."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a file stands for: one life of one worker.

    Number and time together, to the microsecond and by the database's clock, are not those of a worker of another
    database, so several may be used from one data directory.
    """

    no: int
    started: datetime
    path: Path


class Neighbours:
    """The processes that use the same data directory on this machine.

    Each holds a lock on a file of its own as long as it lives: the kernel lets go of it however the process ends,
    and not while it is only frozen. Everything here is quick and may fail: without it the heartbeats tell, later.
    """

    def __init__(self, folder: Path, machine: str = EVERY_MACHINE) -> None:
        """`folder` is made when it is needed. `machine` names those who see each other's locks in it.

        The processes of an embedded database all do, and after a start of the machine, too: it has `EVERY_MACHINE`.
        """
        self._folder = folder
        self._machine = machine
        self._held: tuple[Path, int] | None = None
        self._passed_over: set[Mark] = set()

    def enter(self, worker: int, started: datetime) -> None:
        """Hold the file of this process's life, and no longer that of the one before."""
        self.leave()
        with contextlib.suppress(OSError, Unusable):
            self._make_folder()
            path = self._folder / f"{worker}.{(started - _EPOCH) // timedelta(microseconds=1)}.{self._machine}"
            # Nobody may see it before it is locked.
            fresh = path.with_name(f".{path.name}")
            lock = flock.open_lock(fresh)
            if not flock.try_alone(lock):
                os.close(lock)
                return
            self._held = (path, lock)
            fresh.rename(path)

    def leave(self, *, ended: bool = True) -> None:
        """Let go of the file; it stays, for others to see, where this life has not `ended` in the database."""
        if self._held is None:
            return
        (path, lock), self._held = self._held, None
        if ended:
            _remove(path)
        os.close(lock)

    def gone(self) -> list[Mark]:
        """The files whose processes are gone, of this database and others, but for those that were passed over."""
        return [mark for mark in self._marks() if mark not in self._passed_over and not _is_held(mark.path)]

    def pass_over(self, marks: Iterable[Mark]) -> None:
        """These are of other databases: their processes look at them."""
        self._passed_over.update(marks)

    def forget(self, marks: Iterable[Mark]) -> None:
        """Remove files that nobody has to see any more."""
        for mark in marks:
            _remove(mark.path)

    def forget_old(self) -> None:
        """Remove files that are so old that nobody will judge them any more: their database or machine is gone."""
        before = time.time() - FORGET_AFTER.total_seconds()
        for path in self._others():
            if _made_at(path) < before and not _is_held(path):
                _remove(path)

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            return
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            flock.give_to_owner(descriptor, self._folder.parent)
        finally:
            os.close(descriptor)

    def _others(self) -> list[Path]:
        try:
            paths = list(self._folder.iterdir())
        except OSError:
            return []
        return [path for path in paths if self._held is None or path != self._held[0]]

    def _marks(self) -> list[Mark]:
        found = (self._read(path) for path in self._others())
        return [mark for mark in found if mark is not None]

    def _read(self, path: Path) -> Mark | None:
        match path.name.split(".", 2):
            case [no, started, machine] if no.isdecimal() and started.isdecimal() and machine == self._machine:
                return Mark(int(no), _EPOCH + timedelta(microseconds=int(started)), path)
        return None


def this_machine() -> str:
    """What names the running kernel: who reads the same shares our locks. A name of the host where it has no such."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname().replace("/", "_")


def _is_held(path: Path) -> bool:
    try:
        return flock.is_held_alone(path)
    except (OSError, Unusable):
        # Who can't tell leaves it to the heartbeats.
        return True


def _made_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
