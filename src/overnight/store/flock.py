"""Advisory locks on small files, which the kernel gives back when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from overnight.domain.errors import Unusable


def open_lock(path: Path) -> int:
    """Open the lock file, made if it is missing, and return its descriptor, which no program we run inherits.

    Every call is a holder of its own. The lock ends when the last copy of the descriptor is closed, so it
    must be given back by closing and never by unlocking: a forked child shares the lock with its parent.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unusable(
            f"{path} cannot be opened: {error.strerror}. Run as the user that owns the folder, or choose another "
            "--data-dir."
        ) from error
    give_to_owner(descriptor, path.parent)
    return descriptor


def give_to_owner(descriptor: int, folder: Path) -> None:
    """Let root leave no file of its own in the folder of another user, who could not open it later."""
    if os.geteuid() != 0:
        return
    owner = folder.stat()
    if os.fstat(descriptor).st_uid != owner.st_uid:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def try_shared(descriptor: int) -> bool:
    """Take the lock together with others, if nobody holds it alone."""
    return _try(descriptor, fcntl.LOCK_SH)


def try_alone(descriptor: int) -> bool:
    """Take the lock if nobody else holds it."""
    return _try(descriptor, fcntl.LOCK_EX)


def is_held_alone(path: Path) -> bool:
    """Say whether some living process holds the lock alone.

    The question itself holds the lock for a moment, so whoever wants it alone has to try more than once.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_shared(descriptor)
    finally:
        os.close(descriptor)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Unusable(f"The file system of the data directory has no locks ({error.strerror}).") from error
    return True
