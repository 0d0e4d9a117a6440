"""The folder that an embedded server lives in, and the directory of its socket."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from overnight.domain.errors import Unusable
from overnight.store.flock import give_to_owner

PORT = 5432
LONGEST_SOCKET = 107 if sys.platform == "linux" else 103
"""Bytes of a path in `struct sockaddr_un`, less the closing zero."""


class Folder:
    """The paths in the folder that an embedded server lives in."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.path / "data"

    @property
    def half_made(self) -> Path:
        """What becomes the data directory when it is whole."""
        return self.path / "data.new"

    @property
    def users_lock(self) -> Path:
        """Held shared by every user, alone by a keeper that has decided to stop."""
        return self.path / "users.lock"

    @property
    def keeper_lock(self) -> Path:
        """Held alone by the one keeper."""
        return self.path / "keeper.lock"

    @property
    def server_lock(self) -> Path:
        """Held alone by all processes of the server together, until the last of them is gone."""
        return self.path / "server.lock"

    @property
    def socket_note(self) -> Path:
        """Names the directory of the socket."""
        return self.path / "socket"

    @property
    def keeper_log(self) -> Path:
        """What the keeper did."""
        return self.path / "keeper.log"

    @property
    def server_log(self) -> Path:
        """What PostgreSQL wrote."""
        return self.path / "postgres.log"

    def made_by(self) -> int | None:
        """Return the major version of PostgreSQL that made the data directory, None if there is none yet."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise Unusable(
                f"{self.data} belongs to another user. Run as that user, or choose another --data-dir."
            ) from error

    def make(self) -> None:
        """Make the folder. Others may pass through it, because PostgreSQL may have to, but not look into it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o711)
        except FileExistsError:
            if self.path.is_dir():
                return
            raise Unusable(f"{self.path} is not a folder. Choose another --data-dir.") from None
        except OSError as error:
            raise Unusable(f"{self.path} cannot be made: {error.strerror}. Choose another --data-dir.") from error
        self.path.chmod(0o711)

    def read_socket_directory(self) -> Path | None:
        """Return the directory of the socket, None if no keeper has chosen one yet. Refuses one of a stranger."""
        directory = self._noted()
        return directory if directory and _is_private(directory, self._owners()) else None

    def make_socket_directory(self, uid: int, gid: int) -> Path:
        """Choose and make the directory of the socket, owned by whom PostgreSQL runs as, and note it down.

        Whoever can enter it can connect, so nobody else may. A path too long for a socket goes to the
        directory for temporary files, under a name made from ours.
        """
        directory = self.path / "run"
        if not _fits(directory):
            directory = self._elsewhere()
        try:
            directory.mkdir(mode=0o700)
            os.chown(directory, uid, gid)
        except FileExistsError:
            if not _is_private(directory, self._owners() | {uid}):
                raise Unusable(
                    f"{directory} belongs to somebody else or is open to others, and the server's socket would "
                    "be theirs. Remove it, or choose another --data-dir."
                ) from None
            os.chown(directory, uid, gid, follow_symlinks=False)
        self._note(directory)
        return directory

    def remove_socket_directory(self) -> None:
        """Remove the directory of the socket, which may be outside of our folder, after the server has stopped."""
        directory = self.read_socket_directory()
        if directory is not None:
            with contextlib.suppress(OSError):
                directory.rmdir()

    def _elsewhere(self) -> Path:
        # Rarely needed, and the keeper stays small without them.
        import hashlib
        import tempfile

        name = f"overnight-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]}"
        noted = self._noted()
        if noted is not None and noted.name == name and noted.parent.is_dir():
            # Users of the last server go on to look for it where it was.
            return noted
        directory = Path(tempfile.gettempdir()) / name
        return directory if _fits(directory) else Path("/tmp") / name  # noqa: S108  its owner is verified

    def _noted(self) -> Path | None:
        try:
            return Path(os.fsdecode(self.socket_note.read_bytes()))
        except FileNotFoundError:
            return None

    def _note(self, directory: Path) -> None:
        if self._noted() == directory:
            return
        fresh = self.socket_note.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            give_to_owner(descriptor, self.path)
            os.write(descriptor, os.fsencode(directory))
        finally:
            os.close(descriptor)
        fresh.replace(self.socket_note)

    def _owners(self) -> set[int]:
        owners = {0, os.geteuid(), self.path.stat().st_uid}
        return owners | {self.data.stat().st_uid} if self.data.exists() else owners


def _fits(directory: Path) -> bool:
    return len(os.fsencode(directory / f".s.PGSQL.{PORT}")) <= LONGEST_SOCKET


def _is_private(directory: Path, owners: set[int]) -> bool:
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in owners and not stat.S_IMODE(found.st_mode) & 0o077
