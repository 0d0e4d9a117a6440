"""Stops the server when its keeper is killed, on systems whose kernel does not."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


class Watchdog:
    """A process that waits for the end of a pipe whose other end only the keeper has."""

    def __init__(self, watched: int) -> None:
        """Watch over the process with this id. The caller must have one thread."""
        end, self._ours = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _wait_and_stop(end, watched)
        os.close(end)

    def dismiss(self) -> None:
        """End it because what it watched has ended, whose id may soon mean another process."""
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._ours)


def _wait_and_stop(end: int, watched: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        # Our copies of the keeper's descriptors would hold its locks after its death, and this pipe open.
        os.closerange(0, end)
        os.closerange(end + 1, os.sysconf("SC_OPEN_MAX"))
        os.read(end, 1)
        os.kill(watched, signal.SIGINT)
    finally:
        os._exit(0)
