"""Starts a keeper as a process that outlives the one that starts it."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import overnight
from overnight.domain.errors import Unusable
from overnight.store.folder import Folder
from overnight.store.keeper import UNUSABLE, Orders
from overnight.store.logs import open_log

_started: list[Summoned] = []
"""Keepers that were alive when last looked at, so that those which end later are buried at some time."""


class Summoned:
    """A keeper that this process has started."""

    def __init__(self, orders: Orders) -> None:
        for earlier in list(_started):
            earlier.has_ended()
        folder = Folder(Path(orders.folder))
        self._log = folder.keeper_log
        self._reason = ""
        log = open_log(self._log)
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, "-m", "overnight.store.keeper", folder.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )
        finally:
            os.close(log)
        _started.append(self)
        assert self._process.stdin
        # One that died at once is found to have ended.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(orders.encode())

    def has_ended(self) -> bool:
        """Say whether it has ended, and bury it."""
        if self._process.poll() is None:
            return False
        if self in _started:
            _started.remove(self)
            assert self._process.stdout
            with self._process.stdout as said:
                self._reason = said.read().decode(errors="replace")
        return True

    def leave(self) -> None:
        """Look after it no more."""
        if self._process.stdout:
            self._process.stdout.close()
        self._process.returncode = 0

    def raise_if_it_gave_up(self) -> None:
        """Raise Unusable if it has ended because the server cannot run, rather than unneeded or killed."""
        if self._process.returncode == UNUSABLE:
            raise Unusable(self._reason)
        if self._process.returncode is not None and self._process.returncode > 0:
            raise Unusable(f"The keeper of PostgreSQL failed; see {self._log}.")


@atexit.register
def _leave_all() -> None:
    """They outlive us, which is their purpose: unasked, Python warns of each when it ends."""
    for keeper in _started:
        keeper.leave()


def _environment() -> dict[str, str]:
    """Return our environment less what the keeper has no business with, such as keys of upstreams."""
    wanted = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LOCALE_ARCHIVE", "PYTHONHOME")
    kept = {name: os.environ[name] for name in wanted if name in os.environ}
    here = str(Path(overnight.__file__).parent.parent)
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
