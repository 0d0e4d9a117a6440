"""Runs PostgreSQL's programs as a user it accepts, since it refuses to run as root, and never past our death."""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from overnight.domain.errors import Unusable

AsRoot = Literal["auto", "namespace", "user"]

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWUSER = 0x10000000

_libc = ctypes.CDLL(None, use_errno=True)


class Confinement(NamedTuple):
    """As whom the programs run: ourselves, ourselves under another number in a user namespace, or a user."""

    kind: Literal["self", "namespace", "user"]
    uid: int
    gid: int

    @property
    def owner(self) -> tuple[int, int]:
        """The user and group that own what the programs make, as everybody else sees them."""
        return (self.uid, self.gid) if self.kind == "user" else (os.geteuid(), os.getegid())

    def enter(self) -> None:
        """Change the calling process for good. It must have one thread and no other work to do."""
        if self.kind == "namespace":
            _enter_namespace(self.uid, self.gid)
        elif self.kind == "user":
            os.setgroups([self.gid])
            os.setgid(self.gid)
            os.setuid(self.uid)


def choose(folder: Path, data: Path, as_root: AsRoot = "auto") -> Confinement:
    """Choose as whom to run programs on a data directory, which may not exist yet, in our folder.

    Root keeps its files and its access to them in a user namespace, where it has another number. Where
    namespaces are not allowed, another user has to own the data. Raises Unusable if there is no way.
    """
    made = data.exists()
    owner = (data if made else folder).stat()
    uid = os.geteuid()
    if uid != owner.st_uid and uid != 0:
        raise Unusable(f"{folder} belongs to another user. Run as that user, or choose another --data-dir.")
    # Only initdb insists on a user id that has a name.
    usable = made or _has_name(owner.st_uid)
    if uid != 0 and usable:
        return Confinement("self", uid, os.getegid())
    if owner.st_uid != 0 and usable and as_root == "auto":
        return Confinement("user", owner.st_uid, owner.st_gid)
    user = _named_user()
    namespace = Confinement("namespace", user.pw_uid, user.pw_gid)
    if as_root != "user" and _can_enter(namespace):
        return namespace
    if as_root == "namespace" or uid != 0:
        raise Unusable(
            f"PostgreSQL does not run as user id {uid} here, and this system does not allow the user namespace "
            "that would help. Run as a user with a name, or name a running server with --database-url."
        )
    return Confinement("user", user.pw_uid, user.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _named_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Unusable(
        "PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as. Add one, or "
        "name a running server with --database-url."
    )


def obstacle(confinement: Confinement, path: Path) -> Path | None:
    """Return the first folder on the way to the path, or the path itself, that the confined cannot use."""
    steps = (*reversed(path.parents), path)

    def count_usable() -> int:
        confinement.enter()
        # access() looks without capabilities, as the program will after exec.
        return next((number for number, step in enumerate(steps) if not os.access(step, os.X_OK)), len(steps))

    usable = _try(count_usable)
    return steps[usable] if usable < len(steps) else None


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
    if sys.platform != "linux":
        return
    _libc.prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of processes whose parent below us has died, so that they can be reaped; Linux only."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def _can_enter(confinement: Confinement) -> bool:
    def enter() -> int:
        confinement.enter()
        return 0

    return _try(enter) == 0


def _try(act: Callable[[], int]) -> int:
    """Return what the act returns, less than 255, in a child that ends at once: it cannot be undone."""
    pid = os.fork()
    if pid == 0:
        status = 255
        try:
            status = act()
        except OSError:
            pass
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _enter_namespace(uid: int, gid: int) -> None:
    outside = os.geteuid(), os.getegid()
    if sys.platform != "linux" or _libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "user namespaces are not allowed")
    # The kernel asks for setgroups to be given up before a group may be mapped without privilege.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside[0]} 1\n")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside[1]} 1\n")
