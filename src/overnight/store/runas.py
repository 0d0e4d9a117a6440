"""Chooses as whom PostgreSQL runs: somebody it accepts, who can reach its programs and its data."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from overnight.domain.errors import Unusable
from overnight.store.confine import Confinement
from overnight.store.folder import Folder

AsRoot = Literal["auto", "namespace", "user"]

REFUSED = 255
"""The exit status of a child whom the system did not let become somebody else."""


def choose(folder: Folder, programs: Path, as_root: AsRoot = "auto") -> Confinement:
    """Choose as whom to run the programs on the data of a folder, which may not be made yet.

    No permission of a folder is changed for it. Raises Unusable with what is in the way.
    """
    way = _way(folder, programs)
    obstacles: list[tuple[Confinement, Path]] = []
    for confinement in _candidates(folder, as_root):
        usable = _count_usable(confinement, way)
        if usable == len(way):
            return confinement
        if usable is not None:
            obstacles.append((confinement, way[usable]))
    if not obstacles:
        raise Unusable(
            f"PostgreSQL does not run as user id {os.geteuid()} here, and this system lets it be nobody else. Run "
            "as a user with a name, or name a running server with --database-url."
        )
    confinement, blocked = obstacles[0]
    raise Unusable(
        f"PostgreSQL runs as user id {confinement.uid} here, which cannot use {blocked}, and it needs both "
        f"{folder.path} and its programs in {programs}. Choose a folder that it can reach with --data-dir, install "
        "it where every user can reach it, or name a running server with --database-url."
    )


def _candidates(folder: Folder, as_root: AsRoot) -> Iterator[Confinement]:
    """Yield as whom it might run, the preferred first.

    Root keeps its files and its access to them in a user namespace, where it has another number. Where
    namespaces are not allowed, as in most containers, another user has to own the data.
    """
    uid = os.geteuid()
    made = folder.data.exists()
    owner = (folder.data if made else folder.path).stat()
    if uid not in (0, owner.st_uid):
        raise Unusable(f"{folder.path} belongs to another user. Run as that user, or choose another --data-dir.")
    # Only initdb insists on a user id that has a name.
    fits = made or _has_name(owner.st_uid)
    if uid != 0 and fits:
        yield Confinement("self", uid, os.getegid())
    elif owner.st_uid != 0 and fits and as_root == "auto":
        yield Confinement("user", owner.st_uid, owner.st_gid)
        yield Confinement("privileged", owner.st_uid, owner.st_gid)
    else:
        user = _named_user()
        if as_root != "user":
            yield Confinement("namespace", user.pw_uid, user.pw_gid)
        if as_root != "namespace" and uid == 0:
            yield Confinement("user", user.pw_uid, user.pw_gid)
            yield Confinement("privileged", user.pw_uid, user.pw_gid)


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
        f"PostgreSQL does not run as user id {os.geteuid()} here, and there is no user `postgres` or `nobody` to "
        "run it as. Add one, or name a running server with --database-url."
    )


def _way(folder: Folder, programs: Path) -> list[Path]:
    """Return the folders to pass through, outermost first, and at last the program."""
    return [
        *reversed(folder.path.parents),
        folder.path,
        *reversed(programs.parents),
        programs,
        programs / "postgres",
    ]


def _count_usable(confinement: Confinement, way: list[Path]) -> int | None:
    """Return how far the confined gets, None if nobody can become them."""
    # What is tried cannot be undone, so a child tries it.
    pid = os.fork()
    if pid == 0:
        status = REFUSED
        try:
            confinement.enter()
            status = _go(way)
        except OSError:
            pass
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if status == REFUSED else status


def _go(way: list[Path]) -> int:
    for number, step in enumerate(way):
        try:
            # Done rather than asked: access() does not count capabilities.
            if step.is_dir():
                os.chdir(step)
            else:
                os.close(os.open(step, os.O_RDONLY))
        except PermissionError:
            return number
    return len(way)
