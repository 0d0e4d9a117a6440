"""What a server that did not stop by itself leaves behind: files that name its process, and processes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from overnight.store.folder import PORT, Folder

ORPHANS = 1.0
"""Seconds that sessions get to notice that their main process is dead; one deep in a query notices late."""
SHUTDOWN = 120.0
"""Seconds that a main process which lost its keeper gets for its own orderly stop."""


def read_pid_file(folder: Folder) -> list[str]:
    """Return the lines of the main process's pid file: its id first, its state eighth."""
    try:
        return (folder.data / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def press(folder: Folder, seconds: float) -> None:
    """Press processes that still hold the server's lock, when it has been waited for this long, to end.

    Only called by the keeper, so none of them can be of a server that is wanted. They are found on Linux only;
    elsewhere they end when they notice.
    """
    holders = _holders(folder.server_lock)
    main = _main_process(folder)
    patience = SHUTDOWN if main in holders else ORPHANS
    if seconds < patience:
        return
    for pid in holders:
        try:
            os.kill(pid, signal.SIGQUIT if seconds < patience + 5 else signal.SIGKILL)
        except ProcessLookupError:
            continue


def clear(folder: Folder, socket: Path) -> None:
    """Remove the files of a dead server whose process id means another process by now.

    PostgreSQL would take that process for itself and not start, for ever: after a container starts again,
    the same small numbers are in use at once. A server that somebody started by hand is left alone.
    """
    main = _main_process(folder)
    if main is not None and _works_in(main, folder.data):
        return
    (folder.data / "postmaster.pid").unlink(missing_ok=True)
    for name in (f".s.PGSQL.{PORT}.lock", f".s.PGSQL.{PORT}"):
        (socket / name).unlink(missing_ok=True)


def _main_process(folder: Folder) -> int | None:
    lines = read_pid_file(folder)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _works_in(pid: int, data: Path) -> bool:
    """Say whether the process is a PostgreSQL of this data directory, or may be one."""
    if sys.platform != "linux":
        return _is_named_postgres(pid)
    try:
        # It changes to its data directory when it starts.
        return Path(f"/proc/{pid}/cwd").samefile(data)
    except OSError:
        # It is gone, or a stranger's, whose server could not open our data.
        return False


def _is_named_postgres(pid: int) -> bool:
    # Never needed on Linux, and the keeper stays small without it.
    import subprocess

    command = ["/bin/ps", "-p", str(pid), "-o", "command="]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return "postgres" in listing.stdout


def _holders(lock: Path) -> set[int]:
    if sys.platform != "linux":
        return set()
    wanted = lock.stat()
    found = set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        pid = int(folder.parent.name)
        if _is_postgres(folder.parent) and _has_open(folder, wanted):
            found.add(pid)
    return found


def _is_postgres(process: Path) -> bool:
    """Tell the server's processes from one that only asks whether it runs, and so holds the lock for a moment."""
    try:
        return (process / "exe").readlink().name.startswith(("postgres", "initdb"))
    except OSError:
        return False


def _has_open(descriptors: Path, wanted: os.stat_result) -> bool:
    try:
        for descriptor in descriptors.iterdir():
            found = descriptor.stat()
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    except OSError:
        # The process or the descriptor is gone, or is a stranger's.
        return False
    return False
