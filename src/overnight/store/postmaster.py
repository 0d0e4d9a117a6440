"""One run of the server's main process: started, watched and stopped as our direct child."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from overnight.store.cluster import environment
from overnight.store.confine import Confinement, spawn
from overnight.store.folder import Folder
from overnight.store.logs import open_log
from overnight.store.remains import read_pid_file
from overnight.store.watchdog import Watchdog

STOPS = ((signal.SIGINT, 90.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 60.0))
"""Signals that stop a server, each firmer than the one before, and how many seconds each may take.

The first ends sessions and writes everything down, the second leaves that to recovery.
"""


class Postmaster:
    """The running server. All its processes hold the lock on `server.lock` until the last of them is gone."""

    def __init__(
        self, folder: Folder, command: Sequence[str], confinement: Confinement, lock: int, *, watchdog: bool
    ) -> None:
        self.folder = folder
        self.status: int | None = None
        self.log_start = 0
        log = open_log(folder.server_log)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            self.log_start = os.fstat(log).st_size
            self.pid = spawn(
                command,
                confinement,
                environment(),
                stdin=nothing,
                output=log,
                inherit=lock,
                dies_with_us=signal.SIGINT,
            )
        finally:
            os.close(nothing)
            os.close(log)
        self._watchdog = Watchdog(self.pid) if watchdog else None

    def has_ended(self) -> bool:
        """Say whether it has ended, and bury it and whatever orphans of it became our children."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)
                if self._watchdog:
                    self._watchdog.dismiss()
        return self.status is not None

    def is_ready(self) -> bool:
        """Say whether it accepts connections, by what it writes in its own pid file."""
        lines = read_pid_file(self.folder)
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def stop(self, wait: Callable[[float], None]) -> None:
        """End it, in order if that does not take too long."""
        for number, patience in STOPS:
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                # Again and again, because one that has only just started may not hear it yet.
                os.kill(self.pid, number)
                wait(0.1)
                if self.has_ended():
                    return

    def last_words(self) -> str:
        """Return the end of what it has written to its log."""
        with self.folder.server_log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(min(self.log_start, size), size - 2000))
            return log.read().decode(errors="replace").strip()
