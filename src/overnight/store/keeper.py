"""The process that runs the embedded server for as long as it has users: `python -m overnight.store.keeper`.

A user is a process that holds the lock `users.lock` shared. The keeper is the one process that holds
`keeper.lock`. It starts again what dies and stops when it can take `users.lock` alone, which it then keeps
until the server is down, so that a new user waits for that and starts a new keeper.

It is started by the first user and outlives it, so it imports as little as it can.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

from overnight.domain.errors import Unusable
from overnight.store.cluster import make_data, server_command
from overnight.store.confine import Confinement, adopt_orphans
from overnight.store.flock import is_held_alone, open_lock, try_alone
from overnight.store.folder import Folder
from overnight.store.logs import bound
from overnight.store.postmaster import Postmaster
from overnight.store.remains import clear, press
from overnight.store.runas import AsRoot, choose

POLL = 0.3
"""Seconds between two looks at whether users are left."""
TRIES = 3
"""Starts in a row that may fail before the reason is taken as lasting."""
UNUSABLE = 3
"""Exit status when the server cannot run; the reason is on standard output."""


class Orders(NamedTuple):
    """What the user that starts a keeper tells it."""

    folder: str
    programs: str
    major: int
    settings: dict[str, str]
    as_root: AsRoot = "auto"
    grace: float = 1.0
    """Seconds without a user before the server stops: the next command often follows at once."""
    watchdog: bool = sys.platform != "linux"
    """Whether a process of ours has to stop the server when the keeper is killed, because the kernel does not."""

    def encode(self) -> bytes:
        """Return what `main` reads from standard input."""
        return json.dumps(self._asdict()).encode()


class Keeper:
    """One keeper's life."""

    def __init__(self, orders: Orders) -> None:
        self.folder = Folder(Path(orders.folder))
        self.orders = orders
        self.programs = Path(orders.programs)
        self.told_to_stop = False
        self.closed = False
        self.alone_since: float | None = None
        self.logs_bounded = 0.0
        self.bell, ring = os.pipe()
        os.set_blocking(self.bell, False)
        os.set_blocking(ring, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)

    def run(self) -> None:
        """Keep the server until nobody needs it. Returns at once if there is another keeper."""
        mine = open_lock(self.folder.keeper_lock)
        deadline = time.monotonic() + 2
        # Somebody who asks whether a keeper lives holds this lock for a moment.
        while not try_alone(mine):
            if is_held_alone(self.folder.keeper_lock) or time.monotonic() > deadline:
                return
            self.wait(0.02)
        adopt_orphans()
        lock = self.inherit_server()
        if lock is None:
            return
        confinement = choose(self.folder, self.programs, self.orders.as_root)
        make_data(self.folder, self.programs, self.orders.major, confinement, lock)
        os.close(lock)
        self.keep(confinement)

    def keep(self, confinement: Confinement) -> None:
        """Run the server, again whenever it ends, until nobody needs it."""
        failures = 0
        while (lock := self.inherit_server()) is not None:
            socket = self.folder.make_socket_directory(*confinement.socket_owner)
            clear(self.folder, socket)
            command = server_command(self.programs, self.folder, socket, self.orders.settings)
            server = Postmaster(self.folder, command, confinement, lock, watchdog=self.orders.watchdog)
            # From here on the server's processes alone hold it.
            os.close(lock)
            was_ready = self.watch(server)
            if server.status is None:
                server.stop(self.wait)
                self.folder.remove_socket_directory()
                log("stopped the server")
                return
            failures = 0 if was_ready else failures + 1
            log(f"the server ended with {server.status}" + ("" if was_ready else " before it was ready"))
            if failures >= TRIES:
                raise Unusable(f"PostgreSQL does not start: {server.last_words()}")
            self.pause(failures * 0.5)

    def watch(self, server: Postmaster) -> bool:
        """Wait until the server ends or is no longer needed. Returns whether it ever accepted connections."""
        started = time.monotonic()
        told = started
        was_ready = False
        while not server.has_ended() and not self.is_unneeded():
            if not was_ready and server.is_ready():
                was_ready = True
                log(f"the server accepts connections, process {server.pid}")
            if not was_ready and time.monotonic() > told + 10:
                told = time.monotonic()
                log(f"the server has been starting for {told - started:.0f} s")
            self.bound_logs()
            self.wait(POLL if was_ready else 0.05)
        return was_ready

    def inherit_server(self) -> int | None:
        """Wait until no process of an earlier server is left; then return its lock, None if unneeded by now."""
        lock = open_lock(self.folder.server_lock)
        started = time.monotonic()
        while not try_alone(lock):
            if self.is_unneeded():
                os.close(lock)
                return None
            press(self.folder, time.monotonic() - started)
            self.wait(0.1)
        return lock

    def is_unneeded(self) -> bool:
        """Say whether to stop. If for want of users, none can come any more until this process ends."""
        if self.told_to_stop or self.closed:
            return True
        users = open_lock(self.folder.users_lock)
        now = time.monotonic()
        if try_alone(users):
            self.alone_since = now if self.alone_since is None else self.alone_since
            self.closed = now >= self.alone_since + self.orders.grace
        else:
            self.alone_since = None
        if not self.closed:
            os.close(users)
        return self.closed

    def bound_logs(self) -> None:
        """Keep the logs small, looking now and then."""
        now = time.monotonic()
        if now > self.logs_bounded + 10:
            self.logs_bounded = now
            bound(self.folder.server_log)
            bound(self.folder.keeper_log)

    def pause(self, seconds: float) -> None:
        """Sleep for the time or until the server is no longer needed."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.is_unneeded():
            self.wait(min(left, POLL))

    def wait(self, seconds: float) -> None:
        """Sleep until the time is over or a signal came."""
        if select.select([self.bell], [], [], seconds)[0]:
            os.read(self.bell, 4096)

    def stop(self, *_: object) -> None:
        """Take note of SIGTERM."""
        self.told_to_stop = True


def log(text: str) -> None:
    """Write a line to standard error, which is the keeper's log."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # A full disk must not end the keeper.
    with contextlib.suppress(OSError):
        os.write(2, f"{moment} [{os.getpid()}] {text}\n".encode(errors="replace"))


def main() -> int:
    """Run a keeper by the orders on standard input."""
    orders = Orders(**json.loads(sys.stdin.buffer.read()))
    os.chdir("/")
    os.umask(0o077)
    # Ctrl-C reaches the whole terminal, and the server must outlive the users that it interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    keeper = Keeper(orders)
    signal.signal(signal.SIGTERM, keeper.stop)
    try:
        keeper.run()
    except (Unusable, OSError) as error:
        log(str(error))
        # Whoever started us may be gone by now.
        with contextlib.suppress(BrokenPipeError):
            os.write(1, str(error).encode(errors="surrogateescape"))
        return UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
