"""Which processes of a data directory are gone: told by locks, of one database at a time, never of the frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from overnight.domain.errors import Unusable
from overnight.store import flock
from overnight.store.life import Life, declare_dead, find_gone
from overnight.store.neighbours import FORGET_AFTER, Neighbours, this_machine
from overnight.store.pool import Store

BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)

HOLDS = """
import sys
from datetime import datetime
from pathlib import Path
from overnight.store.neighbours import Neighbours
Neighbours(Path(sys.argv[1])).enter(7, datetime.fromisoformat(sys.argv[2]))
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "workers"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def began(store: Store, folder: Path) -> Life:
    life = Life(store, neighbours=Neighbours(folder))
    await life.begin()
    return life


def vanish(life: Life) -> None:
    """What the kernel does of a process that is killed."""
    assert life.neighbours is not None
    life.neighbours.leave(ended=False)


async def value(store: Store, sql: str, *given: object) -> Any:
    async with store.session() as session:
        return await session.connection.fetchval(sql, *given)


def test_a_process_is_gone_when_it_was_killed_and_not_while_it_is_frozen(folder: Path) -> None:
    ours = Neighbours(folder)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder), BEGAN.isoformat()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"holds\n"
        assert ours.gone() == []
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert ours.gone() == []
        process.kill()
        process.wait()
        assert [(mark.no, mark.started) for mark in ours.gone()] == [(7, BEGAN)]


def test_no_program_that_is_started_keeps_the_lock(folder: Path) -> None:
    holder, ours = Neighbours(folder), Neighbours(folder)
    holder.enter(7, BEGAN)
    runs = [sys.executable, "-c", "print('runs', flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(runs, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, close_fds=False) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"runs\n"
        holder.leave(ended=False)
        assert [mark.no for mark in ours.gone()] == [7]


def test_a_file_is_seen_only_when_it_is_locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, seen = Neighbours(folder), []
    take = flock.try_alone

    def look(descriptor: int) -> bool:
        seen.append(ours.gone())
        return take(descriptor)

    monkeypatch.setattr(flock, "try_alone", look)
    Neighbours(folder).enter(7, BEGAN)
    assert seen == [[]]
    assert len(names(folder)) == 1


def test_one_process_has_one_file_of_its_last_life(folder: Path) -> None:
    holder, ours = Neighbours(folder), Neighbours(folder)
    holder.enter(7, BEGAN)
    holder.enter(8, BEGAN)
    assert [name.split(".")[0] for name in names(folder)] == ["8"]
    assert (ours.gone(), holder.gone()) == ([], [])
    holder.leave()
    assert names(folder) == []
    holder.leave()


def test_who_shares_the_folder_without_sharing_locks_is_left_alone(folder: Path) -> None:
    there, here = Neighbours(folder, "there"), Neighbours(folder, this_machine())
    there.enter(7, BEGAN)
    there.leave(ended=False)
    assert here.gone() == []
    assert len(Neighbours(folder, "there").gone()) == 1


def test_files_of_nobody_are_removed_when_they_are_old_and_no_others(folder: Path) -> None:
    ours, living, dead = Neighbours(folder), Neighbours(folder), Neighbours(folder, "there")
    living.enter(7, BEGAN)
    dead.enter(8, BEGAN)
    dead.leave(ended=False)
    recent = Neighbours(folder, "there")
    recent.enter(9, BEGAN)
    recent.leave(ended=False)
    long_ago = datetime.now(UTC).timestamp() - FORGET_AFTER.total_seconds() - 60
    for path in folder.iterdir():
        if not path.name.startswith("9."):
            os.utime(path, (long_ago, long_ago))
    ours.forget_old()
    assert [name.split(".")[0] for name in names(folder)] == ["7", "9"]


def test_strange_files_in_the_folder_are_no_workers(folder: Path) -> None:
    folder.mkdir()
    for name in ("notes", "7", "7.x.here", "x.7.here", ".7.7.here"):
        (folder / name).touch()
    assert Neighbours(folder).gone() == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Unusable("no locks")])
def test_a_process_runs_also_where_no_file_can_be_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_path: Path) -> int:
        raise error

    monkeypatch.setattr(flock, "open_lock", refuse)
    ours = Neighbours(folder)
    ours.enter(7, BEGAN)
    ours.leave()
    assert ours.gone() == []


async def test_a_worker_whose_lock_is_free_is_found_and_one_whose_lock_is_held_is_not(
    store: Store, folder: Path
) -> None:
    gone, living = await began(store, folder), await began(store, folder)
    ours = Neighbours(folder)
    assert await find_gone(store, ours) == []
    vanish(gone)
    assert await find_gone(store, ours) == [gone.no]
    assert living.no != gone.no


async def test_one_that_was_declared_gone_is_dead_and_its_file_is_removed(store: Store, folder: Path) -> None:
    gone = await began(store, folder)
    vanish(gone)
    ours = Neighbours(folder)
    assert await declare_dead(store, gone.no, None)
    assert not await declare_dead(store, gone.no, None)
    assert await value(store, "SELECT count(*) FROM worker WHERE dead_at IS NOT NULL") == 1
    assert await find_gone(store, ours) == []
    assert names(folder) == []


async def test_a_worker_with_the_number_of_another_databases_is_left_alone(store: Store, folder: Path) -> None:
    life = await began(store, folder)
    stranger = Neighbours(folder)
    stranger.enter(life.no, BEGAN)
    stranger.leave(ended=False)
    ours = Neighbours(folder)
    assert await find_gone(store, ours) == []
    assert len(names(folder)) == 2, "the other database's processes have to see it"
    assert ours.gone() == [], "it is asked for once"


async def test_a_worker_that_begins_anew_has_a_new_file(store: Store, folder: Path) -> None:
    life = await began(store, folder)
    old = life.no
    await declare_dead(store, old, timedelta(0))
    await life.beat()
    assert [int(name.split(".")[0]) for name in names(folder)] == [life.no] != [old]
    vanish(life)
    assert await find_gone(store, Neighbours(folder)) == [life.no]


async def test_a_worker_that_leaves_takes_its_file_along(store: Store, folder: Path) -> None:
    life = await began(store, folder)
    await life.end()
    assert names(folder) == []


async def test_the_file_of_a_worker_that_could_not_say_farewell_is_for_others_to_see(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = await began(store, folder)

    def lost() -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(store, "transaction", lost)
        with pytest.raises(ConnectionError):
            await life.end()
    assert await find_gone(store, Neighbours(folder)) == [life.no]
