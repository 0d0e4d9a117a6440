"""The keeper is small, keeps the server for its users alone, and takes the server with it whenever it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from overnight.store.binaries import find
from overnight.store.confine import PR_SET_CHILD_SUBREAPER
from overnight.store.embedded import is_running
from overnight.store.flock import open_lock, try_shared
from overnight.store.folder import Folder
from overnight.store.keeper import UNUSABLE, Orders
from overnight.store.remains import read_pid_file
from tests.store.processes import SMALL, kill, postmaster_of, until

HEAVY = {"asyncio", "asyncpg", "dataclasses", "hashlib", "logging", "shutil", "ssl", "subprocess", "tempfile", "uvloop"}


class Hold:
    """Makes the test a user of a folder's server."""

    def __init__(self, folder: Path) -> None:
        self.descriptor: int | None = open_lock(Folder(folder).users_lock)
        assert try_shared(self.descriptor)

    def release(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


@pytest.fixture
def hold(folder: Path) -> Iterator[Hold]:
    """Makes the test a user of the folder's server, whose processes must be gone soon after it."""
    hold = Hold(folder)
    yield hold
    hold.release()


def start_keeper(folder: Path, *, watchdog: bool = False, change: str = "") -> subprocess.Popen[bytes]:
    """Start a keeper, after a change to its code if one is given."""
    programs, major = find(Folder(folder))
    orders = Orders(str(folder), str(programs), major, SMALL, grace=0, watchdog=watchdog)
    code = f"import sys\nfrom overnight.store import keeper, postmaster\n{change}\nsys.exit(keeper.main())"
    keeper = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert keeper.stdin
    with keeper.stdin as stdin:
        stdin.write(orders.encode())
    keeper.stdin = None
    return keeper


def end_of(keeper: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for the keeper and return its status and what it said."""
    said, _ = keeper.communicate(timeout=60)
    return keeper.returncode, said.decode()


def is_ready(folder: Path) -> bool:
    return read_pid_file(Folder(folder))[7:] == ["ready   "]


def log_of(folder: Path) -> str:
    return Folder(folder).server_log.read_text()


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's children, dead ones that nobody has buried among them."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold anything; the parent is the second field after it.
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(path.parent.name))
    return children


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_keeper_imports_little() -> None:
    report = "import overnight.store.keeper, sys; print(*sys.modules)"
    modules = set(
        subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "overnight.store.postmaster" in modules
    assert not modules & HEAVY


def test_a_keeper_without_users_ends_without_a_server(folder: Path) -> None:
    assert end_of(start_keeper(folder)) == (0, "")
    assert not is_running(folder)


async def test_a_keeper_ends_when_its_last_user_has_gone(folder: Path, hold: Hold) -> None:
    another = Hold(folder)
    keeper = start_keeper(folder)
    await until(lambda: is_ready(folder))
    hold.release()
    assert keeper.poll() is None
    another.release()
    assert end_of(keeper) == (0, "")
    assert not is_running(folder)


async def test_a_second_keeper_ends_at_once(folder: Path, hold: Hold) -> None:
    first = start_keeper(folder)
    await until(lambda: is_ready(folder))
    assert end_of(start_keeper(folder)) == (0, "")
    assert first.poll() is None
    first.terminate()
    end_of(first)


async def test_sigterm_stops_the_server_in_order(folder: Path, hold: Hold) -> None:
    keeper = start_keeper(folder)
    await until(lambda: is_ready(folder))
    keeper.terminate()
    assert end_of(keeper) == (0, "")
    assert not is_running(folder)
    assert "database system is shut down" in log_of(folder)


async def test_sigterm_reaches_a_server_that_has_only_just_begun(folder: Path, hold: Hold) -> None:
    keeper = start_keeper(folder)
    await until(lambda: is_running(folder))
    keeper.terminate()
    assert end_of(keeper) == (0, "")
    assert not is_running(folder)


@linux
async def test_no_user_comes_in_while_the_keeper_stops(folder: Path, hold: Hold) -> None:
    keeper = start_keeper(folder)
    await until(lambda: is_ready(folder))
    # While it is frozen the server cannot stop, and the keeper waits.
    postmaster = postmaster_of(folder)
    os.kill(postmaster, signal.SIGSTOP)
    hold.release()
    newcomer = open_lock(Folder(folder).users_lock)
    await until(lambda: is_pending(postmaster, signal.SIGINT))
    assert not try_shared(newcomer)
    os.kill(postmaster, signal.SIGCONT)
    assert end_of(keeper) == (0, "")
    assert try_shared(newcomer)
    os.close(newcomer)


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Say whether a signal was sent to a process that is frozen."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = next(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))
    return bool(pending >> (number - 1) & 1)


async def test_a_server_that_does_not_stop_is_made_to(folder: Path, hold: Hold) -> None:
    hurry = "postmaster.STOPS = tuple((number, min(seconds, 0.3)) for number, seconds in postmaster.STOPS)"
    keeper = start_keeper(folder, change=hurry)
    await until(lambda: is_ready(folder))
    os.kill(postmaster_of(folder), signal.SIGSTOP)
    hold.release()
    assert end_of(keeper) == (0, "")
    await until(lambda: not is_running(folder))


@pytest.mark.parametrize("watchdog", [False, True])
async def test_the_server_ends_in_order_when_its_keeper_is_killed(folder: Path, hold: Hold, watchdog: bool) -> None:
    if not watchdog and sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's death")
    keeper = start_keeper(folder, watchdog=watchdog)
    await until(lambda: is_ready(folder))
    keeper.kill()
    end_of(keeper)
    await until(lambda: not is_running(folder))
    assert "database system is shut down" in log_of(folder)


@linux
async def test_a_watchdog_ends_with_what_it_watched(folder: Path, hold: Hold) -> None:
    keeper = start_keeper(folder, watchdog=True)
    await until(lambda: is_ready(folder))
    killed = postmaster_of(folder)
    kill(killed)
    await until(lambda: log_of(folder).count("ready to accept connections") == 2)
    # The new server and its watchdog, and no zombie of the old ones.
    await until(lambda: len(children_of(keeper.pid)) == 2)
    keeper.terminate()
    end_of(keeper)


async def test_a_keeper_says_why_the_server_cannot_start(folder: Path, hold: Hold) -> None:
    (folder / "data" / "global" / "pg_control").unlink()
    status, said = end_of(start_keeper(folder))
    assert status == UNUSABLE
    assert "pg_control" in said


@pytest.fixture
def careless_parent() -> Iterator[None]:
    """Makes orphans come to this process, which buries none, like the first process of many a container."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0)


@linux
async def test_dead_processes_are_buried(folder: Path, hold: Hold, careless_parent: None) -> None:
    keeper = start_keeper(folder)
    await until(lambda: is_ready(folder))
    postmaster = postmaster_of(folder)
    dying = {postmaster, *children_of(postmaster)}
    assert len(dying) > 3
    kill(postmaster)
    await until(lambda: log_of(folder).count("ready to accept connections") == 2)
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in dying))
    keeper.terminate()
    end_of(keeper)
