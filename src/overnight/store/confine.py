"""Runs PostgreSQL's programs as somebody they accept, since they refuse to run as root, and never past our death."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_CHILD_SUBREAPER = 36
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CLONE_NEWUSER = 0x10000000
CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class Confinement(NamedTuple):
    """As whom the programs run.

    `self`: as we are. `namespace`: as we are outside, as another number inside of a user namespace. `user`: as
    another user. `privileged`: as another user that passes the permissions of files as we do.
    """

    kind: Literal["self", "namespace", "user", "privileged"]
    uid: int
    gid: int

    @property
    def owner(self) -> tuple[int, int]:
        """The user and group that own the data, as everybody else sees them."""
        return (self.uid, self.gid) if self.kind in ("user", "privileged") else (os.geteuid(), os.getegid())

    @property
    def socket_owner(self) -> tuple[int, int]:
        """The user and group that own the directory of the socket, and so can connect.

        Whoever connects can do what the server can. One that passes permissions must not be open to others of
        its user id.
        """
        return (os.geteuid(), os.getegid()) if self.kind == "privileged" else self.owner

    def enter(self) -> None:
        """Change the calling process for good. It must have one thread and no other work to do. Raises OSError."""
        if self.kind == "namespace":
            _enter_namespace(self.uid, self.gid)
        elif self.kind in ("user", "privileged"):
            privileged = self.kind == "privileged"
            if privileged:
                _prctl(PR_SET_KEEPCAPS, 1)
            os.setgroups([self.gid])
            os.setgid(self.gid)
            os.setuid(self.uid)
            if privileged:
                _keep_capabilities(1 << CAP_DAC_OVERRIDE)
                # Only an ambient capability lasts when another program is started.
                _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE)


def spawn(
    argv: Sequence[str | Path],
    confinement: Confinement,
    environment: dict[str, str],
    *,
    stdin: int,
    output: int,
    inherit: int,
    dies_with_us: signal.Signals,
) -> int:
    """Start a program as the confined and return its process id. `inherit` is one more descriptor it gets.

    On Linux the kernel sends it the signal when this process dies. The caller must have one thread.
    """
    us = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(argv, confinement, environment, (stdin, output, inherit), dies_with_us, us)
    return pid


def _become(
    argv: Sequence[str | Path],
    confinement: Confinement,
    environment: dict[str, str],
    descriptors: tuple[int, int, int],
    dies_with_parent: signal.Signals,
    parent: int,
) -> NoReturn:
    stdin, output, inherit = descriptors
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(stdin, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.set_inheritable(inherit, True)
        os.umask(0o077)
        confinement.enter()
        # A change of user clears this wish, so it comes last; the parent may have died before it.
        die_with_parent(dies_with_parent, parent)
        os.execve(argv[0], [os.fspath(part) for part in argv], environment)  # noqa: S606
    except OSError as error:
        os.write(2, f"could not run {argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel signal this process when its parent dies; only Linux can."""
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of processes whose parent below us has died, so that they can be reaped; Linux only."""
    if sys.platform == "linux":
        _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _enter_namespace(uid: int, gid: int) -> None:
    outside = os.geteuid(), os.getegid()
    if sys.platform != "linux" or _libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "user namespaces are not allowed")
    # The kernel asks for setgroups to be given up before a group may be mapped without privilege.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside[0]} 1\n")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside[1]} 1\n")
    # Inside we have all of them until another program is started.
    _keep_capabilities(0)


def _keep_capabilities(kept: int) -> None:
    """Give up all capabilities but those of the bit mask."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Effective, permitted, inheritable; the upper halves last.
    sets = (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0)
    if _libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be set")


def _prctl(option: int, *values: int) -> None:
    if sys.platform != "linux":
        raise OSError("there are no capabilities on this system")
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0)][:4]
    if _libc.prctl(option, *arguments) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} is not allowed")
