"""Makes the embedded server's data directory, once and whole, and knows the settings it runs with."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from overnight.domain.errors import Unusable
from overnight.store.confine import Confinement, spawn
from overnight.store.folder import PORT, Folder

USER = DATABASE = "overnight"

SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    # Everything is appended; checkpoints forced by a small log would write pages twice.
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "idle_in_transaction_session_timeout": "60s",
    # Our statements are short. Compiling or sharing them out costs more than it gains, and the shared memory
    # for parallel queries is 64 MB in most containers.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}

OURS = frozenset(
    {
        "data_directory",
        "listen_addresses",
        "log_destination",
        "logging_collector",
        "port",
        "unix_socket_directories",
        "unix_socket_group",
        "unix_socket_permissions",
    }
)
"""Who can connect and where the log goes is not for callers to set."""


def server_command(programs: Path, folder: Folder, socket: Path, settings: Mapping[str, str]) -> list[str]:
    """Return the command that runs the server: reachable through its socket only, with these settings."""
    quoted = str(socket).replace('"', '""')
    fixed = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": f'"{quoted}"',
        "unix_socket_permissions": "0700",
        "logging_collector": "off",
        "log_destination": "stderr",
    }
    command = [str(programs / "postgres"), "-D", str(folder.data)]
    for name, value in {**SETTINGS, **settings, **fixed}.items():
        command += ["-c", f"{name}={value}"]
    return command


def environment() -> dict[str, str]:
    """Return the few variables that PostgreSQL's programs need. Ours may hold secrets, and PG* would mislead."""
    wanted = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LOCALE_ARCHIVE")
    kept = {name: os.environ[name] for name in wanted if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def make_data(folder: Folder, programs: Path, major: int, confinement: Confinement, lock: int) -> None:
    """Make the data directory with our database in it, unless it is there. The programs inherit `lock`.

    It gets its name when it is whole, so that a crash at any moment leaves nothing that looks like one.
    Raises Unusable if that fails or if what is there cannot be used.
    """
    made = folder.made_by()
    if made not in (None, major):
        raise Unusable(f"{folder.data} was written by PostgreSQL {made}, not {major}. Start again.")
    if made is not None:
        _give(folder.data, confinement)
        return
    if folder.data.exists():
        raise Unusable(f"{folder.data} is not a PostgreSQL data directory. Move it away, or choose another --data-dir.")
    fresh = folder.half_made
    _remove(fresh)
    fresh.mkdir(mode=0o700)
    _give(fresh, confinement)
    options = ["-D", str(fresh), f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--data-checksums"]
    _run([str(programs / "initdb"), *options, *_locale(major)], confinement, lock)
    single = [str(programs / "postgres"), "--single", "-D", str(fresh), "-c", "exit_on_error=on", "postgres"]
    _run(single, confinement, lock, f"CREATE DATABASE {DATABASE};\n")
    fresh.rename(folder.data)
    _sync(folder.path)


def _remove(fresh: Path) -> None:
    """Remove what a crash left half made."""
    if fresh.exists():
        # Rarely needed, and the keeper stays small without it.
        import shutil

        shutil.rmtree(fresh)


def _give(data: Path, confinement: Confinement) -> None:
    """Make the user that PostgreSQL runs as the owner of the data, the top last, so that a crash repeats it."""
    uid, gid = confinement.owner
    if data.stat().st_uid == uid:
        return
    for folder, _, files in os.walk(data, topdown=False):
        for name in files:
            os.lchown(Path(folder) / name, uid, gid)
        os.lchown(folder, uid, gid)


def _locale(major: int) -> list[str]:
    """Choose an order of text that is the same on all systems and never changes under our indexes."""
    if major >= 17:
        return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    # Needed once in the life of a folder, and the keeper stays small without it.
    import locale

    try:
        locale.setlocale(locale.LC_COLLATE, "C.UTF-8")
    except locale.Error:
        return ["--locale=C"]
    return ["--locale=C.UTF-8"]


def _run(command: Sequence[str], confinement: Confinement, lock: int, text: str = "") -> None:
    inward, feed = os.pipe()
    outward, output = os.pipe()
    pid = spawn(
        command,
        confinement,
        environment(),
        stdin=inward,
        output=output,
        inherit=lock,
        dies_with_us=signal.SIGKILL,
    )
    os.close(inward)
    os.close(output)
    with os.fdopen(feed, "w") as stdin:
        stdin.write(text)
    with os.fdopen(outward, errors="replace") as stdout:
        said = stdout.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        raise Unusable(f"{command[0]} ended with {status}: {said.strip()[-2000:]}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
